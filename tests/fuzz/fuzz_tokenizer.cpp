// Files of tokenizers: what is taken comes back from its own JSON, and reads what it writes. A
// tokenizer.json is among them.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace ink::fuzz {
namespace {

// The file's own text, as far as the vocabulary goes: it comes back, whole and in parts.
void check_pairs(const Tokenizer& tokenizer, std::string_view input) {
  const std::string_view text = input.substr(0, 300);
  std::vector<int64_t> ids, parts;
  const auto lacking = error_of(input, [&] { ids = tokenizer.encode(text); });
  if (lacking) return;
  for (size_t begin = 0; begin < text.size(); begin += 13) {
    const auto part = tokenizer.encode_part(text, begin, std::min(begin + 13, text.size()));
    parts.insert(parts.end(), part.begin(), part.end());
  }
  expect(parts == ids, "other ids in parts");
  const bool composes = tokenizer.to_json().find("\"NFC\"") != std::string::npos;
  expect(composes || tokenizer.decode(ids) == text, "another text comes back");
}

void check_tokenizer(const Tokenizer& tokenizer, std::string_view input) {
  const std::string json = tokenizer.to_json();
  expect(parse_tokenizer(json)->to_json() == json, "another tokenizer comes back");
  for (const int64_t id : {int64_t{-1}, tokenizer.vocab_size(), INT64_MAX, INT64_MIN})
    expect(error_of(input,
                    [&] {
                      static_cast<void>(tokenizer.decode({&id, 1}));
                    })
               .has_value(),
           "an id outside the vocabulary");
  if (!tokenizer.has_text()) return;
  if (tokenizer.name() == "bpe") return check_pairs(tokenizer, input);
  std::vector<int64_t> ids(static_cast<size_t>(tokenizer.vocab_size()));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  const std::string all = tokenizer.decode(ids);
  expect(tokenizer.encode(all) == ids, "other ids come back");
  const auto object = nlohmann::json::parse(input);
  expect(object.at("tokenizer") == tokenizer.name(), "a tokenizer of another kind");
  if (tokenizer.name() == "char")
    expect(object.at("characters") == all, "other characters than in the file");
}

}  // namespace

void check_input(std::string_view input) {
  static File file;
  file.write(input);
  const bool has_mark = input.substr(0, 3) == "\xef\xbb\xbf";  // which a file's text is without
  if (has_mark) input.remove_prefix(3);
  std::unique_ptr<Tokenizer> tokenizer, of_file;
  const auto error = error_of(input, [&] { tokenizer = parse_tokenizer(input); });
  const auto file_error = error_of(input, [&] { of_file = load_tokenizer(file.path()); });
  expect(error.has_value() == file_error.has_value(), "a file is read as something else");
  if (!tokenizer) {
    const bool is_known = file_error->find(": expected UTF-8 text, got ") != std::string::npos;
    if (!input.empty() && !has_mark && !is_known)
      expect(*file_error == file.path().string() + ": " + *error, *file_error);
    return;
  }
  expect(of_file->to_json() == tokenizer->to_json(), "a file is read as something else");
  check_tokenizer(*tokenizer, input);
}

}  // namespace ink::fuzz
