#include "data/bpe/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/bpe/ascii_pieces.h"
#include "data/bpe/translation.h"

namespace ink::bpe {
namespace {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kEachDigit = R"(\p{N})";

struct Named {
  const char* name;
  std::vector<const char*> regexes;
};
const std::vector<Named>& all_named() {
  static const auto& all = *new std::vector<Named>{
      {"gpt2", {kGpt2}},   {"cl100k", {kCl100k}}, {"llama3", {kCl100k}},
      {"o200k", {kO200k}}, {"qwen2", {kQwen2}},   {"smollm2", {kEachDigit, kGpt2}}};
  return all;
}

bool is_named(const std::vector<Cut>& cuts) {
  return std::any_of(all_named().begin(), all_named().end(), [&](const Named& named) {
    return std::equal(cuts.begin(), cuts.end(), named.regexes.begin(), named.regexes.end(),
                      [](const Cut& cut, const char* regex) {
                        return cut.behavior == Behavior::isolated && !cut.invert &&
                               cut.regex == regex;
                      });
  });
}

// The end of the valid UTF-8 that begins at `at`.
size_t valid_until(std::string_view text, size_t at) {
  constexpr uint64_t kHigh = 0x8080808080808080;
  while (at < text.size()) {
    uint64_t eight = kHigh;
    if (text.size() - at >= sizeof eight) std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & kHigh) == 0) {
      at += sizeof eight;
    } else if (utf8::next(text, at) == utf8::kInvalid) {
      return at;
    }
  }
  return at;
}

// The character that ends at `at`; kInvalid: none does.
char32_t character_before(std::string_view text, size_t at) {
  size_t begin = at;
  while (begin > 0 && at - begin < 4 && (text[--begin] & 0xc0) == 0x80) {
  }
  const char32_t character = utf8::next(text, begin);
  return begin == at ? character : utf8::kInvalid;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// Ideographs, kana and Hangul: letters in which there are few spaces.
bool is_east_asian(char32_t c) {
  return (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a1 && c <= 0x30fa) ||
         (c >= 0x4e00 && c <= 0x9fff) || (c >= 0xac00 && c <= 0xd7a3);
}

// Their comma, full stop, and marks of full width.
bool is_east_asian_mark(std::string_view text) {
  if ((text[0] & 0xf0) != 0xe0) return false;
  for (const std::string_view mark :
       {"\u3001", "\u3002", "\uff01", "\uff0c", "\uff1a", "\uff1b", "\uff1f"})
    if (text.substr(0, mark.size()) == mark) return true;
  return false;
}

// Does a piece begin here with any of the named cuts, whatever else stands in the text? In none of
// them is a space behind anything but spaces, or punctuation behind a letter, unless it is '.
bool begins_piece(std::string_view text, size_t at) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (letter(text[at])) return text[at - 1] == '\n';
  if (text[at] == ' ') {
    const char32_t before = character_before(text, at);
    return before != utf8::kInvalid && !is_space(before);
  }
  return is_east_asian_mark(text.substr(at, 3)) && is_east_asian(character_before(text, at));
}

}  // namespace

std::vector<Cut> named_cuts(std::string_view name) {
  std::string names;
  for (const auto& [known, regexes] : all_named()) {
    if (name == known) {
      std::vector<Cut> cuts;
      for (const char* regex : regexes) cuts.push_back({.regex = regex});
      return cuts;
    }
    names.append(names.empty() ? "" : ", ").append(known);
  }
  detail::fail({"tokenizer: expected the name of a pattern (", names, "), got \"",
                printable(name, 60), "\""});
}

// ---- One regular expression

class Splitter::Pattern {
 public:
  Pattern(const Cut& cut, bool spells_out)
      : behavior(cut.behavior), invert(cut.invert), by_hand(known_by_hand(cut)) {
    const std::string regex = for_pcre2(cut.regex, spells_out);
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    // In Ruby's syntax ^ and $ are those of lines.
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, context);
    pcre2_compile_context_free(context);
    if (code == nullptr) {
      char text[200] = "";
      pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
      detail::fail({"tokenizer: the pattern \"", printable(cut.regex, 200),
                    "\": ", static_cast<const char*>(text)});
    }
    uint32_t can_be_empty = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &can_be_empty);
    if (can_be_empty != 0) {
      pcre2_code_free(code);
      refuse_pattern("a match of no characters", cut.regex);
    }
    compiled_to_machine_code = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { pcre2_code_free(code); }

  static ByHand known_by_hand(const Cut& cut) {
    if (cut.behavior != Behavior::isolated || cut.invert) return ByHand::none;
    return cut.regex == kGpt2     ? ByHand::gpt2
           : cut.regex == kCl100k ? ByHand::cl100k
           : cut.regex == kQwen2  ? ByHand::qwen2
                                  : ByHand::none;
  }

  Behavior behavior;
  bool invert;
  ByHand by_hand;  // every character is in a match
  pcre2_code* code;
  bool compiled_to_machine_code;  // not where the system forbids it
};

