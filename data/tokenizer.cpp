#include "data/tokenizer.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdio>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"

namespace ink {
namespace {

using nlohmann::json;

// U+00E9: at least four digits, as Unicode writes them.
std::string number(char32_t character) {
  TextStream text;
  text << "U+" << std::hex << std::uppercase << std::setw(4) << std::setfill('0')
       << static_cast<uint32_t>(character);
  return text.str();
}

// 'é' (U+00E9); a control character is shown by its number alone.
std::string describe(char32_t character) {
  if (character < 0x20 || (character >= 0x7f && character < 0xa0)) return number(character);
  std::string text = "'";
  utf8::append(text, character);
  return text + "' (" + number(character) + ")";
}

// Text in any encoding of single bytes or more has few controls but those of lines and pages.
bool is_binary(std::string_view bytes) {
  const auto is_control = [](unsigned char c) {
    return c < '\t' || c == '\v' || (c > '\r' && c < ' ') || c == 0x7f;
  };
  return 50 * std::count_if(bytes.begin(), bytes.end(), is_control) > std::ssize(bytes);
}

[[noreturn]] void fail_invalid_utf8(std::string_view text, size_t at) {
  constexpr size_t kAround = 2048;
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%x", static_cast<unsigned char>(text[at]));
  const bool binary = is_binary(text.substr(at - std::min(at, kAround), 2 * kAround));
  detail::fail({"encode: invalid UTF-8 at byte ", at, " (", static_cast<const char*>(byte),
                binary ? "): expected a text, got what is binary or packed"
                       : "): convert the text to UTF-8 or use the byte tokenizer"});
}

[[noreturn]] void fail_unknown(std::string_view text, size_t at, char32_t character,
                               int64_t vocab_size) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto column = 1 + std::count_if(before.begin() + static_cast<ptrdiff_t>(line_start),
                                        before.end(), std::not_fn(utf8::continues));
  detail::fail({"encode: character ", describe(character), " at line ", line, ", column ", column,
                " is not in the vocabulary of ", vocab_size, " characters",
                character == '\r'
                    ? "; Python leaves it out of a text's lines, and so does tr -d '\\r'"
                : text.substr(at, 2) == "\\n" ? "; in a shell, the end of a line is $'\\n'"
                                              : ""});
}

void check_id(int64_t id, int64_t vocab_size) {
  INK_CHECK(id >= 0 && id < vocab_size, "decode: id ", id, " is outside the vocabulary of ",
            vocab_size);
}

}  // namespace

std::vector<int64_t> Tokenizer::encode_part(std::string_view text, size_t begin, size_t) const {
  return begin == 0 ? encode(text) : std::vector<int64_t>();
}

std::vector<int64_t> ByteTokenizer::encode_part(std::string_view text, size_t begin,
                                                size_t end) const {
  return encode(text.substr(begin, end - begin));
}

std::vector<int64_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(),
                 [](char byte) { return static_cast<unsigned char>(byte); });
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int64_t id : ids) {
    check_id(id, vocab_size());
    text += static_cast<char>(id);
  }
  return text;
}

std::string ByteTokenizer::to_json() const { return json{{"tokenizer", "byte"}}.dump(); }

CharTokenizer::CharTokenizer(std::vector<char32_t> characters)
    : characters_(std::move(characters)) {
  std::sort(characters_.begin(), characters_.end());
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
  INK_CHECK(!characters_.empty(), "char tokenizer: expected at least one character, got none");
  for (const char32_t character : characters_) {
    INK_CHECK(utf8::is_scalar(character), "char tokenizer: expected a code point, got ",
              number(character));
  }
  // One entry per code point up to the largest (at most 4.5 MB): encoding is a load per character.
  ids_.assign(characters_.back() + size_t{1}, -1);
  for (size_t id = 0; id < characters_.size(); ++id)
    ids_[characters_[id]] = static_cast<int32_t>(id);
}

std::vector<int64_t> CharTokenizer::encode(std::string_view text) const {
  return encode_part(text, 0, text.size());
}

