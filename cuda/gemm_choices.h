// Which of cuBLASLt's algorithms computes which product, found out once and kept in a file: with
// the same file, the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace ink::cuda {

/// A text file: the machine (card and version of the library) in its first line, then a product a
/// line. A file of another machine, or one that is not understood, counts as none; the log says so.
class GemmChoices {
 public:
  /// As cuBLASLt keeps it: words that mean something to one version of it.
  using Algorithm = std::array<uint64_t, 8>;

  /// Reads the file, if it is there.
  GemmChoices(std::filesystem::path file, std::string machine);

  /// product: a description, of one line.
  std::optional<Algorithm> find(const std::string& product) const;
  /// Adds one and writes the file anew.
  void keep(const std::string& product, const Algorithm& algorithm);

 private:
  void read();
  void write() const;

  std::filesystem::path file_;
  std::string machine_;
  std::map<std::string, Algorithm> known_;
};

}  // namespace ink::cuda
