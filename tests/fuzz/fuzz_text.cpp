// Text into ids: in pieces as whole, from a file as from memory, and back. What UTF-8 is is read
// from Unicode's table once more (fuzz.h).
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/splitmix.h"
#include "data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace ink::fuzz {
namespace {

using Ids = std::vector<int64_t>;

// Calls use(begin, end) for parts of a text, most of them short, until one throws.
template <class Use>
void in_pieces(std::string_view text, uint64_t seed, Use&& use) {
  for (size_t begin = 0; begin < text.size();) {
    seed = splitmix::mix(seed + splitmix::kGamma);
    const size_t length = seed % 4 > 0 ? seed / 4 % 7 : seed / 4 % (text.size() + 1);
    const size_t end = std::min(text.size(), begin + length);
    use(begin, end);
    begin = end;
  }
}

// The characters, if all are well-formed.
std::vector<std::string> characters_of(std::string_view text, size_t& invalid_at) {
  std::vector<std::string> characters;
  for (invalid_at = 0; invalid_at < text.size();) {
    const size_t length = utf8_length(text, invalid_at);
    if (length == 0) break;
    characters.emplace_back(text.substr(invalid_at, length));
    invalid_at += length;
  }
  return characters;
}

void check_pieces(const Tokenizer& tokenizer, std::string_view text) {
  Ids whole, joined;
  const auto error = error_of(text, [&] { whole = tokenizer.encode(text); });
  const auto of_pieces = error_of(text, [&] {
    in_pieces(text, hash_of(text), [&](size_t begin, size_t end) {
      const Ids part = tokenizer.encode_part(text, begin, end);
      joined.insert(joined.end(), part.begin(), part.end());
    });
  });
  expect(error == of_pieces,
         "another error in pieces: " + error.value_or("none") + ", " + of_pieces.value_or("none"));
  if (error) return;
  expect(joined == whole, "other ids in pieces");
  expect(tokenizer.decode(whole) == text, "another text comes back");
  std::string streamed;
  for (const int64_t& id : whole) streamed += tokenizer.decode({&id, 1});
  expect(streamed == text, "another text comes back, one id at a time");
}

// Of the dataset: every token of the validation part, which is all there is.
Ids ids_of(const Dataset& dataset) {
  const int64_t windows = dataset.val_windows(1);
  const Batch batch = dataset.val_window_batch(0, windows, 1);
  Ids ids = batch.x;
  ids.push_back(batch.y.back());
  return ids;
}

void check_dataset(std::string_view text, const std::shared_ptr<const Tokenizer>& tokenizer) {
  static File file;
  file.write(text);
  const std::string_view body = text.substr(text.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0);
  Ids whole, ids;
  const auto error = error_of(text, [&] {
    whole =
        tokenizer ? tokenizer->encode(body) : CharTokenizer(distinct_characters(body)).encode(body);
  });
  const auto of_file = error_of(text, [&] {
    const TextDataset dataset({file.path()}, tokenizer, 1);
    if (whole.size() > 1) ids = ids_of(dataset);
  });
  if (body.empty()) {
    expect(of_file.has_value(), "an empty file is taken");
    return;
  }
  if (of_file && of_file->find(": expected UTF-8 text, got ") != std::string::npos) return;
  expect(error.has_value() == of_file.has_value(), of_file.value_or(error.value_or("none")));
  if (error) expect(*of_file == file.path().string() + ": " + *error, *of_file);
  if (whole.size() > 1) expect(ids == whole, "other ids of a file");
}

void check_characters(std::string_view text) {
  size_t invalid_at = 0;
  const auto characters = characters_of(text, invalid_at);
  std::vector<char32_t> found;
  const auto error = error_of(text, [&] { found = distinct_characters(text); });
  expect(error.has_value() == (invalid_at < text.size()), error.value_or("no UTF-8"));
  if (error) {
    const std::string place = "at byte " + std::to_string(invalid_at) + " ";
    expect(error->find(place) != std::string::npos, *error);
    return;
  }
  expect(found.size() == std::set(characters.begin(), characters.end()).size(),
         "other characters than there are");
  std::set<char32_t> joined;
  in_pieces(text, hash_of(text), [&](size_t begin, size_t end) {
    const auto part = distinct_characters(text, begin, end);
    joined.insert(part.begin(), part.end());
  });
  expect(std::vector<char32_t>(joined.begin(), joined.end()) == found, "others in pieces");
  if (found.empty()) return;
  const CharTokenizer tokenizer(found);
  expect(tokenizer.encode(text).size() == characters.size(), "another number of characters");
  check_pieces(tokenizer, text);
}

}  // namespace

void check_input(std::string_view text) {
  static const auto few = std::make_shared<CharTokenizer>(distinct_characters("\n abcé€😀"));
  check_characters(text);
  check_pieces(*few, text);
  check_pieces(ByteTokenizer(), text);
  check_dataset(text, hash_of(text) % 2 == 0 ? few : nullptr);
  if (hash_of(text) % 256 > 0 || text.empty()) return;
  std::string longer;  // than the parts of 64 KB in which a dataset reads
  while (longer.size() <= size_t{80} << 10) longer.append(text);
  check_dataset(longer, nullptr);
  check_dataset(longer, few);
}

}  // namespace ink::fuzz
