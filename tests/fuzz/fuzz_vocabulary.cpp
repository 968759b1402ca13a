// The files of other programs' tokenizers, each a part of an input:
//
//   %% NAME       the file NAME of the folder: vocab.json, merges.txt, encoder.json, vocab.bpe,
//                 tokenizer.json, tokenizer.model, NAME.tiktoken
//
// The folder and each file alone are refused with an error, or a tokenizer comes back from its own
// JSON, and what it encodes comes back. A vocabulary of many tokens takes milliseconds, and an id
// of six digits makes one: one in 64 of such inputs is loaded, and one in 16 of those above 20,000
// tokens goes on.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/bpe/bpe_tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_files.h"

namespace ink::fuzz {
namespace {

bool is_one_in(size_t n, std::string_view input) {
  return std::hash<std::string_view>{}(input) % n == 0;
}

void check_vocabulary(const std::filesystem::path& path, std::string_view input) {
  std::unique_ptr<BpeTokenizer> tokenizer;
  if (error_of(input, [&] { tokenizer = bpe::load_tokenizer(path); })) return;
  if (tokenizer->vocab_size() > 20'000 && !is_one_in(16, input)) return;
  const std::string json = tokenizer->to_json();
  const auto again = bpe::parse_tokenizer(json);
  expect(again->to_json() == json, "another tokenizer comes back");
  expect(again->same_ids(*tokenizer), "other ids after it came back");
  const std::string_view text = input.substr(0, 200);
  std::vector<int64_t> ids;
  if (error_of(input, [&] { ids = tokenizer->encode(text); })) return;
  expect(tokenizer->decode(ids) == text || json.find("\"NFC\"") != std::string::npos,
         "another text comes back");
  expect(again->encode(text) == ids, "other ids from what was written");
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() < 40 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
  }) && name[0] != '.';
}

bool has_large_id(std::string_view input) {
  size_t digits = 0;
  for (const char c : input) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (digits == 6 || digits == 7)) return true;
    digits = is_digit ? digits + 1 : 0;
  }
  return digits == 6 || digits == 7;
}

}  // namespace

void check_input(std::string_view input) {
  if (has_large_id(input) && !is_one_in(64, input)) return;
  static const TempFolder folder;
  std::vector<std::filesystem::path> files;
  for (const auto& [name, text] : sections_of(input))
    if (is_name(name)) files.push_back(folder.write(name, text));
  for (const auto& file : files) check_vocabulary(file, input);
  check_vocabulary(folder.path(), input);
  for (const auto& file : files) std::filesystem::remove(file);
}

}  // namespace ink::fuzz
