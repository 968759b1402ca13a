#include "train/lessons/exercises/exercise.h"

#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>

#include "autograd/base/parallel.h"
#include "autograd/base/text.h"
#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/checks/progress.h"
#include "train/lessons/exercises/checks/texts.h"

namespace ink {
namespace {

// What an answer gave in one case: its outputs, or why there are none.
struct Outcome {
  Tensors outputs;
  std::string error = {};
  std::optional<std::string> not_written = {};
};

Outcome run(const Answer& answer, const Tensors& inputs) {
  try {
    return {answer(inputs)};
  } catch (const NotWritten& hole) {
    return {{}, {}, hole.function};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

struct Compared {
  bool same = false;
  std::string text;  // the worst element, or how the shapes differ
};

std::string index_text(int64_t i, const Shape& shape) {
  if (shape.empty()) return "";
  std::string text = "]";
  for (int64_t d = shape.size() - 1; d >= 0; --d) {
    text = (d ? ", " : "") + std::to_string(i % shape[d]) + text;
    i /= shape[d];
  }
  return "[" + text;
}

std::string number_text(double x) {
  TextStream out;
  out << std::setprecision(7) << x;
  return out.str();
}

// The largest number: differences give a gradient's elements to about a millionth of it.
double scale_of(const std::vector<double>& values) {
  double scale = 1e-3;
  for (const double value : values)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  return scale;
}

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference : inf;
}

Compared compare(const std::string& name, const Tensor& got, const Tensor& expected) {
  if (!got.defined()) return {false, name + " is undefined"};
  if (got.shape() != expected.shape())
    return {false, detail::joined(
                       {name, " has the shape ", got.shape(), ", expected ", expected.shape()})};
  const std::vector<double> a = got.to(f64).tolist(), b = expected.to(f64).tolist();
  if (a.empty()) return {true, name + " is empty"};
  size_t worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (distance(a[i], b[i]) > distance(a[worst], b[worst])) worst = i;
  const bool is_gradient = name[0] == 'd';
  const std::string here = name + index_text(static_cast<int64_t>(worst), got.shape()) +
                           (is_gradient ? ": yours " : ": ") + number_text(a[worst]) +
                           (is_gradient ? ", by differences " : ", expected ") +
                           number_text(b[worst]);
  return {distance(a[worst], b[worst]) <= 1e-6 * scale_of(b), here};
}

// Do two answers give the same in output i of every case?
bool alike(const std::vector<Outcome>& a, const std::vector<Outcome>& b, size_t i) {
  for (size_t c = 0; c < a.size(); ++c) {
    if (a[c].not_written || a[c].error.empty() != b[c].error.empty()) return false;
    if (!a[c].error.empty()) continue;
    if (i >= a[c].outputs.size() || i >= b[c].outputs.size()) return false;
    if (!b[c].outputs[i].defined()) return false;
    if (!compare("y", a[c].outputs[i], b[c].outputs[i]).same) return false;
  }
  return true;
}

std::vector<Outcome> run_all(const Answer& answer, const std::vector<Case>& cases) {
  std::vector<Outcome> outcomes;
  for (const Case& c : cases) outcomes.push_back(run(answer, c.inputs));
  return outcomes;
}

Tensors copies(const Tensors& inputs) {
  Tensors result;
  for (const Tensor& x : inputs) result.push_back(x.detach().clone());
  return result;
}

// Goes through the cases of a task and says what is right.
class TaskCheck {
 public:
  TaskCheck(const Task& task, std::ostream& out) : task_(task), out_(out) {}

  bool passes() {
    out_ << task_.function << "\n";
    for (const Case& c : task_.cases) {
      expected_.push_back({task_.expected(c.inputs)});
      const Tensors before = copies(c.inputs);
      got_.push_back(run(task_.answer, c.inputs));
      if (got_.back().not_written) {
        out_ << "  " << *got_.back().not_written
             << " is not written yet: its todo() still stands there\n";
        return false;
      }
      show(c, before);
    }
    if (task_.afterwards) right_ = task_.afterwards(out_) && right_;
    if (!right_) name_mistakes();
    return right_;
  }

 private:
  void show(const Case& c, const Tensors& before) {
    const Outcome &got = got_.back(), &expected = expected_.back();
    if (!got.error.empty())
      return line(false, c.name,
                  "it throws: " + got.error +
                      (got.error.find("broadcast") == std::string::npos
                           ? ""
                           : " (A sum drops its dimension, unless keepdim is true.)"));
    if (got.outputs.size() != expected.outputs.size())
      return line(false, c.name,
                  "it returns " + std::to_string(got.outputs.size()) + " tensors, expected " +
                      std::to_string(expected.outputs.size()));
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      const Compared found = compare(task_.outputs[i], got.outputs[i], expected.outputs[i]);
      line(found.same, c.name, found.text);
    }
    for (size_t i = 0; i < before.size(); ++i)
      if (!compare("x", c.inputs[i], before[i]).same)
        return line(false, c.name, "it changes its inputs; it should leave them as they are");
  }

  void line(bool right, const std::string& name, const std::string& text) {
    right_ = right_ && right;
    out_ << (right ? "  right  " : "  WRONG  ") << std::left << std::setw(34) << name << " " << text
         << "\n";
  }

  void name_mistakes() {
    for (const Mistake& mistake : task_.mistakes) {
      const std::vector<Outcome> wrong = run_all(mistake.answer, task_.cases);
      for (size_t i = 0; i < task_.outputs.size(); ++i) {
        if (!alike(got_, wrong, i) || alike(expected_, wrong, i)) continue;
        out_ << "  " << mistake.sentence << "\n";
        break;
      }
    }
  }

  const Task& task_;
  std::ostream& out_;
  std::vector<Outcome> expected_, got_;
  bool right_ = true;
};

// A recursion that is too deep ends the program, with a word on why.
void stack_overflow(int) {
  constexpr char kText[] =
      "\nYour function ran out of stack, or it used memory that is not its own. Each call of a\n"
      "recursion takes some of the stack: keep a list of what is left to do, and loop over it.\n";
  static_cast<void>(!write(STDOUT_FILENO, kText, sizeof kText - 1));
  _exit(1);
}

void explain_stack_overflow() {
  static char stack[1 << 16];
  stack_t alternative = {};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_handler = stack_overflow;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

// What a right answer is told: how the library does it, and what is next. file: the reader's.
void show_success(const Exercise& exercise, const std::string& file, const std::string& answer) {
  const std::filesystem::path checkout = std::filesystem::path(file).parent_path().parent_path();
  std::cout << "\nIn the library: " << place_of(exercise.library, checkout) << "\n"
            << in_lines(exercise.library.why, "  ");
  if (!exists(std::filesystem::path(file))) return;
  ReaderProgress progress(checkout);
  if (!progress.note("right", exercise.name, answer))
    std::cout << "\nexercises/progress.txt cannot be written: this will not show as solved.\n";
  const std::vector<Exercise> list = exercises();
  const auto solved = std::count_if(list.begin(), list.end(), [&](const Exercise& e) {
    return e.name == exercise.name || state_of(e, checkout) == ExerciseState::solved;
  });
  std::cout << "\n" << solved << " of " << list.size() << " are solved.";
  for (const Exercise& e : list) {
    if (e.name == exercise.name || state_of(e, checkout) == ExerciseState::solved) continue;
    std::cout << " Next: ./run.sh exercise " << number_of(e);
    break;
  }
  std::cout << "\n";
}

}  // namespace

bool check(const Exercise& exercise, std::ostream& out) {
  const ContextGuard guard;
  context().default_dtype = f64;
  out << title_of(exercise_source(exercise.name)) << "\n\n";
  bool right = true;
  for (const Task& task : exercise.tasks) {
    right = TaskCheck(task, out).passes() && right;
    out << std::flush;
    if (!right && exercise.is_a_row) break;
  }
  if (right && exercise.finale) right = exercise.finale(out);
  out << (right ? "\nAll is right.\n" : "\nNot yet.\n");
  return right;
}

int run_check(char** argv, const std::function<Exercise()>& exercise) {
  set_wait_policy(argv);
  explain_stack_overflow();
  const std::string file = argv[0] != nullptr && argv[1] != nullptr ? argv[1] : "";
  const std::string answer = text_in(file);
  try {
    const Exercise made = exercise();
    if (const size_t line = plain_shared_array(answer)) {
      std::cout << in_lines("line " + std::to_string(line) +
                                ": an array in shared memory is declared as `__shared__ "
                                "shared<float, 64> part;` here. Written as in CUDA, each thread "
                                "would have one of its own, and the check would not see it.",
                            "");
    } else if (check(made, std::cout)) {
      show_success(made, file, answer);
      return 0;
    }
    std::cout << "A hint: ./run.sh exercise " << number_of(made) << " --hint\n";
    const std::filesystem::path checkout = std::filesystem::path(file).parent_path().parent_path();
    if (!file.empty() && state_of(made, checkout) == ExerciseState::changed)
      ReaderProgress(checkout).note("wrong", made.name, answer);
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
  }
  return 1;
}

Tensor difference(const std::function<Tensor(const Tensors&)>& f, Tensors inputs, size_t which,
                  const Tensor& dy) {
  constexpr double kStep = 1e-6;
  const NoGrad no_grad;
  const Tensor x = inputs[which].detach();
  const std::vector<double> values = x.tolist(), weights = dy.tolist();
  std::vector<double> gradient(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto outputs_at = [&](double step) {
      std::vector<double> moved = values;
      moved[i] += step;
      inputs[which] = from_vector(moved, x.shape());
      return f(inputs).tolist();
    };
    const std::vector<double> above = outputs_at(kStep), below = outputs_at(-kStep);
    for (size_t k = 0; k < above.size(); ++k)
      if (above[k] != below[k]) gradient[i] += weights[k] * (above[k] - below[k]) / (2 * kStep);
  }
  return from_vector(gradient, x.shape());
}

Answer gradients(const Answer& f, size_t count) {
  return [=](const Tensors& in) {
    Tensors result;
    for (size_t i = 1; i <= count; ++i)
      result.push_back(difference([&](const Tensors& x) { return f(x)[0]; }, in, i, in[0]));
    return result;
  };
}

Tensor noise(uint64_t seed, const Shape& shape) {
  Generator generator(seed);
  return randn(shape, f64, generator);
}

Tensor scalar(double x) { return tensor(x, f64); }
Tensor list(const Ints& x) { return from_vector(x, {std::ssize(x)}); }

Case noise_case(const std::string& name, const std::vector<Shape>& shapes) {
  Case result{name, {}};
  for (const Shape& shape : shapes) result.inputs.push_back(noise(result.inputs.size() + 1, shape));
  return result;
}

Tensor transposed_in_memory(const Tensor& x) {
  return x.transpose(-2, -1).clone().contiguous().transpose(-2, -1);
}

}  // namespace ink
