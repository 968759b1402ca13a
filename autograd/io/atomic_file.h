// AtomicFile: a file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "autograd/base/check.h"

namespace ink {

/// Writes beside the target, under its name with ".tmp" appended; commit() makes the bytes durable
/// (fsync) and renames the file to its name. Without commit() the target stays what it was. Errors
/// start with the file's name. Anything but a regular file (a pipe, /dev/null) is written in place,
/// and so is what is open (/dev/stdout, /dev/stderr, /dev/fd/N). If the target is a symbolic link
/// to a file, that file is replaced; a link to nothing is replaced itself.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, size_t count);
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty: the target is written in its place
  int fd_ = -1;
};

/// The same for a file of these bytes.
inline void write_file(const std::filesystem::path& target, std::string_view bytes) {
  AtomicFile file(target);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

/// Makes the names in a folder durable, so that files created or renamed in it survive a power cut.
void sync_folder(const std::filesystem::path& folder);

/// Returns f(), which calls the standard library's functions for files. f runs again if a signal
/// interrupted it, and other exceptions of these functions become ink::Error.
template <class F>
auto file_operation(F&& f) {
  for (;;) {
    try {
      return f();
    } catch (const std::filesystem::filesystem_error& error) {
      if (error.code() != std::errc::interrupted)
        throw Error(error.path1().string() + ": " + error.code().message());
    }
  }
}

}  // namespace ink
