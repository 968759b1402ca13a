// The built-in language: endless little stories whose every character has a known probability.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ink {

class FableGrammar;

/// Stories in a row, and what the best possible model would lose on each of their characters.
struct FableSample {
  std::string text;
  /// best_possible[i] = -log p(text[i] | text[0..i)), in nats; exact but for f32 rounding.
  std::vector<float> best_possible;
};

/// A language given by rules with probabilities (data/README.md has the notation). It is
/// unambiguous by construction: the text alone tells every choice the storyteller made. So p(next
/// character | all characters before it) is known exactly, and the mean of its -log is the loss no
/// model can beat. Immutable; copies share the rules; every member may be called from several
/// threads at once.
class Fables {
 public:
  /// The language `fables`.
  Fables();
  /// A language of one's own. Throws ink::Error, naming the rule, if the grammar is malformed, uses
  /// what it does not define, is recursive, or could derive one text in two ways.
  explicit Fables(std::string_view grammar);

  /// Every character that can occur, sorted.
  const std::string& alphabet() const;

  /// How many different stories there are (a double, since they are astronomically many).
  double count() const;

  /// Every text that a rule can become, in the grammar's order. Throws if there is no such rule, if
  /// it recalls something, or if its texts are more than 100,000.
  std::vector<std::string> texts(std::string_view rule) const;

  /// Exactly `length` characters: whole stories one after another from a story's start, cut at
  /// length. A pure function of its arguments on every machine. Throws if length is negative.
  FableSample sample(uint64_t seed, uint64_t index, int64_t length) const;

  /// p(next character | prefix), aligned with alphabet(); the prefix starts where a story starts.
  /// Throws ink::Error, naming the position, if no stories begin with the prefix.
  std::vector<double> next_distribution(std::string_view prefix) const;

 private:
  std::shared_ptr<const FableGrammar> grammar_;
};

}  // namespace ink
