// UTF-8, one code point at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ink::utf8 {

inline constexpr char32_t kInvalid = 0xffffffff;
inline constexpr char32_t kLargest = 0x10ffff;

/// Can UTF-8 encode it? It must be at most U+10FFFF, and no half of a UTF-16 pair.
inline bool is_scalar(char32_t code_point) {
  return code_point <= kLargest && (code_point < 0xd800 || code_point >= 0xe000);
}

/// Does this byte continue a character, so that it cannot begin one?
inline bool continues(char byte) { return (byte & 0xc0) == 0x80; }

/// The code point at text[at] (at < text.size()); moves `at` past it. Returns kInvalid and leaves
/// `at` where it was unless the bytes are well-formed (Unicode 15, table 3-7: no overlong form,
/// surrogate, or value > U+10FFFF).
inline char32_t next(std::string_view text, size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return ++at, lead;
  const size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (length == 0 || text.size() - at < length) return kInvalid;
  char32_t code_point = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!continues(text[at + i])) return kInvalid;
    code_point = code_point << 6 | (text[at + i] & 0x3f);
  }
  const bool overlong = code_point < (length == 3 ? 0x800u : length == 4 ? 0x10000u : 0x80u);
  if (overlong || !is_scalar(code_point)) return kInvalid;
  at += length;
  return code_point;
}

/// The first place from `at` on where a character begins: the end of the character that contains
/// `at`, or `at` itself if it is inside none. Ill-formed bytes are inside none.
inline size_t boundary(std::string_view text, size_t at) {
  for (size_t back = 1; back <= 3 && back <= at; ++back) {
    size_t end = at - back;
    if (continues(text[end])) continue;
    next(text, end);
    return end > at ? end : at;
  }
  return at;
}

/// Appends the UTF-8 form of a code point.
inline void append(std::string& text, char32_t code_point) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3f));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += {static_cast<char>(0xc0 | code_point >> 6), tail(0)};
  } else if (code_point < 0x10000) {
    text += {static_cast<char>(0xe0 | code_point >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xf0 | code_point >> 18), tail(12), tail(6), tail(0)};
  }
}

}  // namespace ink::utf8
