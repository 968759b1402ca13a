// Files read whole or mapped into memory. Errors start with the file's name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "autograd/base/check.h"

namespace ink {

/// Is there anything of this name? A regular file, or a link to one? A folder? What cannot be
/// looked at is not there.
bool has_path(const std::filesystem::path& name);
bool has_file(const std::filesystem::path& name);
bool has_folder(const std::filesystem::path& name);
/// Can it be read only once, as a pipe, or is it another in each process, as /dev/stdin? What a
/// shell calls /dev/fd/63 is told by its name, because the pipe may be gone.
bool is_read_once(const std::filesystem::path& name);

/// The bytes of a file. Throws if it is missing, unreadable, empty, a directory or a device.
std::string read_file(const std::filesystem::path& file);

/// The text of a file, without a byte order mark. Throws as `read_file` does, and on a well-known
/// format that is no UTF-8 text (formats.h).
std::string read_text(const std::filesystem::path& file);

/// Calls f(line) for each line of a text, without its end.
template <class F>
void for_each_line(std::string_view text, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    f(std::string(text.substr(at, end - at)));
    at = end + 1;
  }
}

/// A regular file mapped read-only for as long as this lives. Throws as `read_file` does. Movable;
/// a view of its bytes stays valid when it is moved.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Aligned to a page. Reading them ends the program (SIGBUS) if the file has been cut short.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  friend class TextFile;
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

/// Locks an open file or folder for this process alone, without waiting. Returns 0, or errno: it is
/// EWOULDBLOCK where another process holds it. Where its file system has no locks, it goes on
/// without, and a message says so.
int lock_alone(int opened, const std::filesystem::path& file);

/// Says that bytes [begin, end) of a part of a mapped file have been read. Their memory is given
/// back, and is filled from the file again if they are read once more.
void release_mapped(std::span<const std::byte> mapped, size_t begin, size_t end);

/// The text of a file for as long as this lives. A file that can be mapped is mapped; any other,
/// such as a pipe, is read whole. Throws as `read_text` does. Movable; views of it do not stay
/// valid.
class TextFile {
 public:
  TextFile() = default;
  explicit TextFile(const std::filesystem::path& file);

  /// Without a byte order mark.
  std::string_view view() const;

  /// Says that text[begin, end) has been read (release_mapped).
  void release(size_t begin, size_t end) const;

 private:
  MappedFile mapped_;
  std::string read_;
};

/// Calls f(rest, line) for each line of a text file, whose memory is given back on the way; `rest`
/// is the text from the line's beginning.
template <class F>
void for_each_line_of(const TextFile& text, F&& f) {
  constexpr size_t kPiece = size_t{8} << 20;
  size_t at = 0, released = 0;
  for_each_line(text.view(), [&](const std::string& line) {
    f(text.view().substr(at), line);
    at = std::min(at + line.size() + 1, text.view().size());
    if (at - released < kPiece) return;
    text.release(released, at);
    released = at;
  });
}

}  // namespace ink
