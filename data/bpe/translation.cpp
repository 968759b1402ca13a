#include "data/bpe/translation.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/bpe/unicode.h"

namespace ink::bpe {
namespace {

constexpr char32_t kCodePoints = 0x110000;

// What PCRE2 may lack of a class; null if nobody has compared it.
const std::string_view* additions_to(std::string_view name) {
  static constexpr std::string_view kNone;
  if (std::find(std::begin(kUnchanged), std::end(kUnchanged), name) != std::end(kUnchanged))
    return &kNone;
  const auto* found = std::find_if(std::begin(kAdditions), std::end(kAdditions),
                                   [&](const Addition& each) { return each.name == name; });
  return found == std::end(kAdditions) ? nullptr : &found->ranges;
}

// Those of PCRE2's class that are assigned in Unicode 16, as ranges for brackets.
std::string spelled_out(std::string_view name) {
  const std::string regex = detail::joined({"\\p{", name, "}"});
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &at, nullptr);
  INK_CHECK(code != nullptr, "tokenizer: PCRE2 does not know ", regex);
  pcre2_match_data* match = pcre2_match_data_create_from_pattern(code, nullptr);
  const auto holds = [&](char32_t c) {
    if ((c >= 0xd800 && c < 0xe000) || !is_assigned(c)) return false;
    std::string text;
    utf8::append(text, c);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                       PCRE2_NO_UTF_CHECK, match, nullptr) > 0;
  };
  TextStream ranges;
  ranges << std::hex;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (!holds(c)) continue;
    const char32_t first = c;
    while (c + 1 < kCodePoints && holds(c + 1)) ++c;
    ranges << "\\x{" << static_cast<uint32_t>(first) << "}";
    if (c > first) ranges << "-\\x{" << static_cast<uint32_t>(c) << "}";
  }
  pcre2_match_data_free(match);
  pcre2_code_free(code);
  return ranges.str();
}

class Translation {
 public:
  Translation(std::string_view regex, bool spells_out) : regex_(regex), spells_out_(spells_out) {}

  std::string result() {
    while (at_ < regex_.size()) {
      const char c = regex_[at_];
      if (c == '\\') {
        escape();
      } else if (in_brackets_) {
        within_brackets(c);
      } else if (c == '[') {
        in_brackets_ = true;
        keep(regex_.substr(at_, 2) == "[^" ? 2 : 1);
        if (at_ < regex_.size() && regex_[at_] == ']') keep(1);  // a first ] is a character
      } else {
        if (c == '(') check_group();
        if (c == '{') check_braces();
        keep(1);
      }
    }
    return std::move(out_);
  }

 private:
  void keep(size_t count) {
    out_ += regex_.substr(at_, count);
    at_ += std::min(count, regex_.size() - at_);
  }

  void within_brackets(char c) {
    if (regex_.substr(at_, 2) == "&&") refuse_pattern("&& within brackets", regex_);
    if (c == '[') refuse_pattern("[ within brackets", regex_);
    if (c == ']') in_brackets_ = false;
    keep(1);
  }

  // An m would be PCRE2's s, an i without a colon would reach as far as the group in Ruby, ...
  void check_group() const {
    const std::string_view rest = regex_.substr(at_);
    if (rest.substr(0, 2) == "(*") refuse_pattern("(*", regex_);
    if (rest.substr(0, 2) != "(?") return;
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (rest.substr(0, known.size()) == known) return;
    refuse_pattern(rest.substr(0, std::min(rest.find_first_of(":)") + 1, size_t{12})), regex_);
  }

  // In Ruby {,3} counts from 0, {2}? may be left out, and {1,3}+ is repeated.
  void check_braces() const {
    const std::string_view rest = regex_.substr(at_);
    const size_t end = rest.find_first_not_of("0123456789,", 1);
    if (end == rest.npos || rest[end] != '}' || end == 1) return;  // a character
    const bool lazy = rest.substr(end + 1, 1) == "?", counts = rest.find(',') > end;
    if (rest[1] == ',' || rest.substr(end + 1, 1) == "+" || (lazy && counts))
      refuse_pattern(rest.substr(0, end + 2), regex_);
  }

  void put_class(std::string_view inside, bool negated) {
    if (in_brackets_) {
      out_ += inside;
    } else {
      out_.append(negated ? "[^" : "[").append(inside).append("]");
    }
  }

  void escape() {
    const char kind = at_ + 1 < regex_.size() ? regex_[at_ + 1] : '\0';
    if (kind == 's' || kind == 'S') {
      at_ += 2;
      return put_class(kind == 's' ? kSpace : kNoSpace, false);
    }
    if (kind == 'd') {
      at_ += 2;
      return put_class(class_of("Nd"), false);
    }
    if (kind == 'p' || kind == 'P') return property();
    const bool is_word = (kind >= '0' && kind <= '9') || (kind >= 'a' && kind <= 'z') ||
                         (kind >= 'A' && kind <= 'Z');
    if (kind == '\0' ||
        (is_word && std::string_view("123456789AZaefnrtxz").find(kind) == std::string_view::npos))
      refuse_pattern(regex_.substr(at_, 2), regex_);
    keep(2);
  }

  // \p{L}, \P{L}, \p{^L}, \pL
  void property() {
    const bool braces = at_ + 2 < regex_.size() && regex_[at_ + 2] == '{';
    const size_t end = braces ? regex_.find('}', at_) : at_ + 2;
    if (end >= regex_.size()) refuse_pattern("a \\p that does not end", regex_);
    std::string_view name = braces ? regex_.substr(at_ + 3, end - at_ - 3) : regex_.substr(end, 1);
    bool negated = regex_[at_ + 1] == 'P';
    if (!name.empty() && name.front() == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (additions_to(name) == nullptr) refuse_pattern(regex_.substr(at_, end + 1 - at_), regex_);
    if (negated && in_brackets_) refuse_pattern("\\P within brackets", regex_);
    at_ = end + 1;
    put_class(class_of(name), negated);
  }

  std::string_view class_of(std::string_view name) {
    std::string& inside = classes_[name];
    if (inside.empty())
      inside = (spells_out_ ? spelled_out(name) : detail::joined({"\\p{", name, "}"}))
                   .append(*additions_to(name));
    return inside;
  }

  std::string_view regex_;
  bool spells_out_;
  size_t at_ = 0;
  bool in_brackets_ = false;
  std::map<std::string_view, std::string> classes_;
  std::string out_;
};

}  // namespace

void refuse_pattern(std::string_view what, std::string_view regex) {
  detail::fail({"tokenizer: the pattern \"", printable(regex, 200), "\" has ", printable(what, 60),
                ", which is not read here"});
}

bool has_newer_unicode() {
  char version[64] = "";  // "14.0.0"
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  const int unicode = std::atoi(version);
  INK_CHECK(unicode >= 14, "tokenizer: expected PCRE2 with Unicode 14 or newer (10.39), got ",
            static_cast<const char*>(version));
  return unicode > 16;
}

std::string for_pcre2(std::string_view regex, bool spells_out) {
  return Translation(regex, spells_out).result();
}

bool is_assigned(char32_t character) {
  static const auto& ends = *new std::vector<char32_t>([] {
    std::vector<char32_t> sums;
    char32_t at = 0;
    for (const int32_t count : kAssigned) sums.push_back(at += static_cast<char32_t>(count));
    return sums;
  }());
  return (std::upper_bound(ends.begin(), ends.end(), character) - ends.begin()) % 2 == 0;
}

}  // namespace ink::bpe
