// Inputs made from others: bytes, numbers, words, and the values of JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ink::fuzz {

/// Changes texts. The same seed makes the same changes.
class Mutator {
 public:
  /// `seeds` are what parts of other inputs are taken from, `words` what is put in as it is; either
  /// may be empty.
  Mutator(const std::vector<std::string>& seeds, const std::vector<std::string>& words,
          uint64_t seed)
      : seeds_(seeds), words_(words), seed_(seed) {}

  /// One of the seeds, changed in one place or in several.
  std::string next();
  /// Changes a text in one place.
  void change(std::string& text);

 private:
  size_t below(size_t count);
  template <class List>
  const auto& one_of(const List& list) {
    return list[below(list.size())];
  }
  std::string_view piece_of(std::string_view text);
  void change_bytes(std::string& text);
  void change_blocks(std::string& text);
  void change_words(std::string& text);
  void change_lines(std::string& text);
  void change_json(std::string& text);
  std::string json_value();

  const std::vector<std::string>&seeds_, &words_;
  uint64_t seed_, drawn_ = 0;
};

/// The words of a dictionary of libFuzzer: lines such as name="\x00word".
std::vector<std::string> read_words(std::string_view dictionary);

}  // namespace ink::fuzz
