// Internal to data/fables*.cpp: a grammar that has been read.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ink {

/// The rules of the built-in language (fables_rules.cpp).
extern const char* const kFablesRules;

/// Checked rules. Every name is defined and used. Nothing is recursive, or recalled before it is
/// remembered. The alternatives of every choice differ in their leads, the texts with which they
/// begin.
class FableGrammar {
 public:
  /// An alternative is a sequence of texts, of other rules (whose text may be remembered), and of
  /// recalls, which repeat a remembered text.
  struct Part {
    enum Kind { kText, kRule, kRecall } kind;
    std::string text;  // kText: the characters; otherwise the name of the rule or memory
    int rule = -1;     // kRule: index into rules
    /// kRule: the memory that gets the rule's text, or -1. kRecall: the memory to repeat.
    int memory = -1;
  };
  struct Alternative {
    uint64_t weight = 1;
    std::vector<Part> parts;
    /// -log p of each character of its lead; empty if the rule is not `fixed`.
    std::vector<float> best_possible;
  };
  struct Rule {
    std::string name;
    std::vector<Alternative> alternatives;
    uint64_t weight = 0;  // the sum of its alternatives' weights
    /// Every lead is a text, so the best possible loss of every choice is known beforehand.
    bool fixed = true;
    /// With one alternative there is nothing to choose and no lead.
    bool is_choice() const { return alternatives.size() > 1; }
  };

  explicit FableGrammar(std::string_view source);

  std::vector<Rule> rules;  // rules[0] is the story
  std::vector<std::string> memories;
  std::string alphabet;

  const Rule& rule(std::string_view name) const;
  double count(const Rule& rule) const;
  std::vector<std::string> texts(const Rule& rule) const;

 private:
  Alternative parse_alternative(std::string_view source);
  Part parse_reference(std::string_view source);
  void check_used() const;
  void check_order(int rule, std::vector<int>& path, std::vector<bool>& remembered) const;
  void prepare(Rule& rule);
  void check_choice(const Rule& rule) const;
  std::vector<std::string> values(int memory) const;
  int find_rule(std::string_view name) const;  // -1 if there is none
  int find_memory(std::string_view name);      // added if there is none
};

/// Calls emit(-log p) for each character of lead(chosen), which was chosen among lead(0..count)
/// with weight(0..count). The leads are walked as a trie:
///   p = weight of the leads that agree up to and including the character
///       / weight of the leads that agree up to it
template <class Lead, class Weight, class Emit>
void walk_lead(size_t count, size_t chosen, Lead lead, Weight weight, Emit emit) {
  const std::string_view text = lead(chosen);
  double before = 0;
  for (size_t i = 0; i < count; ++i) before += static_cast<double>(weight(i));
  for (size_t length = 1; length <= text.size(); ++length) {
    double after = 0;
    for (size_t i = 0; i < count; ++i) {
      if (lead(i).substr(0, length) == text.substr(0, length))
        after += static_cast<double>(weight(i));
    }
    emit(static_cast<float>(std::log(before / after)));
    before = after;
  }
}

}  // namespace ink
