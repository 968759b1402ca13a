// What the walkthroughs are written with: programs to be read, run and compared with PyTorch.
//
// A walkthrough is one source file. Its first comment is a title and an introduction; then comes a
// struct derived from Notebook, whose members are read from top to bottom:
//   // ---- 1. Title           begins a step
//   // Text                    explains, at the indentation of what it stands before
//   void step_1() { ... }      runs; print(...) in it shows what Python's print would
// Whatever else is there is code that the steps use. The same file is compiled into the program
// and kept in it as text, from which `inkling walkthrough` prints the page.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"

namespace ink {

/// Does every row, along the last dimension, sum to 1? The sums themselves may differ from it in
/// their last bit, and differ from one machine to the next.
inline bool sums_to_one(const Tensor& weights) {
  const Tensor sums = sum(weights, {-1});
  return allclose(sums, ones_like(sums));
}

/// What print takes: a value, as Python shows it.
struct Text {
  Text(const Tensor& x) : value(x.to_string()) {}
  Text(bool x) : value(x ? "True" : "False") {}
  Text(const char* x) : value(x) {}
  Text(const std::string& x) : value(x) {}
  Text(const Shape& x);                           // torch.Size([2, 3])
  Text(const std::map<std::string, int64_t>& x);  // {'a': 0, 'b': 1}
  std::string value;
};

/// What one call of print printed, and the line of the source that it stands in.
struct Printed {
  int step, line;
  std::string text;
};

class Notebook {
 public:
  std::vector<Printed> printed;
  int step = 0;  // the one that runs

 protected:
  /// Of the source. Not std::source_location, because Clang 14 has none.
  struct Line {
    Line(int n) : number(n) {}
    int number;
  };
  void print(const Text& a, Line line = __builtin_LINE()) {
    printed.push_back({step, line.number, a.value});
  }
  void print(const Text& a, const Text& b, Line line = __builtin_LINE()) {
    print(a.value + " " + b.value, line);
  }
  void print(const Text& a, const Text& b, const Text& c, Line line = __builtin_LINE()) {
    print(a.value + " " + b.value + " " + c.value, line);
  }
};

struct Walkthrough {
  std::string name;
  std::string source;  // the text of its file
  int steps;
  /// Runs steps 1 .. n, and leaves options of printing, context and generator as they were.
  std::function<std::vector<Printed>(int n)> run;
};

/// A walkthrough of a struct N and its steps, in order.
template <class N>
Walkthrough walkthrough(const std::string& name, const std::vector<void (N::*)()>& steps);

/// All five, in the order to read them.
std::vector<Walkthrough> walkthroughs();

/// A piece of the page: what a terminal shows in one style.
struct Piece {
  enum Kind { title, prose, code, output } kind;
  std::string text;  // lines, without the last line's end
};
/// The page of steps 1 .. n in reading order; with n = 0 title and introduction only.
std::vector<Piece> page(const Walkthrough& w, int n);

namespace detail {
std::string walkthrough_source(const std::string& name);  // made by cmake/EmbedTexts.cmake
/// Runs f and then sets back what it may have changed.
void run_apart(const std::function<void()>& f);
}  // namespace detail

template <class N>
Walkthrough walkthrough(const std::string& name, const std::vector<void (N::*)()>& steps) {
  const auto run = [steps](int n) {
    std::vector<Printed> printed;
    detail::run_apart([&] {
      N notebook;
      for (int i = 0; i < n; ++i) {
        notebook.step = i + 1;
        (notebook.*steps[static_cast<size_t>(i)])();
      }
      printed = std::move(notebook.printed);
    });
    return printed;
  };
  return {name, detail::walkthrough_source(name), static_cast<int>(steps.size()), run};
}

// One for each file.
Walkthrough attention_from_scratch();
Walkthrough self_attention_sentence();
Walkthrough padding_and_cache();
Walkthrough average_to_attention();
Walkthrough the_averaging_trick();

}  // namespace ink
