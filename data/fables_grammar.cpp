// Reading a grammar, and proving that no text has two derivations.
#include "data/fables_grammar.h"

#include <algorithm>
#include <set>
#include <utility>

#include "autograd/base/check.h"

namespace ink {
namespace {

using Part = FableGrammar::Part;
using Alternative = FableGrammar::Alternative;
using Rule = FableGrammar::Rule;

constexpr double kMostTexts = 100000;

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Calls f(piece) for the pieces of text between separators.
template <class F>
void split(std::string_view text, char separator, F f) {
  for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + 1)) {
    f(text.substr(0, end));
  }
  f(text);
}

// "a\nb" in the grammar (backslash, n) is a newline in the story.
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool newline = text.substr(i, 2) == "\\n";
    plain += newline ? '\n' : text[i];
    i += newline;
  }
  return plain;
}

// Calls f(part) for the parts of all rules.
template <class F>
void for_each_part(const std::vector<Rule>& rules, F f) {
  for (const Rule& rule : rules)
    for (const Alternative& alternative : rule.alternatives)
      for (const Part& part : alternative.parts) f(part);
}

}  // namespace

FableGrammar::FableGrammar(std::string_view source) {
  // A line that begins with a space continues the rule above it.
  std::vector<std::string> bodies;
  split(source, '\n', [&](std::string_view line) {
    if (trim(line).empty()) return;
    if (line[0] != ' ') {
      const size_t colon = line.find(':');
      INK_CHECK(colon != line.npos, "fables: expected 'rule: ...', got '", line, "'");
      const std::string name(line.substr(0, colon));
      INK_CHECK(find_rule(name) < 0, "fables: rule ", name, " is defined twice");
      rules.push_back({name, {}});
      bodies.emplace_back();
      line.remove_prefix(colon + 1);
    }
    INK_CHECK(!rules.empty(), "fables: the first line must begin a rule, got '", line, "'");
    bodies.back().append(line);
  });
  INK_CHECK(!rules.empty(), "fables: the grammar has no rules");

  for (size_t i = 0; i < rules.size(); ++i) {
    split(bodies[i], '|', [&](std::string_view body) {
      Alternative alternative = parse_alternative(trim(body));
      INK_CHECK(!alternative.parts.empty(), "fables: rule ", rules[i].name,
                " has an empty alternative");
      INK_CHECK(alternative.weight > 0, "fables: rule ", rules[i].name, " has a weight of 0");
      rules[i].weight += alternative.weight;
      rules[i].alternatives.push_back(std::move(alternative));
    });
  }
  check_used();
  std::vector<int> path;
  std::vector<bool> remembered(memories.size());
  check_order(0, path, remembered);
  for (Rule& rule : rules) prepare(rule);
}

// "3 Once [girl=girls] lived": weight 3, a text, the rule `girls` remembered as `girl`, a text.
Alternative FableGrammar::parse_alternative(std::string_view source) {
  Alternative result;
  const size_t digits = source.find_first_not_of("0123456789");
  if (digits != source.npos && digits > 0 && source[digits] == ' ') {
    result.weight = std::stoull(std::string(source.substr(0, digits)));
    source = trim(source.substr(digits));
  }
  while (!source.empty()) {
    const size_t open = std::min(source.find('['), source.size());
    if (open > 0) result.parts.push_back({Part::kText, unescape(source.substr(0, open))});
    source.remove_prefix(open);
    if (source.empty()) break;
    const size_t close = source.find(']');
    INK_CHECK(close != source.npos, "fables: expected a ']' after '", source, "'");
    result.parts.push_back(parse_reference(source.substr(1, close - 1)));
    source.remove_prefix(close + 1);
  }
  return result;
}

// "memory=rule", "rule" or "memory": a name that no rule has must be a memory.
Part FableGrammar::parse_reference(std::string_view source) {
  const size_t equals = source.find('=');
  const std::string name(equals == source.npos ? source : source.substr(equals + 1));
  const int found = find_rule(name);
  if (equals == source.npos) {
    return found >= 0 ? Part{Part::kRule, name, found}
                      : Part{Part::kRecall, name, -1, find_memory(name)};
  }
  const std::string_view memory = source.substr(0, equals);
  INK_CHECK(found >= 0, "fables: [", source, "] names no rule");
  INK_CHECK(find_rule(memory) < 0, "fables: [", source, "] remembers under the name of a rule");
  return {Part::kRule, name, found, find_memory(memory)};
}

// A rule that is never used is a mistake, and its characters would never occur.
void FableGrammar::check_used() const {
  std::vector<bool> used(rules.size());
  used[0] = true;
  for_each_part(rules, [&](const Part& part) {
    if (part.kind == Part::kRule) used[part.rule] = true;
  });
  for (size_t i = 0; i < rules.size(); ++i) {
    INK_CHECK(used[i], "fables: rule ", rules[i].name, " is never used");
  }
}

