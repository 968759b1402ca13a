// Gradients: by hand, by backward, and by differences
//
// The gradient of a loss with respect to a tensor holds a derivative for each of its elements. You
// can derive it on paper, let backward compute it, or move an element a little and measure how the
// loss changes. Afterwards you can tell whether a gradient is right, whoever derived it.
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
    // A line is fitted to four points. w holds its intercept and its slope, so each row of x is 1
    // and the position of a point. The loss is the mean of (x w - y)^2. Each of the n points adds
    // (x w - y)^2 / n to the loss and 2 (x w - y) x / n to the gradient. Together these are
    // 2 x^T (x w - y) / n.
    const Tensor x = tensor({{1.0, 0.0}, {1.0, 1.0}, {1.0, 2.0}, {1.0, 3.0}});
    const Tensor y = tensor({1.0, 3.0, 5.0, 7.0});
    Tensor w = tensor({0.5, 1.0});
    print("by hand: ", 2 * matmul(x.T(), matmul(x, w) - y) / 4);

    // After requires_grad_, ops on w record a graph, the tape of lesson 0. backward goes back
    // through it, and leaves the gradient in w.grad().
    w.requires_grad_();
    const Tensor loss = mean(square(matmul(x, w) - y));
    loss.backward();
    print("backward:", w.grad());
  }

  // ---- 2. Softmax and cross-entropy

  void step_2() {
    // A classifier gives each class a score, its logit. p = softmax(logits) turns the scores into
    // probabilities, and the cross-entropy is -log p[target]. On paper nearly everything cancels:
    // the gradient is p - 1 for the target, and p for every other class.
    Tensor logits = tensor({{2.0, 1.0, -1.0}});  // one example, three classes
    const Tensor target = tensor({0});
    print("by hand: ", softmax(logits, -1) - tensor({1.0, 0.0, 0.0}));

    logits.requires_grad_();
    cross_entropy(logits, target).backward();
    print("backward:", logits.grad());
  }

  // ---- 3. By differences: how far should an element move?

  void step_3() {
    // The central difference (f(x + h) - f(x - h)) / 2h differs from the derivative by about
    // h^2 f'''(x) / 6. So a tenth of h gives a hundredth of the error. The example is exp at x = 1,
    // where the derivative is e.
    const auto error = [](double h) {
      return std::abs((std::exp(1 + h) - std::exp(1 - h)) / (2 * h) - std::exp(1));
    };
    for (const double h : {1e-1, 1e-2, 1e-3})
      print("h =", fixed(h, 3), "error", fixed(error(h), 8));

    // But f is known to 16 digits only. The smaller h is, the more of them cancel in the
    // difference. Below about h = 1e-5, this rounding error is the larger one. In f32, which has 7
    // digits, no h is good. So gradients are checked in f64.
    print("h = 1e-12 is worse than 1e-6:", error(1e-12) > error(1e-6));
  }

  // ---- 4. gradcheck: by differences

  void step_4() {
    // gradcheck takes a function and its inputs. It compares every element of their gradients with
    // a central difference. (It multiplies what the function gives by random numbers and sums it
    // up, because backward starts from one number.) a has 12 elements and b has 4. Of a tensor with
    // more than 100 it compares four sums of all its derivatives, each times random numbers.
    manual_seed(1);
    const Tensor a = randn({3, 4}, f64).requires_grad_(), b = randn({4}, f64).requires_grad_();
    const auto f = [](const std::vector<Tensor>& in) {
      return tanh(in[0] * in[1]) / (1 + exp(in[1]));
    };
    const GradcheckReport report = gradcheck(f, {a, b});
    print("right:", report.ok, "elements:", report.checked);

    // Here is an op with a mistake: the derivative of x^2 is 2 x, and its author forgot the 2.
    // (Lesson 3 says how ops are written.) The report of gradcheck holds both derivatives of the
    // worst element: the analytic one is backward's, and the numeric one is the difference.
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
    // Every backward adds to the gradients that are there, so that a large batch can come in parts.
    // Therefore a training loop clears the gradients in each step.
    Tensor x = tensor({1.0, 2.0}).requires_grad_();
    sum(square(x)).backward();
    sum(square(x)).backward();
    print(x.grad());

    // detach gives the same numbers as a constant, outside of any graph. If one x is detached, the
    // gradient of x * x is x instead of 2 x.
    x.set_grad({});  // clears it
    sum(x * x.detach()).backward();
    print(x.grad());

    // grad returns gradients instead of adding them to x.grad(). With create_graph it records what
    // it computes, so that a gradient has a gradient, too. x^3 has the derivatives 3 x^2 and 6 x.
    const Tensor cubes = sum(x * x * x);
    const Tensor first =
        grad(cubes, x, /*grad_outputs=*/{}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const Tensor second = grad(sum(first), x)[0];
    print("first ", first.detach());
    print("second", second);

    // To try: derive the gradient of mean(sigmoid(x)) on paper, and compare. Then run gradcheck on
    // relu at 0, where it has no derivative. What is numeric in the report, and what is analytic?
  }
};

}  // namespace

Lesson lesson_2() {
  using N = Lesson2;
  return lesson<N>("2_gradients", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
