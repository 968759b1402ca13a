#include "data/bpe/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/bpe/ascii_pieces.h"
#include "data/bpe/unicode.h"

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

std::string_view addition_to(std::string_view property) {
  const auto* found = std::find_if(std::begin(kAdditions), std::end(kAdditions),
                                   [&](const Addition& each) { return each.name == property; });
  return found == std::end(kAdditions) ? std::string_view() : found->ranges;
}

[[noreturn]] void refuse_pattern(std::string_view what, std::string_view regex) {
  detail::fail({"tokenizer: the pattern \"", printable(regex, 200), "\" has ", what,
                ", which is not read here"});
}

// A class of characters, as PCRE2 is told: with what Unicode 16 has more, and with white space by
// its code points. The regular expression stands in Ruby's syntax (tokenizers run Oniguruma).
class Translation {
 public:
  explicit Translation(std::string_view regex) : regex_(regex) {}

  std::string result() {
    while (at_ < regex_.size()) {
      const char c = regex_[at_];
      if (c == '\\') {
        escape();
        continue;
      }
      if (!in_brackets_ && regex_.substr(at_, 3) == "(?m") refuse_pattern("(?m", regex_);
      if (in_brackets_ && regex_.substr(at_, 2) == "&&")
        refuse_pattern("&& within brackets", regex_);
      if (in_brackets_ && c == '[') refuse_pattern("[ within brackets", regex_);
      if (c == '[') {
        in_brackets_ = true;
        keep(regex_.substr(at_, 2) == "[^" ? 2 : 1);
        if (at_ < regex_.size() && regex_[at_] == ']') keep(1);  // a first ] is a character
        continue;
      }
      if (c == ']') in_brackets_ = false;
      keep(1);
    }
    return std::move(out_);
  }

 private:
  void keep(size_t count) {
    out_ += regex_.substr(at_, count);
    at_ += std::min(count, regex_.size() - at_);
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
      return put_class(std::string(R"(\p{Nd})").append(addition_to("Nd")), false);
    }
    if (kind == 'p' || kind == 'P') return property();
    if (kind != '\0' && std::strchr("bBCDEgGhHkKNOQRvVwWXyY", kind) != nullptr)
      refuse_pattern(std::string("\\") + kind, regex_);
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
    const std::string_view more = addition_to(name);
    if (negated && in_brackets_ && !more.empty()) refuse_pattern("\\P within brackets", regex_);
    at_ = end + 1;
    const bool outside = negated && !in_brackets_;
    put_class(
        std::string(negated && !outside ? "\\P{" : "\\p{").append(name).append("}").append(more),
        outside);
  }

  std::string_view regex_;
  size_t at_ = 0;
  bool in_brackets_ = false;
  std::string out_;
};

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
  explicit Pattern(const Cut& cut)
      : behavior(cut.behavior), invert(cut.invert), by_hand(known_by_hand(cut)) {
    const std::string regex = Translation(cut.regex).result();
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

Splitter::Splitter(std::vector<Cut> cuts) : cuts_(std::move(cuts)), is_named_(is_named(cuts_)) {
  for (const Cut& cut : cuts_) patterns_.push_back(std::make_unique<const Pattern>(cut));
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

size_t Splitter::boundary(std::string_view text, size_t at) const {
  if (at == 0 || !is_named_) return at == 0 ? 0 : text.size();
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto begins = [&] {
    return letter(text[at]) ? text[at - 1] == '\n' : text[at] == ' ' && letter(text[at - 1]);
  };
  while (at < text.size() && !begins()) ++at;
  return at;
}

}  // namespace ink::bpe
