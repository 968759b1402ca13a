// A tape: autograd for single numbers, without the library
//
// Training needs the derivative of the loss with respect to every parameter. This lesson computes
// it for single numbers, in three parts: a record of what was computed, an order in which to go
// back through it, and the chain rule. Afterwards you can read any autograd engine, because each
// consists of these three parts, with tensors for numbers and with more ops.
#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson0 : Notebook {
  // ---- 1. A number that remembers how it was computed
  //
  // Beside its value, a number keeps its inputs: the numbers that it was computed from. With each
  // input it keeps a slope: how fast the result grows when only that input grows.
  struct Number;
  using Value = std::shared_ptr<Number>;
  static Value number(double data, std::vector<std::pair<Value, double>> inputs = {}) {
    return std::make_shared<Number>(Number{data, std::move(inputs)});
  }
  struct Number {
    double data;
    std::vector<std::pair<Value, double>> inputs;  // and their slopes; none: it was given
    double grad = 0;                               // d loss / d this number, after backward

    friend Value operator+(const Value& a, const Value& b) {
      return number(a->data + b->data, {{a, 1}, {b, 1}});
    }
    friend Value operator-(const Value& a, const Value& b) {
      return number(a->data - b->data, {{a, 1}, {b, -1}});
    }
    friend Value operator*(const Value& a, const Value& b) {
      return number(a->data * b->data, {{a, b->data}, {b, a->data}});
    }
    friend Value tanh(const Value& x) {
      const double t = std::tanh(x->data);
      return number(t, {{x, 1 - t * t}});
    }
  };

  void step_1() {
    // Take x y + x at x = 2 and y = -3.
    const Value x = number(2), y = number(-3);
    const Value product = x * y, f = product + x;
    print("f =", fixed(f->data, 1));

    // The product grows by -3 for each unit of x, because y is -3. It grows by 2 for each of y.
    for (const auto& [input, slope] : product->inputs)
      print("input", fixed(input->data, 1), "slope", fixed(slope, 1));
  }

  // ---- 2. An order in which inputs come first
  //
  // A number may be used several times, as x is above. Its gradient is complete only when every
  // number that uses it has contributed. So we list the numbers in a topological order, in which
  // inputs come before results. Backward will walk this list from its end.
  static void list_inputs_first(const Value& x, std::set<Value>& seen, std::vector<Value>& order) {
    if (!seen.insert(x).second) return;  // it is in the list already
    for (const auto& [input, slope] : x->inputs) list_inputs_first(input, seen, order);
    order.push_back(x);
  }
  static std::vector<Value> topological_order(const Value& result) {
    std::set<Value> seen;
    std::vector<Value> order;
    list_inputs_first(result, seen, order);
    return order;
  }

  void step_2() {
    // In order: x, y, x y, and x y + x.
    const Value x = number(2), y = number(-3);
    for (const Value& value : topological_order(x * y + x)) print(fixed(value->data, 1));
  }

  // ---- 3. Backward: the chain rule, from the last number to the first
  //
  // The gradient of a number is d loss / d number. That of the loss itself is 1. Every number hands
  // each of its inputs its own gradient times the slope, and contributions to one input add up.
  static void backward(const Value& loss) {
    const std::vector<Value> order = topological_order(loss);
    loss->grad = 1;
    for (auto value = order.rbegin(); value != order.rend(); ++value)
      for (const auto& [input, slope] : (*value)->inputs) input->grad += (*value)->grad * slope;
  }

  void step_3() {
    // x gets -3 through the product and 1 through the sum. y gets 2.
    const Value x = number(2), y = number(-3);
    backward(x * y + x);
    print("df/dx =", fixed(x->grad, 1), "df/dy =", fixed(y->grad, 1));
  }

  // ---- 4. One neuron learns
  //
  // It is a template, because step 5 computes the same expression with tensors.
  template <class V>
  static V squared_error(const V& w, const V& b, const V& x, const V& target) {
    const V error = tanh(w * x + b) - target;
    return error * error;
  }

  void step_4() {
    // Each step moves w and b a little against their gradients, so that the loss falls. Then the
    // record of the step is freed together with `loss`. Only w and b live on.
    const Value w = number(-1), b = number(0.5), x = number(2), target = number(0.8);
    for (int step = 0; step <= 30; ++step) {
      const Value loss = squared_error(w, b, x, target);
      if (step % 10 == 0) print("step", step, "loss", fixed(loss->data, 4));
      w->grad = b->grad = 0;
      backward(loss);
      w->data -= 0.05 * w->grad;
      b->data -= 0.05 * b->grad;
    }
  }

  // ---- 5. The same expression in inkling

  void step_5() {
    const Value w = number(-1), b = number(0.5);
    backward(squared_error(w, b, number(2), number(0.8)));
    print("tape:    dw =", fixed(w->grad, 6), "db =", fixed(b->grad, 6));

    Tensor w2 = tensor(-1.0, f64), b2 = tensor(0.5, f64);
    w2.requires_grad_();
    b2.requires_grad_();
    squared_error(w2, b2, tensor(2.0, f64), tensor(0.8, f64)).backward();
    print("inkling: dw =", fixed(w2.grad().item(), 6), "db =", fixed(b2.grad().item(), 6));

    // The engine (autograd/engine/graph.h) differs in two things. It numbers ops as they run, which
    // is a topological order already. And it has no slopes, because between two tensors a slope
    // would be a huge matrix. Instead an op stores its vjp (vector-Jacobian product): a function
    // from the gradient of its output to the gradients of its inputs.
    //
    // To try: add exp to the tape, and compare its gradient with inkling's. Then let step 4 learn
    // two neurons in a row.
  }
};

}  // namespace

Lesson lesson_0() {
  using N = Lesson0;
  return lesson<N>("0_tape", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
