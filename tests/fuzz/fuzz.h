// What the fuzz targets share: an input as a file, and what must hold of errors and their texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "autograd/base/check.h"

/// libFuzzer's name for check_input.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace ink::fuzz {

/// What every target defines: parses the input, and ends the program where something must not be.
void check_input(std::string_view input);

/// Ends the program with this text. libFuzzer or driver.cpp then keeps the input.
[[noreturn]] void found(const std::string& what);

inline void expect(bool holds, const std::string& what) {
  if (!holds) found(what);
}

/// The length of the well-formed UTF-8 sequence at text[at]; 0 where there is none. It is a second
/// reading of Unicode's table 3-7, beside autograd/io/utf8.h.
size_t utf8_length(std::string_view text, size_t at);

/// May the text hold line ends?
enum class Lines { one, many };

/// Ends the program unless the text is short, fit for a terminal, and in our own words. `input` is
/// what it may quote.
void check_text(std::string_view text, std::string_view input, Lines lines = Lines::one);

/// What f() says when it throws an Error, checked; nothing when it does not throw. Whatever else f
/// throws ends the program.
template <class F>
std::optional<std::string> error_of(std::string_view input, F&& f, Lines lines = Lines::one) {
  try {
    f();
    return {};
  } catch (const Error& error) {
    check_text(error.what(), input, lines);
    return error.what();
  }
}

inline std::string_view view_of(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

/// The parts of an input that has several: what follows each line "%% NAME", by its name, and what
/// comes before the first of them, by "".
std::map<std::string, std::string> sections_of(std::string_view input);

/// A number that depends on the bytes alone.
uint64_t hash_of(std::string_view bytes);

/// Bytes in memory that have a path.
class File {
 public:
  File();
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Replaces what the file holds.
  void write(std::string_view bytes);

 private:
  int fd_;
  std::filesystem::path path_;
};

/// Writes a file anew, without waiting for a disk.
void write_file(const std::filesystem::path& file, std::string_view bytes);

}  // namespace ink::fuzz
