// Writing stories, and reading them. Both walk the same rules; the writer chooses by chance, and
// the reader by the text.
#include "data/fables.h"

#include "autograd/base/check.h"
#include "data/fables_grammar.h"
#include "data/splitmix.h"

namespace ink {
namespace {

using Part = FableGrammar::Part;
using Alternative = FableGrammar::Alternative;
using Rule = FableGrammar::Rule;

/// The place of something remembered in the text so far.
struct Span {
  size_t begin = 0, size = 0;
};
using Memory = std::vector<Span>;

// The lead of an alternative: the text with which it begins.
std::string_view lead(const Alternative& alternative, const Memory& memory, std::string_view text) {
  const Part& first = alternative.parts[0];
  if (first.kind == Part::kText) return first.text;
  return text.substr(memory[first.memory].begin, memory[first.memory].size);
}

// Walks a rule for a narrator, which has
//   text()                the text so far,
//   size()                how much of it has been walked,
//   choose(rule, memory)  decides a choice and walks its lead: the index, or -1 to stop,
//   walk(piece)           walks what is certain: false to stop.
// Returns false if the narrator stopped.
template <class Narrator>
bool tell(const FableGrammar& grammar, const Rule& rule, Memory& memory, Narrator& narrator) {
  const int choice = rule.is_choice() ? narrator.choose(rule, memory) : 0;
  if (choice < 0) return false;
  const std::vector<Part>& parts = rule.alternatives[choice].parts;
  for (size_t i = rule.is_choice() ? 1 : 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.kind == Part::kText) {
      if (!narrator.walk(part.text)) return false;
    } else if (part.kind == Part::kRecall) {
      const Span span = memory[part.memory];
      if (!narrator.walk(narrator.text().substr(span.begin, span.size))) return false;
    } else {
      const size_t begin = narrator.size();
      if (!tell(grammar, grammar.rules[part.rule], memory, narrator)) return false;
      if (part.memory >= 0) memory[part.memory] = {begin, narrator.size() - begin};
    }
  }
  return true;
}

/// Chooses by chance and writes the text.
class Writer {
 public:
  Writer(FableSample& sample, size_t length, splitmix::Stream stream)
      : sample_(sample), length_(length), stream_(stream) {}

  std::string_view text() const { return sample_.text; }
  size_t size() const { return sample_.text.size(); }

  int choose(const Rule& rule, const Memory& memory) {
    uint64_t left = stream_.below(rule.weight);
    size_t chosen = 0;
    while (left >= rule.alternatives[chosen].weight) left -= rule.alternatives[chosen++].weight;
    const Alternative& alternative = rule.alternatives[chosen];
    if (rule.fixed) {
      sample_.best_possible.insert(sample_.best_possible.end(), alternative.best_possible.begin(),
                                   alternative.best_possible.end());
    } else {
      const auto lead_of = [&](size_t i) {
        return lead(rule.alternatives[i], memory, sample_.text);
      };
      const auto weight = [&](size_t i) { return rule.alternatives[i].weight; };
      walk_lead(rule.alternatives.size(), chosen, lead_of, weight,
                [&](float loss) { sample_.best_possible.push_back(loss); });
    }
    sample_.text.append(lead(alternative, memory, sample_.text));
    return size() < length_ ? static_cast<int>(chosen) : -1;
  }

  bool walk(std::string_view piece) {
    sample_.text.append(piece);
    sample_.best_possible.resize(sample_.text.size(), 0.0f);  // certain: p = 1
    return size() < length_;
  }

 private:
  FableSample& sample_;
  size_t length_;
  splitmix::Stream stream_;
};

/// Follows a text, stops where it ends, and then knows what can come next.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::string_view text() const { return text_; }
  size_t size() const { return at_; }
  /// How likely each character is to come next, times any constant.
  const std::vector<double>& next() const { return next_; }

  int choose(const Rule& rule, const Memory& memory) {
    const std::string_view rest = text_.substr(at_);
    bool possible = false;
    for (size_t i = 0; i < rule.alternatives.size(); ++i) {
      const std::string_view words = lead(rule.alternatives[i], memory, text_);
      if (rest.substr(0, words.size()) == words) {
        at_ += words.size();
        return static_cast<int>(i);
      }
      if (words.substr(0, rest.size()) != rest) continue;
      next_[static_cast<unsigned char>(words[rest.size()])] +=
          static_cast<double>(rule.alternatives[i].weight);
      possible = true;
    }
    check(possible);
    return -1;
  }

  bool walk(std::string_view piece) {
    const std::string_view rest = text_.substr(at_, piece.size());
    check(piece.substr(0, rest.size()) == rest);
    if (rest.size() < piece.size()) {
      next_[static_cast<unsigned char>(piece[rest.size()])] = 1;
      return false;
    }
    at_ += piece.size();
    return true;
  }

 private:
  void check(bool possible) const {
    INK_CHECK(possible, "fables: no story goes on like this after character ", at_, ": '",
              text_.substr(at_, 20), "'");
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<double> next_ = std::vector<double>(256);
};

// Stories in a row until the narrator stops.
template <class Narrator>
void tell_all(const FableGrammar& grammar, Narrator& narrator) {
  Memory memory(grammar.memories.size());
  while (tell(grammar, grammar.rules[0], memory, narrator)) {
  }
}

}  // namespace

Fables::Fables() {
  static const auto built_in = std::make_shared<const FableGrammar>(kFablesRules);
  grammar_ = built_in;
}

Fables::Fables(std::string_view grammar)
    : grammar_(std::make_shared<const FableGrammar>(grammar)) {}

const std::string& Fables::alphabet() const { return grammar_->alphabet; }

double Fables::count() const { return grammar_->count(grammar_->rules[0]); }

std::vector<std::string> Fables::texts(std::string_view rule) const {
  return grammar_->texts(grammar_->rule(rule));
}

FableSample Fables::sample(uint64_t seed, uint64_t index, int64_t length) const {
  INK_CHECK(length >= 0, "fables: expected a length >= 0, got ", length);
  const size_t size = static_cast<size_t>(length);
  FableSample result;
  result.text.reserve(size + 64);
  result.best_possible.reserve(size + 64);
  Writer writer(result, size, splitmix::Stream(splitmix::mix(splitmix::mix(seed) + index)));
  if (size > 0) tell_all(*grammar_, writer);
  result.text.resize(size);
  result.best_possible.resize(size);
  return result;
}

std::vector<double> Fables::next_distribution(std::string_view prefix) const {
  Reader reader(prefix);
  tell_all(*grammar_, reader);
  std::vector<double> result;
  double sum = 0;
  for (const double p : reader.next()) sum += p;
  for (const char c : alphabet())
    result.push_back(reader.next()[static_cast<unsigned char>(c)] / sum);
  return result;
}

}  // namespace ink
