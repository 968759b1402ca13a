#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "data/splitmix.h"

namespace ink::fuzz {
namespace {

constexpr std::array<uint64_t, 16> kNumbers = {0,
                                               1,
                                               2,
                                               0x7f,
                                               0x80,
                                               0xff,
                                               0x7fff,
                                               0x8000,
                                               0xffff,
                                               0x10ffff,
                                               0x7fffffff,
                                               0x80000000,
                                               0xffffffff,
                                               0x7fffffffffffffff,
                                               0x8000000000000000,
                                               0xffffffffffffffff};

constexpr std::array kValues = {"0",
                                "-0",
                                "1",
                                "-1",
                                "2",
                                "8",
                                "255",
                                "256",
                                "65536",
                                "1000000000",
                                "1000000001",
                                "2147483648",
                                "4294967296",
                                "9007199254740993",
                                "9223372036854775807",
                                "9223372036854775808",
                                "-9223372036854775808",
                                "-9223372036854775809",
                                "18446744073709551615",
                                "18446744073709551616",
                                "0.5",
                                "-0.0",
                                "1e5",
                                "1e308",
                                "1e309",
                                "5e-324",
                                "1e-400",
                                "true",
                                "false",
                                "null",
                                "\"\"",
                                "\"a\"",
                                "\"\\u0000\"",
                                "\"\\ud800\"",
                                "\"\\ud83d\\ude00\"",
                                "\"\\u001b[2J\\n\"",
                                "[]",
                                "{}",
                                "[[[[]]]]",
                                "{\"hex\":\"63e9\"}"};

// The end of the JSON value at text[at]; `at` itself where none begins there.
size_t end_of_value(std::string_view text, size_t at) {
  const char first = text[at];
  if (first == '"') {
    for (size_t i = at + 1; i < text.size(); ++i) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == '"') {
        return i + 1;
      }
    }
    return text.size();
  }
  if (first == '[' || first == '{') {
    size_t open = 0;
    for (size_t i = at; i < text.size(); ++i) {
      open += text[i] == '[' || text[i] == '{';
      open -= text[i] == ']' || text[i] == '}';
      if (open == 0) return i + 1;
    }
    return text.size();
  }
  const size_t end = text.find_first_not_of("0123456789+-.eE", at);
  if (end != at) return std::min(end, text.size());
  for (const std::string_view word : {"true", "false", "null"})
    if (text.substr(at, word.size()) == word) return at + word.size();
  return at;
}

// The first JSON value at `at` or later: where it begins and ends.
std::pair<size_t, size_t> value_from(std::string_view text, size_t at) {
  for (; at < text.size(); ++at)
    if (const size_t end = end_of_value(text, at); end > at) return {at, end};
  return {text.size(), text.size()};
}

}  // namespace

size_t Mutator::below(size_t count) {
  const uint64_t bits = splitmix::mix(seed_ + ++drawn_ * splitmix::kGamma);
  return count == 0 ? 0 : static_cast<size_t>(bits % count);
}

std::string_view Mutator::piece_of(std::string_view text) {
  const size_t begin = below(text.size() + 1);
  const size_t longest = text.size() - begin;
  return text.substr(begin, below(below(4) == 0 ? longest + 1 : std::min<size_t>(longest, 16) + 1));
}

std::string Mutator::next() {
  std::string text = seeds_.empty() ? "" : one_of(seeds_);
  const size_t changes = size_t{1} << below(4);
  for (size_t i = 0; i < changes; ++i) change(text);
  return text;
}

void Mutator::change(std::string& text) {
  constexpr size_t kLongest = size_t{1} << 16;
  switch (below(6)) {
    case 0:
      change_bytes(text);
      break;
    case 1:
      change_blocks(text);
      break;
    case 2:
      change_words(text);
      break;
    case 3:
      change_lines(text);
      break;
    default:
      change_json(text);
  }
  if (text.size() > kLongest) text.resize(kLongest);
}

