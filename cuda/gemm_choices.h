// Which of cuBLASLt's algorithms computes which product: measured once and kept in a file. The same
// file gives the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace ink::cuda {

/// A text file: its first line has the machine (card and version of the library), each further line
/// a product. A file of another machine, or one that cannot be parsed, is ignored; the log says so.
class GemmChoices {
 public:
  /// An algorithm as cuBLASLt stores it: words that only one version of cuBLASLt understands.
  using Algorithm = std::array<uint64_t, 8>;

  /// Reads the file, if it is there.
  GemmChoices(std::filesystem::path file, std::string machine);

  /// product: a description, of one line.
  std::optional<Algorithm> find(const std::string& product) const;
  /// Adds one and writes the file anew.
  void keep(const std::string& product, const Algorithm& algorithm);

 private:
  void read();

  std::filesystem::path file_;
  std::string machine_;
  std::map<std::string, Algorithm> known_;
};

}  // namespace ink::cuda
