// The parts of lessons: programs that are read, run, and compared with what they should print.
//
// A lesson is one source file. Its first comment is a title and an introduction; then comes a
// struct derived from Notebook, whose members are read from top to bottom:
//   // ---- 1. Title           begins a step
//   // Text                    explains the code after it, and has the same indentation
//   void step_1() { ... }      runs; print(...) in it shows what Python's print would
// Anything else is code that the steps use. The same file is compiled into the program
// and kept in it as text, from which `inkling lesson` prints the page.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"

namespace ink {

/// Does every row, along the last dimension, sum to 1? The sums may differ from 1 in their last
/// bit, and from one machine to the next.
inline bool sums_to_one(const Tensor& weights) {
  const Tensor sums = sum(weights, {-1});
  return allclose(sums, ones_like(sums));
}

/// An argument of print: a value, as Python shows it.
struct Text {
  Text(const Tensor& x) : value(x.to_string()) {}
  Text(bool x) : value(x ? "True" : "False") {}
  Text(const char* x) : value(x) {}
  Text(const std::string& x) : value(x) {}
  template <class Integer>
  requires(std::is_integral_v<Integer>) Text(Integer x) : value(std::to_string(x)) {}
  template <class Number>
  requires(std::is_floating_point_v<Number>) Text(Number)
  = delete;                                       // say with how many digits
  Text(const Shape& x);                           // torch.Size([2, 3])
  Text(const std::map<std::string, int64_t>& x);  // {'a': 0, 'b': 1}
  std::string value;
};

/// A number with so many digits after the point, as Python's f"{x:.2f}".
std::string fixed(double x, int digits);
/// Sizes, strides or dimensions as Python shows a tuple: (3, 1).
std::string tuple(const Shape& x);
/// The text of the error that f throws.
std::string message_of(const std::function<void()>& f);

/// The output of one call of print, and the line of the call in the source.
struct Printed {
  int step, line;
  std::string text;
};

class Notebook {
 public:
  std::vector<Printed> printed;
  int running = 0;  // the step that runs

 protected:
  /// The first argument of print, and the line of the call in the source. (Clang 14 has no
  /// std::source_location.)
  struct First {
    template <class T>
    First(const T& x, int source_line = __builtin_LINE()) : text(x), line(source_line) {}
    Text text;
    int line;
  };
  template <class... More>
  void print(const First& first, const More&... more) {
    std::string text = first.text.value;
    ((text += " " + Text(more).value), ...);
    if (text.ends_with('\n')) text.pop_back();
    printed.push_back({running, first.line, std::move(text)});
  }
};

struct Lesson {
  std::string name;
  std::string source;  // the text of its file
  int steps;
  /// Runs steps 1 .. n, and leaves options of printing, context and generator as they were.
  std::function<std::vector<Printed>(int n)> run;
};

/// A lesson from a struct N and its steps, in order.
template <class N>
Lesson lesson(const std::string& name, const std::vector<void (N::*)()>& steps);

/// All lessons in reading order: those with numbers, then the walkthroughs.
std::vector<Lesson> lessons();
/// The five that follow PyTorch notebooks to the same digits.
std::vector<Lesson> walkthroughs();

/// A piece of the page: what a terminal shows in one style.
struct Piece {
  enum Kind { title, prose, code, output } kind;
  std::string text;  // lines, without the last line's end
};
/// The page of steps 1 .. n in reading order; with n = 0 title and introduction only.
std::vector<Piece> page(const Lesson& lesson, int n);

/// A step that says "Here: FILE": its title, its lines of code, and the library's files that it
/// names.
struct PartOfBridge {
  std::string title;
  int64_t lines;
  std::vector<std::string> files;
};
/// Lines of code of a step are those before its step_N(), or of that where there are none before.
std::vector<PartOfBridge> bridge_parts(const std::string& source);
/// Lines that are neither empty nor comment.
int64_t code_lines(const std::string& text);

namespace detail {
std::string lesson_source(const std::string& name);  // made by cmake/EmbedTexts.cmake
/// Runs f, and then restores what it may have changed.
void run_apart(const std::function<void()>& f);
}  // namespace detail

template <class N>
Lesson lesson(const std::string& name, const std::vector<void (N::*)()>& steps) {
  const auto run = [steps](int n) {
    std::vector<Printed> printed;
    detail::run_apart([&] {
      N notebook;
      for (int i = 0; i < n; ++i) {
        notebook.running = i + 1;
        (notebook.*steps[static_cast<size_t>(i)])();
      }
      printed = std::move(notebook.printed);
    });
    return printed;
  };
  return {name, detail::lesson_source(name), static_cast<int>(steps.size()), run};
}

// One for each file.
Lesson lesson_0();
Lesson lesson_1();
Lesson lesson_2();
Lesson lesson_3();
Lesson lesson_4();
Lesson lesson_5();
Lesson lesson_6();
Lesson lesson_7();
Lesson lesson_8();
Lesson lesson_9();
Lesson lesson_10();
Lesson lesson_11();
Lesson lesson_12();
Lesson attention_from_scratch();
Lesson self_attention_sentence();
Lesson padding_and_cache();
Lesson average_to_attention();
Lesson the_averaging_trick();

}  // namespace ink
