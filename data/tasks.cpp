#include "data/tasks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/base/check.h"
#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "data/splitmix.h"

namespace ink {

// A question, -log p of each of its characters given those before, and the answer.
struct TaskDataset::Question {
  std::string text, answer;
  std::vector<float> best_possible;

  void add(char character, double p) {
    text += character;
    best_possible.push_back(static_cast<float>(-std::log(p)));
  }
};

// Random numbers of one row.
class TaskDataset::Draws : public splitmix::Stream {
 public:
  Draws(uint64_t seed, uint64_t index)
      : Stream(splitmix::mix(splitmix::mix(seed + splitmix::kGamma) + index * splitmix::kGamma)) {}
};

namespace {

using Draws = TaskDataset::Draws;
using Question = TaskDataset::Question;

// `count` characters, each of them as likely as any other.
void add_any(Question& question, Draws& draws, int64_t count, std::string_view characters) {
  for (int64_t i = 0; i < count; ++i)
    question.add(characters[draws.below(characters.size())],
                 1 / static_cast<double>(characters.size()));
}

constexpr std::string_view kDigits = "0123456789", kLetters = "abcdefghijklmnopqrstuvwxyz",
                           kOpening = "([", kClosing = ")]";

Question copy(Draws& draws, int64_t size) {
  Question question;
  add_any(question, draws, size, kLetters);
  question.answer = question.text;
  question.add('=', 1);
  return question;
}

Question reverse(Draws& draws, int64_t size) {
  Question question = copy(draws, size);
  std::reverse(question.answer.begin(), question.answer.end());
  return question;
}

Question sorting(Draws& draws, int64_t size) {
  Question question;
  add_any(question, draws, size, kDigits);
  question.answer = question.text;
  std::sort(question.answer.begin(), question.answer.end());
  question.add('=', 1);
  return question;
}

Question addition(Draws& draws, int64_t size) {
  Question question;
  add_any(question, draws, size, kDigits);
  question.add('+', 1);
  add_any(question, draws, size, kDigits);
  question.add('=', 1);
  question.answer = std::string(static_cast<size_t>(size) + 1, '0');
  int carry = 0;
  for (auto i = static_cast<size_t>(size); i-- > 0;) {
    const int sum =
        question.text[i] - '0' + (question.text[i + question.answer.size()] - '0') + carry;
    question.answer[i + 1] = kDigits[static_cast<size_t>(sum % 10)];
    carry = sum / 10;
  }
  question.answer[0] = kDigits[static_cast<size_t>(carry)];
  return question;
}

// At each place one of two brackets opens. Where some are open, the last of them closes instead in
// one of two cases.
Question brackets(Draws& draws, int64_t size) {
  Question question;
  std::string open;  // what closes those that are open
  for (int64_t i = 0; i < size; ++i) {
    const double p_open = open.empty() ? 1 : 0.5;
    if (open.empty() || draws.below(2) == 0) {
      const size_t which = draws.below(2);
      question.add(kOpening[which], p_open / 2);
      open += kClosing[which];
    } else {
      question.add(open.back(), 1 - p_open);
      open.pop_back();
    }
  }
  question.answer = {open.rbegin(), open.rend()};
  question.add('=', 1);
  return question;
}

// Numbers of modular addition are one character each, so that nothing but the sums tells which of
// them are neighbours.
constexpr std::string_view kNumerals =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Does this pair of numbers validate?
bool is_kept(int64_t pair, double val_fraction) {
  const uint64_t bits = splitmix::mix(static_cast<uint64_t>(pair + 1) * splitmix::kGamma) >> 11;
  return static_cast<double>(bits) * 0x1p-53 < val_fraction;
}

Question modular_sum(Draws& draws, int64_t modulus, double val_fraction, bool validates) {
  int64_t pair;
  do pair = static_cast<int64_t>(draws.below(static_cast<uint64_t>(modulus * modulus)));
  while (is_kept(pair, val_fraction) != validates);
  const auto numeral = [&](int64_t x) { return kNumerals[static_cast<size_t>(x % modulus)]; };
  const int64_t a = pair / modulus, b = pair % modulus;
  Question question;
  for (const char c : {numeral(a), '+', numeral(b), '='}) question.add(c, 1);  // does not count
  question.answer = numeral(a + b);
  return question;
}

}  // namespace

struct TaskDataset::Kind {
  const char* name;
  int64_t usual_size, least_size, largest_size;
  std::string_view characters;
  Question (*ask)(Draws&, int64_t size);  // null: modular addition
  const char* to_learn;
};

namespace {

const std::array<TaskDataset::Kind, 6> kKinds = {{
    {"addition", 3, 1, 64, "0123456789+=", addition,
     "A model must learn to pair digits of the same place, and to add them as a table. It must "
     "also see whether the places to the right carry, because it writes the highest digit first."},
    {"brackets", 8, 1, 64, "()[]=", brackets,
     "A model must learn which brackets are still open: a stack. To close the next one it looks "
     "for the last that nothing closes, at any distance."},
    {"copy", 8, 1, 64, "abcdefghijklmnopqrstuvwxyz=", copy,
     "A model must learn to look back by a fixed distance, which attention by position does. One "
     "layer and one head are enough, if positions tell it where it is."},
    {"modular", 61, 2, 62,
     "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+=", nullptr,
     "A model can learn the answers to training's questions by heart, and then validation shows "
     "that it has learned nothing. To answer the others it must find that numbers go round in a "
     "circle, which takes many more steps and weight decay."},
    {"reverse", 8, 1, 64, "abcdefghijklmnopqrstuvwxyz=", reverse,
     "A model must learn to look back by a distance that grows by two with every character. So it "
     "must compute where to look from where it is, as copying need not."},
    {"sorting", 8, 1, 64, "0123456789=", sorting,
     "A model must learn to count: how often each digit is in the question, and how many of them "
     "are written. Attention that averages over the question does that."},
}};

const TaskDataset::Kind& kind_of(const std::string& name) {
  for (const auto& kind : kKinds)
    if (kind.name == name) return kind;
  std::string names;
  for (const std::string& each : task_names()) names += (names.empty() ? "" : ", ") + each;
  detail::fail({"--data task:", printable(name, 60), ": there is no such task; there are ", names});
}

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

TaskDataset::TaskDataset(const std::string& task, int64_t size, double val_fraction)
    : FreshDataset(20'000),
      kind_(&kind_of(task)),
      size_(size == 0 ? kind_->usual_size : size),
      val_fraction_(val_fraction),
      tokenizer_(distinct_characters(std::string(kind_->characters) + "\n")) {
  INK_CHECK(size_ >= kind_->least_size && size_ <= kind_->largest_size, "task:", task,
            ": expected a size (--task_digits) of ", kind_->least_size, " to ", kind_->largest_size,
            ", got ", size);
  INK_CHECK(val_fraction >= 0 && val_fraction <= 1, "task:", task,
            ": expected val_fraction in [0, 1], got ", val_fraction);
  if (kind_->ask != nullptr) return;
  int64_t kept = 0;
  for (int64_t pair = 0; pair < size_ * size_; ++pair) kept += is_kept(pair, val_fraction);
  INK_CHECK(kept > 0 && kept < size_ * size_, "task:modular: a --val_fraction of ", val_fraction,
            " keeps ", kept, " of the ", size_ * size_,
            " questions for validation; expected some to validate on and some to train on, as with "
            "0.5");
}

std::string TaskDataset::summary() const {
  Draws draws(1, 0);
  const Question example =
      kind_->ask ? kind_->ask(draws, size_) : modular_sum(draws, size_, 0.5, true);
  TextStream text;
  text << "task:" << kind_->name << ", such as " << example.text << example.answer;
  if (!kind_->ask) text << " (the digits 0-9a-zA-Z, modulo " << size_ << ")";
  text << ", vocabulary of " << tokenizer_.vocab_size() << " (" << tokenizer_.name() << "). "
       << kind_->to_learn;
  return text.str();
}

// A row's text is one character longer than the row: x is all but the last, y all but the first.
void TaskDataset::fill_row(uint64_t seed, uint64_t index, bool validates, Row row) const {
  const size_t length = row.x.size() + 1;
  INK_CHECK(kind_->ask != nullptr || length > 4, "task:modular: a block of ", length - 1,
            " holds no answer; expected a --block_size of 4 or more");
  Draws draws(seed, index);
  std::string text;
  std::vector<float> best;
  std::vector<uint8_t> marks;  // Batch::answer
  while (text.size() < length) {
    const Question q =
        kind_->ask ? kind_->ask(draws, size_) : modular_sum(draws, size_, val_fraction_, validates);
    const bool whole = text.size() + q.text.size() + q.answer.size() + 1 <= length;
    text += q.text + q.answer + "\n";
    best.insert(best.end(), q.best_possible.begin(), q.best_possible.end());
    best.resize(text.size(), 0);
    marks.resize(text.size() - q.answer.size() - 1, 0);
    marks.resize(text.size(), whole ? 1 : 0);
    if (whole) marks.back() = 2;
    if (!kind_->ask)  // the question does not count
      for (size_t i = 0; i < q.text.size(); ++i) marks[marks.size() - q.answer.size() - 2 - i] = 3;
  }
  text.resize(length);
  const std::vector<int64_t> ids = tokenizer_.encode(text);
  for (size_t i = 0; i + 1 < length; ++i) {
    row.x[i] = ids[i];
    row.y[i] = marks[i + 1] == 3 ? kIgnored : ids[i + 1];
    row.best_possible[i] = best[i + 1];
    row.answer[i] = marks[i + 1] == 3 ? 0 : marks[i + 1];
  }
}

}  // namespace ink
