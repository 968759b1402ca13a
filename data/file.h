// Files read whole or mapped into memory. Errors start with the file's name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "autograd/base/check.h"

namespace ink {

/// The bytes of a file. Throws where it is missing, unreadable, a directory or empty.
std::string read_file(const std::filesystem::path& file);

/// A regular file mapped read-only for as long as this lives. Throws as `read_file` does. Movable;
/// a view of its bytes stays valid when it is moved.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Aligned to a page.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace ink