std::vector<int64_t> CharTokenizer::encode_part(std::string_view text, size_t begin,
                                                size_t end) const {
  std::vector<int64_t> ids;
  ids.reserve(end - begin);
  for (size_t at = utf8::boundary(text, begin); at < end;) {
    const size_t start = at;
    const char32_t character = utf8::next(text, at);
    if (character == utf8::kInvalid) fail_invalid_utf8(text, start);
    const int32_t id = character < ids_.size() ? ids_[character] : -1;
    if (id < 0) fail_unknown(text, start, character, vocab_size());
    ids.push_back(id);
  }
  return ids;
}

std::string CharTokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int64_t id : ids) {
    check_id(id, vocab_size());
    utf8::append(text, characters_[static_cast<size_t>(id)]);
  }
  return text;
}

// {"characters": "\n !abc", "tokenizer": "char"}: a character's position in the string is its id.
std::string CharTokenizer::to_json() const {
  std::string characters;
  for (const char32_t character : characters_) utf8::append(characters, character);
  return json{{"tokenizer", "char"}, {"characters", characters}}.dump();
}

// ---- IdTokenizer

std::vector<int64_t> IdTokenizer::encode(std::string_view text) const {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::vector<int64_t> ids;
  for (size_t at = 0; (at = text.find_first_not_of(kSpaces, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    const std::string word(text.substr(at, end - at));
    const bool is_number =
        word.size() < 10 && word.find_first_not_of("0123456789") == std::string::npos;
    const int64_t id = is_number ? std::stoll(word) : -1;
    INK_CHECK(id >= 0 && id < vocab_size_, "encode: expected ids below ", vocab_size_,
              " with spaces between, because these data are ids without a vocabulary, got '",
              printable(word, 60), "'");
    ids.push_back(id);
    at = end;
  }
  return ids;
}

std::string IdTokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    check_id(id, vocab_size_);
    text.append(" ").append(std::to_string(id));
  }
  return text;
}

std::string IdTokenizer::to_json() const {
  return json{{"tokenizer", name()}, {"vocab_size", vocab_size_}}.dump();
}

std::string token_text(const Tokenizer& tokenizer, int64_t id) {
  const std::string bytes = tokenizer.decode({&id, 1});
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const bool is_valid = utf8::next(bytes, at) != utf8::kInvalid;
    if (!is_valid) at = begin + 1;
    const std::string piece = bytes.substr(begin, at - begin);
    text += is_valid ? piece : printable(piece);
  }
  return text;
}

std::vector<char32_t> distinct_characters(std::string_view text) {
  return distinct_characters(text, 0, text.size());
}

std::vector<char32_t> distinct_characters(std::string_view text, size_t begin, size_t end) {
  // A bit for each of Unicode's 1.1 million code points, in blocks: only those that the text uses
  // are there, so that a short text takes little time.
  constexpr size_t kBlock = 1024;
  using Block = std::bitset<kBlock>;
  std::array<std::unique_ptr<Block>, utf8::kLargest / kBlock + 1> seen;
  for (size_t at = utf8::boundary(text, begin); at < end;) {
    const char32_t character = utf8::next(text, at);
    if (character == utf8::kInvalid) fail_invalid_utf8(text, at);
    auto& block = seen[character / kBlock];
    if (!block) block = std::make_unique<Block>();
    (*block)[character % kBlock] = true;
  }
  std::vector<char32_t> characters;
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t bit = 0; seen[i] && bit < kBlock; ++bit) {
      if (seen[i]->test(bit)) characters.push_back(static_cast<char32_t>(i * kBlock + bit));
    }
  }
  return characters;
}

std::unique_ptr<CharTokenizer> CharTokenizer::of_saved(std::string_view text) {
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = utf8::next(text, at);
    INK_CHECK(characters.empty() || characters.back() < character,
              "tokenizer: expected \"characters\" in the order of their code points, got ",
              describe(character), " after ", describe(characters.back()));
    characters.push_back(character);
  }
  INK_CHECK(!characters.empty(),
            "tokenizer: expected at least one of \"characters\", got an empty string");
  return std::make_unique<CharTokenizer>(std::move(characters));
}

}  // namespace ink
