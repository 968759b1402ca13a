// The regular expressions of tokenizers, as PCRE2 is told them.
#pragma once

#include <string>
#include <string_view>

namespace ink::bpe {

[[noreturn]] void refuse_pattern(std::string_view what, std::string_view regex);

/// Is PCRE2's Unicode newer than that of tokenizers? Throws if it is older than 14.
bool has_newer_unicode();

/// A regular expression in Ruby's syntax (tokenizers run Oniguruma), with the classes of characters
/// of Unicode 16. `spells_out`: they are lists of code points, because PCRE2's hold others, too.
/// Throws on what PCRE2 and Oniguruma may read differently: only what is known to be the same
/// passes.
std::string for_pcre2(std::string_view regex, bool spells_out);

/// Is it assigned in Unicode 16?
bool is_assigned(char32_t character);

}  // namespace ink::bpe
