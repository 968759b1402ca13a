// Three of the patterns by hand, for ASCII: several times as fast as PCRE2, which stays the
// definition. Where a piece, or what decides about it, is not ASCII, PCRE2 is asked.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace ink::bpe {

enum class ByHand { none, gpt2, cl100k, qwen2 };

namespace ascii {

enum Class : unsigned char { other, letter, digit, space, line_end, not_ascii };

inline constexpr std::array<Class, 256> kClasses = [] {
  std::array<Class, 256> classes{};
  for (int c = 0; c < 256; ++c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    classes[static_cast<size_t>(c)] = c >= 128                          ? not_ascii
                                      : is_letter                       ? letter
                                      : c >= '0' && c <= '9'            ? digit
                                      : c == '\n' || c == '\r'          ? line_end
                                      : c == ' ' || (c >= 9 && c <= 13) ? space
                                                                        : other;
  }
  return classes;
}();

}  // namespace ascii

/// The end of the piece that begins at text[at]; 0: ask PCRE2. The text goes no further than it is
/// cut.
class AsciiPieces {
 public:
  AsciiPieces(std::string_view text, ByHand pattern)
      : text_(text), folds_(pattern != ByHand::gpt2), digits_(pattern == ByHand::qwen2 ? 1 : 3) {}

  size_t end_of(size_t at) const { return folds_ ? cl100k(at) : gpt2(at); }

 private:
  ascii::Class of(size_t at) const {
    return ascii::kClasses[static_cast<unsigned char>(text_[at])];
  }
  bool is(size_t at, ascii::Class wanted) const { return at < text_.size() && of(at) == wanted; }
  // Behind the characters of a class; 0 if it might go on with one that is not ASCII.
  size_t run(size_t at, ascii::Class wanted) const {
    while (at < text_.size() && of(at) == wanted) ++at;
    return is(at, ascii::not_ascii) ? 0 : at;
  }
  size_t spaces(size_t at) const {
    while (at < text_.size() && (of(at) == ascii::space || of(at) == ascii::line_end)) ++at;
    return is(at, ascii::not_ascii) ? 0 : at;
  }

  // How long 's, 't, 're, 've, 'm, 'll or 'd is; 0: none of them.
  size_t contraction(size_t at) const {
    const auto small = [&](size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return folds_ && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = small(at + 1), second = small(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    const bool is_long = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                         (first == 'l' && second == 'l');
    return is_long ? 3 : 0;
  }

  // \s+(?!\S)|\s+ from `at` to `end`, where no space follows.
  size_t before_last_space(size_t at, size_t end) const {
    return end < text_.size() && end - at > 1 ? end - 1 : end;
  }

  size_t gpt2(size_t at) const {
    if (text_[at] == '\'')
      if (const size_t size = contraction(at); size > 0) return at + size;
    const size_t from = text_[at] == ' ' ? at + 1 : at;
    if (from < text_.size()) {
      const ascii::Class here = of(from);
      if (here == ascii::not_ascii) return 0;
      if (here == ascii::letter || here == ascii::digit || here == ascii::other)
        return run(from, here);
    }
    const size_t end = spaces(at);
    return end == 0 ? 0 : before_last_space(at, end);
  }

  size_t cl100k(size_t at) const {
    using namespace ascii;
    const Class here = of(at);
    if (here == not_ascii || is(at + 1, not_ascii)) return 0;
    if (text_[at] == '\'')
      if (const size_t size = contraction(at); size > 0) return at + size;
    if (here == letter) return run(at, letter);
    if (here == digit) {
      size_t end = at + 1;
      while (end < at + digits_ && is(end, digit)) ++end;
      return end < at + digits_ && is(end, not_ascii) ? 0 : end;
    }
    if (here != line_end && is(at + 1, letter)) return run(at + 1, letter);
    const size_t from = text_[at] == ' ' ? at + 1 : at;
    if (is(from, other)) {
      size_t end = run(from, other);
      while (end > 0 && is(end, line_end)) ++end;
      return end;
    }
    const size_t end = spaces(at);
    if (end == 0) return 0;
    for (size_t last = end; last > at; --last)
      if (of(last - 1) == line_end) return last;
    return before_last_space(at, end);
  }

  std::string_view text_;
  bool folds_;  // contractions in capitals, too
  size_t digits_;
};

}  // namespace ink::bpe
