// Gradients: by hand, by backward, and by differences
//
// A gradient says how fast a loss changes with each element of a tensor. Here one is derived on
// paper, computed by backward, and measured by moving the element. Afterwards you can tell whether
// a gradient is right, whoever derived it.
#include <cmath>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/inspect/gradcheck.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson2 : Notebook {
  // ---- 1. By hand, and by backward

  void step_1() {
    // A line is fitted to four points. The loss is the mean of (x w - y)^2. Its derivative with
    // respect to w is 2 x^T (x w - y) / n, because each of the n squares contributes
    // 2 (x w - y) x / n.
    const Tensor x = tensor({{1.0, 0.0}, {1.0, 1.0}, {1.0, 2.0}, {1.0, 3.0}});
    const Tensor y = tensor({1.0, 3.0, 5.0, 7.0});
    Tensor w = tensor({0.5, 1.0});
    const Tensor by_hand = matmul(x.T(), matmul(x, w) - y) * 2 / 4;
    print(by_hand);

    // backward walks the graph that the ops recorded, and leaves the gradient in w.grad().
    w.requires_grad_();
    const Tensor loss = mean(square(matmul(x, w) - y));
    loss.backward();
    print(w.grad());
  }

  // ---- 2. Softmax and cross-entropy

  void step_2() {
    // A result to remember. With p = softmax(logits), the loss is -log p[target]. On paper nearly
    // everything cancels: the derivative with respect to the logits is p - 1 at the target, and p
    // elsewhere.
    Tensor logits = tensor({{2.0, 1.0, -1.0}});
    const Tensor target = tensor({0});
    print(softmax(logits, -1) - tensor({1.0, 0.0, 0.0}));

    logits.requires_grad_();
    cross_entropy(logits, target).backward();
    print(logits.grad());
  }

  // ---- 3. By differences: how far should an element move?

  void step_3() {
    // The derivative of exp at 1 is e. The central difference (f(1 + h) - f(1 - h)) / 2h has an
    // error of about h^2 f'''(1) / 6. So a tenth of h gives a hundredth of the error.
    const auto error = [](double h) {
      return std::abs((std::exp(1 + h) - std::exp(1 - h)) / (2 * h) - std::exp(1));
    };
    for (const double h : {1e-1, 1e-2, 1e-3})
      print("h =", fixed(h, 3), "error", fixed(error(h), 8));

    // But f is known to 16 digits only, and the smaller h is, the more of them cancel in the
    // difference. Below h = 1e-6, rounding wins. In f32, which has 7 digits, no h is good. So
    // gradients are checked in f64.
    print("h = 1e-12 is worse than 1e-6:", error(1e-12) > error(1e-6));
  }

  // ---- 4. gradcheck: every element, by differences

  void step_4() {
    // gradcheck takes a function and its inputs. It compares every element of every gradient with
    // a central difference.
    manual_seed(1);
    const Tensor a = randn({3, 4}, f64).requires_grad_(), b = randn({4}, f64).requires_grad_();
    const auto f = [](const std::vector<Tensor>& in) {
      return tanh(in[0] * in[1]) / (1 + exp(in[1]));
    };
    const GradcheckReport report = gradcheck(f, {a, b});
    print("right:", report.ok, "elements:", report.checked);

    // Here is an op with a mistake: the derivative of x^2 is 2 x, and its author forgot the 2.
    // (Lesson 3 says how ops are written.) gradcheck finds the mistake, and its report names the
    // worst element.
    const auto wrong_square = [](const std::vector<Tensor>& in) {
      return record("wrong_square", {in[0]}, square(in[0].detach()),
                    [x = Saved::input(in[0])](const Tensor& dy) -> Grads { return {dy * *x}; });
    };
    const Tensor c = tensor({3.0}, f64).requires_grad_();
    const GradcheckReport found = gradcheck(wrong_square, {c});
    print("right:", found.ok, "numeric / analytic:", fixed(found.numeric / found.analytic, 3));
  }

  // ---- 5. What surprises everybody once

  void step_5() {
    // Gradients add up over calls of backward, so that a large batch can come in parts. Therefore a
    // training loop clears them in each step.
    Tensor x = tensor({1.0, 2.0}).requires_grad_();
    sum(square(x)).backward();
    sum(square(x)).backward();
    print(x.grad());

    // detach gives the same numbers without their history, as a constant. With one x detached, the
    // gradient of x * x is x instead of 2 x.
    x.set_grad({});
    sum(x * x.detach()).backward();
    print(x.grad());

    // A gradient has a gradient, too. With create_graph, backward itself is recorded. x^3 has the
    // derivatives 3 x^2 and 6 x.
    const Tensor cubes = sum(x * x * x);
    const Tensor first = grad({cubes}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const Tensor second = grad({sum(first)}, {x})[0];
    print(first.detach(), second);

    // To try: derive the gradient of mean(sigmoid(x)) on paper, and compare. Then gradcheck relu
    // at 0, where it has no derivative, and print the report. What do differences say, and what
    // does backward?
  }
};

}  // namespace

Lesson lesson_2() {
  using N = Lesson2;
  return lesson<N>("2_gradients", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