// Walks all derivations of `rule`. `remembered` says which memories every path to the rule has
// filled, and on return which ones every path through the rule has.
void FableGrammar::check_order(int index, std::vector<int>& path,
                               std::vector<bool>& remembered) const {
  const Rule& rule = rules[index];
  const bool recursive = std::find(path.begin(), path.end(), index) != path.end();
  INK_CHECK(!recursive, "fables: rule ", rule.name, " leads to itself");
  path.push_back(index);
  std::vector<bool> by_all(memories.size(), true);
  for (const Alternative& alternative : rule.alternatives) {
    std::vector<bool> here = remembered;
    for (const Part& part : alternative.parts) {
      if (part.kind == Part::kRecall) {
        INK_CHECK(here[part.memory], "fables: rule ", rule.name, " uses [", part.text,
                  "], which is neither a rule nor always remembered before");
      } else if (part.kind == Part::kRule) {
        check_order(part.rule, path, here);
        if (part.memory >= 0) here[part.memory] = true;
      }
    }
    for (size_t i = 0; i < here.size(); ++i) by_all[i] = by_all[i] && here[i];
  }
  remembered = by_all;
  path.pop_back();
}

// Completes a rule after all are read: collects its characters, checks that its choices can be told
// apart, and computes their -log p if that does not depend on remembered texts.
void FableGrammar::prepare(Rule& rule) {
  std::set<char> characters(alphabet.begin(), alphabet.end());
  for (const Alternative& alternative : rule.alternatives) {
    for (const Part& part : alternative.parts) {
      if (part.kind == Part::kText) characters.insert(part.text.begin(), part.text.end());
    }
    rule.fixed = rule.fixed && alternative.parts[0].kind == Part::kText;
  }
  alphabet.assign(characters.begin(), characters.end());

  if (!rule.is_choice()) return;
  check_choice(rule);
  if (!rule.fixed) return;
  const auto lead = [&](size_t i) { return std::string_view(rule.alternatives[i].parts[0].text); };
  const auto weight = [&](size_t i) { return rule.alternatives[i].weight; };
  for (size_t i = 0; i < rule.alternatives.size(); ++i) {
    std::vector<float>& best_possible = rule.alternatives[i].best_possible;
    walk_lead(rule.alternatives.size(), i, lead, weight,
              [&](float value) { best_possible.push_back(value); });
  }
}

// The proof: for all remembered texts, no lead of a choice is a prefix of another one. So a choice
// is known when its lead has been read, and by induction the text determines all choices.
void FableGrammar::check_choice(const Rule& rule) const {
  std::vector<std::string> leads;
  for (const Alternative& alternative : rule.alternatives) {
    const Part& first = alternative.parts[0];
    INK_CHECK(first.kind != Part::kRule, "fables: rule ", rule.name,
              " has a choice that begins with rule ", first.text,
              "; begin it with a text or something remembered");
    if (first.kind == Part::kText) leads.push_back(first.text);
    if (first.kind == Part::kRecall) {
      for (std::string& value : values(first.memory)) leads.push_back(std::move(value));
    }
  }
  // In sorted order, the texts that begin with a text come right after it.
  std::sort(leads.begin(), leads.end());
  for (size_t i = 1; i < leads.size(); ++i) {
    INK_CHECK(!leads[i].starts_with(leads[i - 1]), "fables: rule ", rule.name, " is ambiguous: '",
              leads[i - 1], "' begins '", leads[i], "'");
  }
}

// Everything that can be remembered there.
std::vector<std::string> FableGrammar::values(int memory) const {
  std::set<std::string> found;
  for_each_part(rules, [&](const Part& part) {
    if (part.kind != Part::kRule || part.memory != memory) return;
    for (std::string& text : texts(rules[part.rule])) found.insert(std::move(text));
  });
  return {found.begin(), found.end()};
}

const Rule& FableGrammar::rule(std::string_view name) const {
  const int found = find_rule(name);
  INK_CHECK(found >= 0, "fables: there is no rule ", name);
  return rules[found];
}

double FableGrammar::count(const Rule& rule) const {
  double sum = 0;
  for (const Alternative& alternative : rule.alternatives) {
    double product = 1;
    for (const Part& part : alternative.parts) {
      if (part.kind == Part::kRule) product *= count(rules[part.rule]);
    }
    sum += product;
  }
  return sum;
}

std::vector<std::string> FableGrammar::texts(const Rule& rule) const {
  INK_CHECK(count(rule) <= kMostTexts, "fables: rule ", rule.name, " has ", count(rule),
            " texts, more than ", kMostTexts);
  std::vector<std::string> result;
  for (const Alternative& alternative : rule.alternatives) {
    std::vector<std::string> heads{""};
    for (const Part& part : alternative.parts) {
      INK_CHECK(part.kind != Part::kRecall, "fables: the texts of rule ", rule.name, " depend on [",
                part.text, "]");
      const std::vector<std::string> tails =
          part.kind == Part::kText ? std::vector{part.text} : texts(rules[part.rule]);
      std::vector<std::string> joined;
      for (const std::string& head : heads) {
        for (const std::string& tail : tails) joined.push_back(head + tail);
      }
      heads = std::move(joined);
    }
    result.insert(result.end(), heads.begin(), heads.end());
  }
  return result;
}

int FableGrammar::find_rule(std::string_view name) const {
  const auto same = [&](const Rule& rule) { return rule.name == name; };
  const auto found = std::find_if(rules.begin(), rules.end(), same);
  return found == rules.end() ? -1 : static_cast<int>(found - rules.begin());
}

int FableGrammar::find_memory(std::string_view name) {
  const auto found = std::find(memories.begin(), memories.end(), name);
  if (found != memories.end()) return static_cast<int>(found - memories.begin());
  memories.emplace_back(name);
  return static_cast<int>(memories.size()) - 1;
}

}  // namespace ink
