// The files of other programs' tokenizers, each a part of an input:
//
//   %% NAME       the file NAME of the folder: vocab.json, merges.txt, encoder.json, vocab.bpe,
//                 tokenizer.json, tokenizer.model, NAME.tiktoken
//
// The folder and each file alone are refused with an error, or a tokenizer comes back from its own
// JSON, and what it encodes comes back.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/bpe/bpe_tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_files.h"

namespace ink::fuzz {
namespace {

void check_vocabulary(const std::filesystem::path& path, std::string_view input) {
  std::unique_ptr<BpeTokenizer> tokenizer;
  if (error_of(input, [&] { tokenizer = bpe::load_tokenizer(path); })) return;
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

}  // namespace

void check_input(std::string_view input) {
  static const TempFolder folder;
  std::vector<std::filesystem::path> files;
  for (const auto& [name, text] : sections_of(input))
    if (is_name(name)) files.push_back(folder.write(name, text));
  for (const auto& file : files) check_vocabulary(file, input);
  check_vocabulary(folder.path(), input);
  for (const auto& file : files) std::filesystem::remove(file);
}

}  // namespace ink::fuzz
