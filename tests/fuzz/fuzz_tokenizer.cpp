// Files of tokenizers: what is taken comes back from its own JSON, and reads what it writes.
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace ink::fuzz {
namespace {

void check_tokenizer(const Tokenizer& tokenizer, std::string_view input) {
  const std::string json = tokenizer.to_json();
  expect(parse_tokenizer(json)->to_json() == json, "another tokenizer comes back");
  std::vector<int64_t> ids(static_cast<size_t>(tokenizer.vocab_size()));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  const std::string all = tokenizer.decode(ids);
  expect(tokenizer.encode(all) == ids, "other ids come back");
  const auto object = nlohmann::json::parse(input);
  expect(object.at("tokenizer") == tokenizer.name(), "a tokenizer of another kind");
  if (tokenizer.name() == "char")
    expect(object.at("characters") == all, "other characters than in the file");
  for (const int64_t id : {int64_t{-1}, tokenizer.vocab_size(), INT64_MAX, INT64_MIN})
    expect(error_of(input,
                    [&] {
                      static_cast<void>(tokenizer.decode({&id, 1}));
                    })
               .has_value(),
           "an id outside the vocabulary");
}

}  // namespace

void check_input(std::string_view input) {
  static File file;
  file.write(input);
  std::unique_ptr<Tokenizer> tokenizer, of_file;
  const auto error = error_of(input, [&] { tokenizer = parse_tokenizer(input); });
  const auto file_error = error_of(input, [&] { of_file = load_tokenizer(file.path()); });
  expect(error.has_value() == file_error.has_value(), "a file is read as something else");
  if (!tokenizer) {
    const bool has_mark = input.substr(0, 3) == "\xef\xbb\xbf",  // which a file's text is without
        is_known = file_error->find(": expected UTF-8 text, got ") != std::string::npos;
    if (!input.empty() && !has_mark && !is_known)
      expect(*file_error == file.path().string() + ": " + *error, *file_error);
    return;
  }
  expect(of_file->to_json() == tokenizer->to_json(), "a file is read as something else");
  check_tokenizer(*tokenizer, input);
}

}  // namespace ink::fuzz