void Mutator::change_bytes(std::string& text) {
  if (text.empty()) return;
  char& byte = text[below(text.size())];
  switch (below(4)) {
    case 0:
      byte = static_cast<char>(byte ^ 1 << below(8));
      break;
    case 1:
      byte = static_cast<char>(below(256));
      break;
    case 2:
      byte = static_cast<char>(byte + static_cast<char>(below(17)) - 8);
      break;
    default: {  // a number in 1, 2, 4 or 8 bytes
      const uint64_t number = one_of(kNumbers);
      const size_t width = std::min(text.size(), size_t{1} << below(4));
      std::memcpy(text.data() + below(text.size() - width + 1), &number, width);
    }
  }
}

void Mutator::change_blocks(std::string& text) {
  const std::string piece(piece_of(text));
  const std::string other(seeds_.empty() ? text : one_of(seeds_));
  const size_t at = below(text.size() + 1);
  switch (below(5)) {
    case 0:
      text.erase(at, piece.size());
      break;
    case 1:
      text.insert(at, piece);
      break;
    case 2:
      text.insert(at, piece_of(other));
      break;
    case 3:  // the beginning of one and the end of another
      text = text.substr(0, at) + other.substr(below(other.size() + 1));
      break;
    default:
      text.resize(at);
  }
}

void Mutator::change_words(std::string& text) {
  const size_t at = below(text.size() + 1);
  const bool known = !words_.empty() && below(4) > 0;
  const std::string word = known ? one_of(words_) : std::string(one_of(kValues));
  if (below(2) == 0) {
    text.insert(at, word);
    return;
  }
  const size_t begin = std::min(text.find_first_of("0123456789-", at), text.size());
  const size_t end = text.find_first_not_of("0123456789+-.eE", begin);
  text.replace(begin, std::min(end, text.size()) - begin, word);
}

void Mutator::change_lines(std::string& text) {
  const auto line_at = [&](size_t at) {
    const size_t begin = text.rfind('\n', at) + 1;  // npos + 1 is 0
    return std::pair(begin, std::min(text.find('\n', begin), text.size() - 1) + 1);
  };
  if (text.empty()) return;
  const auto [begin, end] = line_at(below(text.size()));
  const std::string line = text.substr(begin, end - begin);
  if (below(2) == 0) text.erase(begin, line.size());
  if (below(2) == 0 && !text.empty()) text.insert(line_at(below(text.size())).first, line);
}

std::string Mutator::json_value() {
  if (seeds_.empty() || below(2) == 0) return one_of(kValues);
  const std::string& other = one_of(seeds_);
  const auto [begin, end] = value_from(other, below(other.size() + 1));
  return other.substr(begin, end - begin);
}

void Mutator::change_json(std::string& text) {
  const auto [begin, end] = value_from(text, below(text.size() + 1));
  const std::string value = text.substr(begin, end - begin);
  switch (below(5)) {
    case 0:  // twice
      text.insert(end, "," + value);
      break;
    case 1:  // deeper
      text.replace(begin, value.size(), "[" + value + "]");
      break;
    default:
      text.replace(begin, value.size(), json_value());
  }
}

std::vector<std::string> read_words(std::string_view dictionary) {
  std::vector<std::string> words;
  for (size_t at = 0; at < dictionary.size();) {
    const size_t end = std::min(dictionary.find('\n', at), dictionary.size());
    const std::string_view line = dictionary.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find('"'), last = line.rfind('"');
    if (line.empty() || line[0] == '#' || first == last) continue;
    std::string word;
    for (size_t i = first + 1; i < last; ++i) {
      if (line[i] != '\\') {
        word += line[i];
      } else if (line[++i] == 'x' && i + 2 < last) {
        word += static_cast<char>(std::stoi(std::string(line.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else {
        word += line[i];
      }
    }
    words.push_back(word);
  }
  return words;
}

}  // namespace ink::fuzz
