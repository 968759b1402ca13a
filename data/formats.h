// Well-known formats that hold no UTF-8 text, known by their first bytes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ink {

/// Throws if these bytes, the beginning of a file or all of it, are of a well-known format that is
/// no UTF-8 text; the error names the format and says what to type.
void check_is_text(const std::filesystem::path& file, std::string_view bytes);

/// The same for a file of token ids, in which a few bytes may look like anything: only formats with
/// four bytes of their own or more are known, and text of 128 bytes or more.
void check_is_ids(const std::filesystem::path& file, std::string_view bytes);

/// For the shell: a new name beside this file, with this extension, for what it is converted to.
std::string converted_name(const std::filesystem::path& file, const char* extension);

/// "; to leave \r out: " and the command for the shell that makes such a text of this one. Empty
/// for what cannot be read again, such as a pipe or /dev/stdin.
std::string command_without(const std::string& byte, const std::filesystem::path& text);

/// Is there a byte in text[begin, end) that belongs to no UTF-8 character? One that the end of the
/// range cuts belongs to it.
bool has_other_bytes(std::string_view text, size_t begin, size_t end);

/// A sentence for a text with such bytes, which a tokenizer of bytes learns as they are.
std::string said_of_other_bytes(const std::filesystem::path& file);

/// How many bytes a byte order mark takes at the beginning of a text: 3 or 0.
size_t byte_order_mark(std::string_view text);

}  // namespace ink
