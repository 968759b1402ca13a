// Tasks of which everything is known: a question, and the one answer that is right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ink {

/// "addition", "brackets", "copy", "modular", "reverse", "sorting".
std::vector<std::string> task_names();

/// Questions in a row, each with its answer and a line end: "482+039=0521". Every row is fresh and
/// begins with a question. The best possible loss is exact: the characters of a question have known
/// probabilities, and those of an answer are certain. 20,000 targets validate.
///
/// In modular addition the questions are all pairs of numbers, and the share val_fraction of them
/// is kept for validation. Their targets do not count, because a model could learn which pairs
/// training has; so the best possible loss is 0.
class TaskDataset final : public FreshDataset {
 public:
  /// size: digits of a number, letters or brackets of a question, or how many digits modular
  /// addition has, which is its modulus; 0: the task's own. Throws if there is no such task, or if
  /// it has no such size.
  explicit TaskDataset(const std::string& task, int64_t size = 0, double val_fraction = 0.1);

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  /// With an example, and what a model must learn for it.
  std::string summary() const override;
  std::string sample_start() const override { return "\n"; }

  struct Kind;      // a task
  struct Question;  // one of it
  class Draws;      // random numbers of a row

 private:
  bool has_answers() const override { return true; }
  void fill_row(uint64_t seed, uint64_t index, bool validates, Row row) const override;

  const Kind* kind_;
  int64_t size_;
  double val_fraction_;
  CharTokenizer tokenizer_;
};

}  // namespace ink
