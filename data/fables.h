// The built-in language: endless little stories whose every character has a known probability.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ink {

class FableGrammar;

/// Stories in a row, and the loss of the best possible model on each of their characters.
struct FableSample {
  std::string text;
  /// best_possible[i] = -log p(text[i] | text[0..i)), in nats; exact but for f32 rounding.
  std::vector<float> best_possible;
};

/// A language given by rules with probabilities (data/README.md has the notation). It is
/// unambiguous by construction: the text alone tells every choice that was made. So p(next
/// character | all characters before it) is known exactly, and no model can have a lower loss than
/// the mean of its -log. Immutable; copies share the rules; every member may be called from several
/// threads at once.
class Fables {
 public:
  /// The language `fables`.
  Fables();
  /// A language of your own. Throws ink::Error, naming the rule, if the grammar is malformed, uses
  /// an undefined name, is recursive, or could derive one text in two ways.
  explicit Fables(std::string_view grammar);

  /// Every character that can occur, sorted.
  const std::string& alphabet() const;

  /// The number of different stories, as a double, because it is astronomically large.
  double count() const;

  /// Every text that a rule can give, in the grammar's order. Throws if there is no such rule, if
  /// it recalls something, or if it has more than 100,000 texts.
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
