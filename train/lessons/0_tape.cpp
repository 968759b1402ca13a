// A tape: autograd for single numbers
//
// Training needs the derivative of the loss with respect to every parameter: its gradient. Autograd
// computes gradients from a record of the operations that led to the loss. The record is called a
// tape or a graph. This lesson builds an autograd for single numbers, without the library. It has
// three parts: the record, an order in which to go back through it, and the chain rule. Every
// autograd engine has these parts, but works on tensors and knows more operations (ops).
//
// In all lessons, print shows values as Python does, and fixed(x, 2) is the number x with two
// digits after the point.
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
  // A number keeps its inputs: the numbers that it was computed from. With each input it keeps a
  // slope: the derivative of the number with respect to this input. The pointers are shared, so an
  // input lives as long as any number that was computed from it. (All of this stands inside a
  // class, so that a function may use one that comes later, and static means a plain function.)
  struct Number;
  using Value = std::shared_ptr<Number>;
  struct Number {
    double data;
    std::vector<std::pair<Value, double>> inputs;  // each with its slope; empty if data was given
    double grad = 0;                               // d loss / d data, once backward has run

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
  static Value number(double data, std::vector<std::pair<Value, double>> inputs = {}) {
    return std::make_shared<Number>(Number{data, std::move(inputs)});
  }

  void step_1() {
    // The example is f = x y + x at x = 2 and y = -3.
    const Value x = number(2), y = number(-3);
    const Value product = x * y, f = product + x;
    print("f =", fixed(f->data, 1));

    // The derivative of x y with respect to x is y, which is -3. With respect to y it is x.
    for (const auto& [input, slope] : product->inputs)
      print("input", fixed(input->data, 1), "slope", fixed(slope, 1));
  }

  // ---- 2. An order in which inputs come first
  //
  // Gradients are computed from the result back to the inputs. A number may be used several times,
  // as x is above, and each use adds to its gradient. So a number must wait until all numbers that
  // use it are done. Here they are listed in a topological order: inputs come before results.
  // backward will go through this list from its end.
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
  // The gradient of the loss with respect to itself is 1. By the chain rule, a number adds its own
  // gradient, times the slope, to the gradient of each of its inputs.
  static void backward(const Value& loss) {
    const std::vector<Value> order = topological_order(loss);
    loss->grad = 1;
    for (auto value = order.rbegin(); value != order.rend(); ++value)
      for (const auto& [input, slope] : (*value)->inputs) input->grad += (*value)->grad * slope;
  }

  void step_3() {
    // x gets -3 through the product and 1 through the sum, which makes -2. y gets 2.
    const Value x = number(2), y = number(-3);
    backward(x * y + x);
    print("df/dx =", fixed(x->grad, 1), "df/dy =", fixed(y->grad, 1));
  }

  // ---- 4. One neuron learns
  //
  // A neuron computes tanh(w x + b). The loss, squared_error, says how far this is from a target.
  // It is a template, so that step 5 can compute the same loss with the tensors of the library.
  template <class V>
  static V squared_error(const V& w, const V& b, const V& x, const V& target) {
    const V error = tanh(w * x + b) - target;
    return error * error;
  }

  void step_4() {
    // Each step moves w and b a little against their gradients, so the loss falls. At the end of a
    // step, `loss` goes out of scope, and the record of the step is freed with it.
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

  // ---- 5. The same loss in inkling

  void step_5() {
    // requires_grad_ says that a tensor is to get a gradient. backward leaves it in grad().
    const Value w = number(-1), b = number(0.5);
    backward(squared_error(w, b, number(2), number(0.8)));
    print("tape:    dw =", fixed(w->grad, 6), "db =", fixed(b->grad, 6));

    Tensor w2 = tensor(-1.0, f64), b2 = tensor(0.5, f64);
    w2.requires_grad_();
    b2.requires_grad_();
    squared_error(w2, b2, tensor(2.0, f64), tensor(0.8, f64)).backward();
    print("inkling: dw =", fixed(w2.grad().item(), 6), "db =", fixed(b2.grad().item(), 6));

    // inkling's engine (autograd/engine/graph.h) differs in two things. It sorts nothing: the order
    // in which ops ran is a topological order. And it keeps no slopes. Between two tensors, a slope
    // is a matrix (the Jacobian) with a row for each element of one and a column for each element
    // of the other. Instead an op stores a function that multiplies by this matrix, its vjp
    // (vector-Jacobian product): from the gradient of the output to those of the inputs.
    //
    // To try: add exp to the tape, and compare its gradient with inkling's. Then let a second
    // neuron read the output of the first, and train both in step 4.
  }
};

}  // namespace

Lesson lesson_0() {
  using N = Lesson0;
  return lesson<N>("0_tape", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