// ---- One text

class Splitter::Run {
 public:
  Run(const Splitter& splitter, const std::function<void(std::string_view)>& f)
      : patterns_(splitter.patterns_), f_(f) {
    for (const auto& pattern : patterns_)
      matches_.push_back(pcre2_match_data_create_from_pattern(pattern->code, nullptr));
    context_ = pcre2_match_context_create(nullptr);
    pcre2_jit_stack_assign(context_, stack_of, this);
    pcre2_set_match_limit(context_, UINT32_MAX);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    for (pcre2_match_data* matches : matches_) pcre2_match_data_free(matches);
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
  }

  // Cuts a piece that the patterns before `depth` have cut. What a behaviour does, as a rule:
  // whether text (a match or not) continues the piece that the text before it is part of.
  void cut(std::string_view text, size_t depth) {
    if (depth == patterns_.size()) return f_(text);
    const Pattern& pattern = *patterns_[depth];
    if (pattern.by_hand != ByHand::none) return cut_by_hand(text, depth, pattern.by_hand);
    size_t begin = 0, end = 0;  // of the piece that may yet continue
    bool before = false;        // was the text before a match?
    const auto add = [&](size_t to, bool is_match) {
      if (to == end) return;
      is_match ^= pattern.invert;
      INK_CHECK(!is_match || pattern.behavior != Behavior::removed,
                "tokenizer: its pattern would leave out \"",
                printable(text.substr(end, to - end), 60), "\"");
      const bool continues =
          end > 0 && ((pattern.behavior == Behavior::contiguous && is_match == before) ||
                      (pattern.behavior == Behavior::merged_with_previous && is_match && !before) ||
                      (pattern.behavior == Behavior::merged_with_next && !is_match && before));
      if (!continues) {
        if (end > begin) cut(text.substr(begin, end - begin), depth + 1);
        begin = end;
      }
      end = to;
      before = is_match;
    };
    for (size_t first = 0, last = 0; find(text, end, depth, first, last);) {
      add(first, false);
      add(last, true);
    }
    add(text.size(), false);
    if (end > begin) cut(text.substr(begin, end - begin), depth + 1);
  }

 private:
  // Made by the first match: what is cut by hand needs none.
  static pcre2_jit_stack* stack_of(void* run) {
    constexpr size_t kFirst = size_t{32} << 10, kMost = size_t{64} << 20;
    pcre2_jit_stack*& stack = static_cast<Run*>(run)->stack_;
    if (stack == nullptr) stack = pcre2_jit_stack_create(kFirst, kMost, nullptr);
    return stack;
  }

  void cut_by_hand(std::string_view text, size_t depth, ByHand pattern) {
    const AsciiPieces pieces(text, pattern);
    for (size_t at = 0, first = 0, end = 0; at < text.size(); at = end) {
      end = pieces.end_of(at);
      if (end == 0 && !find(text, at, depth, first, end)) end = text.size();
      cut(text.substr(at, end - at), depth + 1);
    }
  }

  bool find(std::string_view text, size_t from, size_t depth, size_t& first, size_t& last) {
    const Pattern& pattern = *patterns_[depth];
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto match = pattern.compiled_to_machine_code ? pcre2_jit_match : pcre2_match;
    const int found = match(pattern.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                            matches_[depth], context_);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    INK_CHECK(found >= 0, "encode: the tokenizer's pattern takes more than PCRE2 allows at byte ",
              from, " of ", text.size(), " (error ", found, ")");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(matches_[depth]);
    first = ends[0], last = ends[1];
    return true;
  }

  const std::vector<std::unique_ptr<const Pattern>>& patterns_;
  const std::function<void(std::string_view)>& f_;
  std::vector<pcre2_match_data*> matches_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_ = nullptr;
};

Splitter::Splitter(std::vector<Cut> cuts) : Splitter(std::move(cuts), has_newer_unicode()) {}
Splitter::Splitter(std::vector<Cut> cuts, bool spells_out)
    : cuts_(std::move(cuts)), is_named_(is_named(cuts_)) {
  for (const Cut& cut : cuts_)
    patterns_.push_back(std::make_unique<const Pattern>(cut, spells_out));
}
Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;

void Splitter::for_each_piece(std::string_view text,
                              const std::function<void(std::string_view)>& f) const {
  Run run(*this, f);
  for (size_t at = 0; at < text.size();) {
    const size_t valid = valid_until(text, at);
    if (valid > at) run.cut(text.substr(at, valid - at), 0);
    at = valid;
    for (size_t next = at; next < text.size() && utf8::next(text, next) == utf8::kInvalid;)
      at = ++next;
    if (at > valid) f(text.substr(valid, at - valid));
  }
}

size_t Splitter::boundary(std::string_view text, size_t at, size_t limit) const {
  if (at == 0 || !is_named_) return at == 0 ? 0 : text.size();
  limit = std::min(limit, text.size());
  while (at < limit && !begins_piece(text, at)) ++at;
  return at < limit ? at : text.size();
}

}  // namespace ink::bpe
