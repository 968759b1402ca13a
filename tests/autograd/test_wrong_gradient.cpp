// Checks that name what is wrong: the op at fault, the parameters, the op that lost the graph.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "nn/gpt.h"
#include "nn/gradcheck_module.h"
#include "nn/linear.h"
#include "nn/multihead_attention.h"
#include "tests/support/error_of.h"
#include "train/cases/module_cases.h"
#include "train/cases/op_case_inputs.h"
#include "train/cli/command_line.h"

namespace ink {
namespace {

using Inputs = std::vector<Tensor>;

// x^2, whose gradient is `factor` x: 2 is right.
Tensor test_square(const Tensor& x, double factor) {
  return record(
      "test_square", {x}, square(x.detach()),
      [x = Saved::input(x), factor](const Tensor& dy) -> Grads { return {dy * *x * factor}; });
}
// x + y, which returns y's gradient twice where it adds to a sum.
Tensor test_add(const Tensor& x, const Tensor& y) {
  return record("test_add", {x, y}, x.detach() + y.detach(),
                [](const Tensor& dy, VjpContext& g) -> Grads {
                  const NoGrad no_grad;
                  Tensor sum = g.sum_so_far(1);
                  if (!sum.defined()) return {dy, dy};
                  return {dy, sum.add_(dy * 2)};
                });
}

Tensor leaf(const Shape& shape) { return randn(shape, f64).requires_grad_(); }

// A kernel whose output is off. By default a definition of the same name is right.
struct Scaled : Observer {
  explicit Scaled(std::string name, bool definitions_too = false)
      : wanted(std::move(name)), in_definitions(definitions_too) {}
  std::string wanted;
  bool in_definitions;
  void op(const char* name, const Inputs&, const Inputs& outputs, bool recorded) override {
    if (name != wanted || !recorded || (composed() && !in_definitions)) return;
    const Tensor& y = outputs[0];
    auto* values = static_cast<double*>(y.storage()->data);  // a kernel's write: no new version
    for (int64_t i = 0; i < y.numel(); ++i) values[i] *= 1.25;
  }
};

std::string text_of(const GradcheckReport& report) {
  std::ostringstream out;
  out << report;
  return out.str();
}

TEST(CheckOps, FindsNothingInOpsThatAreRight) {
  for (const OpCase& row : op_cases()) {
    for (const auto& set : row.inputs) {
      if (differentiable(set).empty() || largest(set) > 24) continue;
      const Inputs leaves = leaves_of(make_inputs(set), set);
      const OpsCheck check = check_ops([&] { row.op(leaves); });
      EXPECT_TRUE(check.wrong.empty()) << row.name << ": " << check.wrong[0];
    }
  }
  int64_t checked = 0, unchecked = 0;
  for (const ModuleCase& row : module_cases()) {
    const OpsCheck check = check_ops([&] { row.forward(*row.module, row.inputs); });
    EXPECT_TRUE(check.wrong.empty()) << row.name << ": " << check.wrong[0];
    const Composed guard;
    const OpsCheck composed = check_ops([&] { row.forward(*row.module, row.inputs); });
    EXPECT_TRUE(composed.wrong.empty()) << row.name << " composed: " << composed.wrong[0];
    checked += check.checked;
    unchecked += check.unchecked;
  }
  EXPECT_GT(checked, 300);
  EXPECT_LE(unchecked, 1);
}

TEST(CheckOps, NamesTheOpAmongOthersAndEachOfSeveral) {
  manual_seed(1);
  const Tensor x = leaf({2, 3}), w = leaf({3, 3});
  const auto f = [&](double factor) {
    const Tensor h = softmax(matmul(x, w));
    return sum(exp(test_square(h, factor)) * h) + sum(h.T());
  };
  EXPECT_TRUE(check_ops([&] { f(2); }).wrong.empty());
  const OpsCheck check = check_ops([&] { f(1); });
  ASSERT_EQ(check.wrong.size(), 1u);
  EXPECT_EQ(check.wrong[0].op, "test_square");
  EXPECT_EQ(check.wrong[0].output, Shape({2, 3}));
  EXPECT_NEAR(check.wrong[0].numeric / check.wrong[0].analytic, 2, 1e-5);
  EXPECT_EQ(check.wrong[0].definition, WrongGradient::none);
}

TEST(CheckOps, SeesAVjpThatIsWrongOnlyWhereItAdds) {
  const Tensor x = leaf({2}), y = leaf({2});
  const OpsCheck check = check_ops([&] { test_add(x, y); });
  ASSERT_EQ(check.wrong.size(), 1u);
  EXPECT_EQ(check.wrong[0].when, "where it adds to a sum");
  EXPECT_EQ(check.wrong[0].input, 1u);
}

TEST(CheckOps, SaysNothingOfInputsThatAreUsedOutsideTheGraph) {
  const Tensor x = leaf({2, 3});
  const OpsCheck check = check_ops([&] { exp(x - amax(x.detach(), {-1}, true)); });
  EXPECT_TRUE(check.wrong.empty());
  EXPECT_EQ(check.unchecked, 1);  // sub's
  EXPECT_EQ(check.checked, 1);    // exp's
}

TEST(CheckOps, TellsTheKernelFromTheFormula) {
  manual_seed(1);
  const Tensor x = leaf({2, 6});
  Scaled wrong("layer_norm");
  const Observe observe(wrong);
  const OpsCheck check = check_ops([&] { tanh(layer_norm(x)); });
  ASSERT_EQ(check.wrong.size(), 1u);
  EXPECT_EQ(check.wrong[0].op, "layer_norm");
  EXPECT_EQ(check.wrong[0].definition, WrongGradient::passes);
  Scaled basic("mul", true);
  const Observe observe_too(basic);
  const OpsCheck both = check_ops([&] { layer_norm(x); });
  ASSERT_EQ(both.wrong.size(), 1u);
  EXPECT_EQ(both.wrong[0].op, "layer_norm");
  EXPECT_EQ(both.wrong[0].definition, WrongGradient::fails);
  EXPECT_EQ(both.wrong[0].fails_at, "mul");
}

TEST(Gradcheck, NamesTheOpThenTheInputs) {
  const Tensor x = tensor({{1.0, 2.0}}, f64).requires_grad_(), y = leaf({2});
  const GradcheckReport report =
      gradcheck([](const Inputs& in) { return test_square(in[0], 1) * 3 + in[1]; }, {x, y});
  EXPECT_FALSE(report.ok);
  ASSERT_EQ(report.inputs.size(), 2u);
  EXPECT_FALSE(report.inputs[0].ok);
  EXPECT_TRUE(report.inputs[1].ok);
  const std::string text = text_of(report);
  EXPECT_EQ(
      text.rfind("FAILED: test_square (1, 2) returns a wrong gradient for the op's input 0 (1, 2)",
                 0),
      0u)
      << text;
  EXPECT_NE(text.find("\n4 checked, worst at input 0 (1, 2) [0, "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  FAILED  input 0 (1, 2), worst [0, "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  ok      input 1 (2,)"), std::string::npos) << text;
}

TEST(Gradcheck, CountsInputsThatAreNotChecked) {
  const Tensor constant = randn({2}, f64), x = leaf({2});
  const GradcheckReport report =
      gradcheck([](const Inputs& in) { return in[0] * test_square(in[1], 1); }, {constant, x});
  EXPECT_EQ(report.input, 1u);
  EXPECT_EQ(report.inputs[0].name, "input 1");
}

// What gradcheck says first of an op of one's own that is wrong.
template <class F>
void expect_named(const F& f, const Inputs& inputs, const std::string& text) {
  const GradcheckReport report = gradcheck(f, inputs);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(text_of(report).rfind("FAILED: " + text, 0), 0u) << text_of(report);
}

// An op's values may be computed from the input itself, not from x.detach().
TEST(Gradcheck, NamesAnOpWhoseValueWasComputedInTheGraph) {
  const auto op = [](const Tensor& x, double factor) {
    return record("test_exp2", {x}, exp(x * 2),
                  [=, x = Saved::input(x)](const Tensor& dy) -> Grads {
                    return {dy * exp(*x * 2) * factor};
                  });
  };
  EXPECT_TRUE(gradcheck([&](const Inputs& in) { return op(in[0] * 3, 2); }, {leaf({3})}));
  expect_named([&](const Inputs& in) { return op(in[0], 1); }, {leaf({3})},
               "test_exp2 (3,) returns a wrong gradient for the op's input 0 (3,): ");
  expect_named([&](const Inputs& in) { return tanh(op(in[0] * 3, 1)); }, {leaf({3})},
               "test_exp2 (3,) returns a wrong gradient");
  // A value that does not depend on the input at all may have been computed elsewhere.
  expect_named(
      [](const Inputs& in) {
        return record("test_constant", {in[0]}, ones({3}, f64),
                      [](const Tensor& dy) -> Grads { return {dy}; });
      },
      {leaf({3})},
      "each op that ran is right by itself, or could not be checked by itself: test_constant; "
      "test_constant (3,) does not move with its input, for which its vjp returns a gradient: is "
      "it piecewise constant, or computed outside?\n");
}

// A kernel that takes dy for contiguous.
TEST(Gradcheck, NamesAVjpThatIsWrongForALayoutOfDy) {
  const auto op = [](const Inputs& in) {
    return record("test_twice", {in[0]}, in[0].detach() * 2, [](const Tensor& dy) -> Grads {
      const auto* from = static_cast<const double*>(dy.storage()->data) + dy.layout().offset;
      std::vector<double> dx(from, from + dy.numel());
      for (double& value : dx) value *= 2;
      return {from_vector(dx, dy.shape())};
    });
  };
  const std::string start =
      "test_twice (2, 3) returns a wrong gradient for the op's input 0 (2, 3) where dy is not "
      "contiguous";
  expect_named(op, {leaf({2, 3})}, start);
  expect_named([&](const Inputs& in) { return op(in).T(); }, {leaf({2, 3})}, start);
  const auto expanded = [](const Inputs& in) {
    return record("test_expanded", {in[0]}, in[0].detach() * 2,
                  [](const Tensor& dy) -> Grads { return {dy * (dy.layout().repeats() ? 3 : 2)}; });
  };
  expect_named(expanded, {leaf({3})},
               "test_expanded (3,) returns a wrong gradient for the op's input 0 (3,) where dy is "
               "expanded, as by sum: ");
}

TEST(Gradcheck, NamesAVjpThatWritesItsGradient) {
  const auto op = [](const Tensor& x) {
    return record("test_triple", {x}, x.detach() * 3, [](const Tensor& dy) -> Grads {
      Tensor dx = dy;
      dx *= 3;
      return {dx};
    });
  };
  expect_named(
      [&](const Inputs& in) { return op(in[0]); }, {leaf({2})},
      "test_triple (2,): its vjp writes dy 0, which others read: write into a clone() of it\n");
  expect_named(
      [&](const Inputs& in) {
        const Tensor h = in[0] * 1;
        return (op(h) + h) * 2;
      },
      {leaf({2})}, "test_triple (2,): its vjp writes dy");
}

// An op f(x) of one input whose vjp is vjp(dy, x).
template <class F, class Vjp>
auto test_op(F f, Vjp vjp) {
  return [=](const Inputs& in) {
    return record(
        "test_op", {in[0]}, f(in[0].detach()),
        [=, x = Saved::input(in[0])](const Tensor& dy) -> Grads { return {vjp(dy, *x)}; });
  };
}

TEST(Gradcheck, NamesAVjpThatWritesItsInput) {
  const auto op = test_op([](const Tensor& x) { return exp(x); },
                          [](const Tensor& dy, const Tensor& x) { return dy * x.detach().exp_(); });
  const std::string text = "test_op (2,): its vjp writes input 0, which others read: write into ";
  const Tensor x = leaf({2});
  const auto before = x.tolist();
  expect_named(op, {x}, text);
  EXPECT_EQ(x.tolist(), before);
  expect_named([&](const Inputs& in) { return op({in[0] + 1}); }, {x}, text);
}

TEST(Gradcheck, NamesAVjpThatReturnsNan) {
  const auto op = test_op([](const Tensor& x) { return exp(x); },
                          [](const Tensor& dy, const Tensor& x) {
                            Tensor dx = dy * exp(x);
                            dx[0] = std::nan("");
                            return dx;
                          });
  expect_named(op, {leaf({2})},
               "test_op (2,) returns a wrong gradient for the op's input 0 (2,): nan");
}

TEST(Gradcheck, NamesAVjpThatDoesNotRepeatItself) {
  int calls = 0;
  const auto op = test_op(
      [](const Tensor& x) { return exp(x); },
      [&](const Tensor& dy, const Tensor& x) { return dy * exp(x) * (++calls == 1 ? 1 : calls); });
  expect_named(op, {leaf({2})},
               "test_op (2,) returns a wrong gradient for the op's input 0 (2,) when it is called "
               "again: ");
}

// So small an error that a random direction may hide it.
TEST(Gradcheck, NamesAVjpThatForgetsEps) {
  const auto rms = [](const Tensor& x, double eps) { return rsqrt(mean(x * x, {-1}, true) + eps); };
  const auto op = test_op([=](const Tensor& x) { return x * rms(x, 1e-5); },
                          [=](const Tensor& dy, const Tensor& x) {
                            const Tensor r = rms(x, 0);
                            return r * (dy - x * mean(dy * x, {-1}, true) * r * r);
                          });
  for (int64_t seed = 0; seed < 8; ++seed) {
    manual_seed(seed);
    expect_named(op, {leaf({3, 4})}, "test_op (3, 4) returns a wrong gradient");
  }
}

// A kernel that takes its input for contiguous.
TEST(Gradcheck, NamesAnOpThatIsWrongForALayout) {
  const auto raw = [](const Tensor& x) {  // 2 x
    const auto* from = x.data<double>();
    std::vector<double> twice(from, from + x.numel());
    for (double& value : twice) value *= 2;
    return from_vector(twice, x.shape());
  };
  const auto twice = test_op(raw, [](const Tensor& dy, const Tensor&) { return dy * 2; });
  const std::string text = " gives something else where its input is not contiguous: let it read ";
  expect_named(twice, {leaf({2, 3})}, "test_op" + text);
  EXPECT_TRUE(gradcheck([&](const Inputs& in) { return twice({in[0].contiguous()}); }, leaf({3})));
  const auto square = test_op([](const Tensor& x) { return x * x; },
                              [=](const Tensor& dy, const Tensor& x) { return dy * raw(x); });
  expect_named(square, {leaf({2, 3})}, "the vjp of test_op" + text);
  EXPECT_TRUE(gradcheck([](const Inputs& in) { return in[0].view({6}); }, leaf({2, 3})));
  const Tensor w = leaf({2});  // an input that the function reaches by itself
  EXPECT_TRUE(gradcheck([&](const Inputs& in) { return linear(w, in[1]); }, {w, leaf({3, 2})}));
  EXPECT_TRUE(gradcheck([&](const Inputs& in) { return sum(in[0] * w) + layer_norm(w); }, w));
}

TEST(Gradcheck, NamesAnOpThatComputesInF32) {
  const auto op = test_op([](const Tensor& x) { return exp(x.to(f32)).to(f64); },
                          [](const Tensor& dy, const Tensor& x) { return dy * exp(x); });
  for (int64_t seed = 0; seed < 8; ++seed) {
    manual_seed(seed);
    expect_named([&](const Inputs& in) { return sin(op(in)); }, {leaf({3})},
                 "test_op (3,) computes in float32, too coarse for differences");
  }
}

TEST(Gradcheck, NamesAVjpThatReadsWhatItHasNotSaved) {
  const auto of_input = [](const Inputs& in) {
    const Tensor x = in[0];
    return record("test_kept", {x}, exp(x.detach()),
                  [x](const Tensor& dy) -> Grads { return {dy * exp(x)}; });
  };
  expect_named([&](const Inputs& in) { return sin(of_input(in)); }, {leaf({2})},
               "test_kept (2,): its vjp reads its input 0 unwatched, and later writes into it go "
               "unnoticed: keep it as Saved\n");
  const auto of_output = [](const Inputs& in) {
    const Tensor y = exp(in[0].detach());
    return record("test_kept", {in[0]}, y,
                  [e = y.detach()](const Tensor& dy) -> Grads { return {dy * e}; });
  };
  expect_named(of_output, {leaf({2})}, "test_kept (2,): its vjp reads its output 0 unwatched");
  const Tensor mask = tensor({true, false, true});
  const auto masked = [&](const Inputs& in) {
    return record("test_masked", {in[0], mask}, where(mask, in[0].detach(), 0.0),
                  [mask = mask](const Tensor& dy) -> Grads {
                    return {where(mask, dy, 0.0), Tensor()};
                  });
  };
  expect_named(masked, {leaf({3})}, "test_masked (3,): its vjp reads its input 1 unwatched");
  EXPECT_EQ(mask.tolist<bool>(), (std::vector<bool>{true, false, true}));
}

// Frees the nodes that hold themselves.
struct Unheld : Observer {
  std::vector<std::weak_ptr<Node>> nodes;
  void op(const char*, const Inputs&, const Inputs& outputs, bool) override {
    if (outputs[0].slot()) nodes.push_back(outputs[0].slot()->node);
  }
  ~Unheld() override {
    for (const auto& weak : nodes)
      if (const auto node = weak.lock()) node->vjp = nullptr;
  }
};

TEST(Gradcheck, NamesAnOpThatHoldsItself) {
  Unheld unheld;
  const Observe observe(unheld);
  const auto op = [](const Inputs& in) {
    const Tensor y = in[0].detach() * 2;
    return record("test_held", {in[0]}, y,
                  [y](const Tensor& dy) -> Grads { return {dy.reshape(y.shape()) * 2}; });
  };
  expect_named([&](const Inputs& in) { return sin(op({in[0] * 3})); }, {leaf({2})},
               "test_held is never freed: its vjp, which it holds, captures its output");
  Tensor last;  // what a layer keeps to be looked at is none
  EXPECT_TRUE(gradcheck([&](const Inputs& in) { return last = sin(in[0] * 3); }, {leaf({2})}));
}

TEST(Gradcheck, TriesUndefinedGradients) {
  using Pair = std::vector<Tensor>;
  const auto op = [](bool defined, const Inputs& in) {
    return record("test_half", {in[0]}, Pair{in[0].detach() * 2, in[0].detach() * 3},
                  [=](const Grads& dys, VjpContext&) -> Grads {
                    Tensor dx = zeros({3}, f64);
                    if (defined || dys[0].defined()) dx += dys[0] * 2;
                    if (dys[1].defined()) dx += dys[1] * 3;
                    return {dx};
                  });
  };
  EXPECT_TRUE(gradcheck([&](const Inputs& in) { return op(false, in); }, {leaf({3})}));
  expect_named(
      [&](const Inputs& in) { return op(true, in); }, {leaf({3})},
      "test_half (3,): its vjp fails where the gradient of output 0 is undefined, which means "
      "zero: mul: argument 1 is undefined: ");
  const Tensor x = leaf({3});
  EXPECT_EQ(error_of([&] {
              sum(op(true, {x})[1]).backward();
            }).rfind("the backward of test_half: mul: argument 1 is undefined: ", 0),
            0u);
  EXPECT_EQ(error_of([&] {
              const Tensor y =
                  record("test_wide", {x}, x.detach() * 2, [](const Tensor& dy) -> Grads {
                    return {matmul(ones({2, 5}, f64), dy)};
                  });
              sum(y).backward();
            }).rfind("the backward of test_wide: matmul: ", 0),
            0u);
}

TEST(Gradcheck, SaysThatAFunctionDoesNotRepeatItself) {
  std::mt19937 own(1);
  expect_named([&](const Inputs& in) { return exp(in[0]) * (own() % 7); }, {leaf({3})},
               "the function gives other values when it is called again");
}

TEST(Gradcheck, SaysWhereThereIsNoDerivative) {
  const auto at = [](const std::vector<double>& values) {
    return from_vector(values, {static_cast<int64_t>(values.size())}).requires_grad_();
  };
  const std::string kink = ": differences to the two sides are ";
  expect_named([](const Inputs& in) { return abs(in[0]); }, {at({2, 1e-7})},
               "input 0 (2,) [1]" + kink);
  expect_named([](const Inputs& in) { return max(in[0], 0).values; }, {at({3, 1, 3})},
               "input 0 (3,) [0]" + kink);
  expect_named([](const Inputs& in) { return sort(in[0]).values * arange(4, f64); },
               {at({1, 1, 1, 1})},
               "each op that ran is right by itself; no derivative at sort (4,)");
  const GradcheckReport root = gradcheck([](const Inputs& in) { return sqrt(in[0]); }, {at({0})});
  EXPECT_NE(root.note.find("no derivative there, or none within eps = 1e-06; check another point"),
            std::string::npos)
      << root.note;
  EXPECT_EQ(text_of(root).find("-nan"), std::string::npos) << text_of(root);
  expect_named([](const Inputs& in) { return square(in[0]); }, {at({1e10, 2})},
               "input 0 (2,) [0]: a step of eps = 1e-06 is lost in rounding");
  // 1e-8 lies within a step of 0, beyond which 1 / x has the other sign.
  expect_named([](const Inputs& in) { return 1 / in[0]; }, {at({1e-8, 3})},
               "each op that ran is right by itself; no derivative at reciprocal (2,), input 0");
  // What is wrong beside a kink is found.
  const GradcheckReport beside = gradcheck(
      [](const Inputs& in) { return abs(in[0]) + test_square(in[1], 1); }, {at({0}), at({2})});
  ASSERT_EQ(beside.ops.wrong.size(), 1u);
  EXPECT_EQ(beside.ops.wrong[0].op, "test_square");

  Sequential layer{Linear(3, 3), ReLU()};
  {
    const NoGrad no_grad;
    for (Tensor& x : layer.parameters())
      if (x.dim() == 1) x.zero_();
  }
  const std::string text = text_of(gradcheck_module(layer, zeros({2, 3})));
  EXPECT_EQ(text.rfind("FAILED: 0.bias (3,) [0]" + kink, 0), 0u) << text;
  EXPECT_NE(text.find(" (at relu (2, 3), input 0)\n"), std::string::npos) << text;
}

TEST(Gradcheck, ExpectsOutputsInF64) {
  EXPECT_EQ(error_of([] {
              gradcheck([](const Inputs& in) { return (in[0] * 2).to(f32); }, {leaf({2})});
            }),
            "gradcheck: output 0 is float32, too coarse for differences; expected float64: let the "
            "function compute in the dtype of its inputs");
}

TEST(Gradcheck, SaysWhereTheGraphWasLeft) {
  const Tensor x = leaf({2, 3});
  const GradcheckReport report =
      gradcheck([](const Inputs& in) { return in[0] * exp(in[0].detach()); }, {x});
  EXPECT_FALSE(report.ok);
  EXPECT_TRUE(report.ops.wrong.empty());
  EXPECT_NE(report.note.find("leaves its graph at exp (2, 3)"), std::string::npos) << report.note;
  const GradcheckReport product =
      gradcheck([](const Inputs& in) { return in[0] * in[0].detach(); }, {x});
  EXPECT_NE(product.note.find("mul (2, 3), which takes a detached tensor"), std::string::npos)
      << product.note;
}

TEST(Gradcheck, NamesTheOpThatLostTheGraph) {
  const Tensor x = leaf({2, 3});
  EXPECT_EQ(error_of([&] {
              gradcheck([](const Inputs& in) { return sum(tanh(exp(in[0]).detach()) * 2); }, {x});
            }),
            "gradcheck: no output requires grad: the function lost its graph at tanh (2, 3), "
            "which has no gradient, or ran on a detached tensor");
  EXPECT_EQ(error_of([&] {
              gradcheck(
                  [](const Inputs& in) {
                    const NoGrad no_grad;
                    return exp(in[0]);
                  },
                  {x});
            }),
            "gradcheck: no output requires grad: the function lost its graph at exp (2, 3), "
            "which has no gradient, or ran under NoGrad");
  EXPECT_EQ(error_of([&] { gradcheck([](const Inputs&) { return ones({2}, f64); }, {x}); }),
            "gradcheck: no output requires grad, and no op has read an input that does");
}

TEST(Gradgradcheck, NamesTheVjpThatLostTheGraph) {
  const auto f = [](const Inputs& in) {
    return record("test_cube", {in[0]}, pow(in[0].detach(), 3),
                  [x = Saved::input(in[0])](const Tensor& dy) -> Grads {
                    return {dy.detach() * square(*x).detach() * 3};
                  });
  };
  const Tensor x = leaf({2});
  EXPECT_TRUE(gradcheck(f, {x}));
  EXPECT_EQ(error_of([&] { gradgradcheck(f, {x}); }),
            "gradgradcheck: no output requires grad: the function lost its graph at the vjp of "
            "test_cube, whose gradient for input 0 (2,) was not computed by ops that record: if "
            "(grad_enabled()), return it in public ops or differentiate(definition, inputs, dy)");
  const GradcheckReport partly =
      gradgradcheck([&](const Inputs& in) { return f(in) + square(in[0]); }, {x});
  EXPECT_FALSE(partly.ok);
  EXPECT_NE(partly.note.find("the vjp of test_cube"), std::string::npos) << partly.note;
  const auto half = [](const Inputs& in) {
    return record(
        "test_half", {in[0]}, exp(in[0].detach()),
        [x = Saved::input(in[0])](const Tensor& dy) -> Grads { return {dy * exp((*x).detach())}; });
  };
  const std::string note = gradgradcheck(half, {x}).note;
  EXPECT_NE(note.find("leaves its graph at exp (2,) in the vjp of test_half"), std::string::npos)
      << note;
}

TEST(Gradgradcheck, ComparesTheTwoGradientsOfAVjp) {
  for (const double sign : {1.0, -1.0}) {
    const auto f = [&](const Inputs& in) {
      return record("test_cube", {in[0]}, pow(in[0].detach(), 3),
                    [=, x = Saved::input(in[0])](const Tensor& dy) -> Grads {
                      return {dy * square(*x) * (grad_enabled() ? 3 * sign : 3)};
                    });
    };
    const Tensor x = leaf({2});
    EXPECT_TRUE(gradcheck(f, {x}));
    const GradcheckReport report = gradgradcheck(f, {x});
    EXPECT_EQ(report.ok, sign > 0);
    EXPECT_EQ(
        text_of(report).find("returns something else if (grad_enabled())") != std::string::npos,
        sign < 0);
  }
}

// A function that draws gets the same numbers each time, and the generator moves on once.
TEST(Gradcheck, OfFunctionsThatDraw) {
  const Tensor x = leaf({3, 4}), p = rand({3, 4}, f64);
  const auto masked = [&](const Inputs& in) {
    const Tensor mask = bernoulli_(empty({3, 4}, f64), 0.5) * 2;
    return (in[0] * in[0] * mask + dropout(in[0], 0.5)) * randn({4}, f64) * rand_like(p);
  };
  const auto drawn = [&](const auto& check) {
    manual_seed(4);
    check();
    return rand({3}).tolist();
  };
  const auto once = drawn([&] { masked({x}); });
  EXPECT_EQ(drawn([&] { EXPECT_TRUE(gradcheck(masked, {x})) << gradcheck(masked, {x}); }), once);
  EXPECT_EQ(drawn([&] { EXPECT_TRUE(gradgradcheck(masked, {x})); }), once);
  const auto saved = [&](const Inputs& in) {
    return checkpoint([](const Tensor& a) { return sin(a) * randn({4}, f64); }, in[0]);
  };
  EXPECT_TRUE(gradcheck(saved, {x}));
  // Where it fails, the ops that ran are checked with the same numbers, too.
  const auto wrong = [&](const Inputs& in) {
    return test_square(in[0] * randn({4}, f64), 3) * randn({4}, f64);
  };
  const GradcheckReport report = gradcheck(wrong, {x});
  EXPECT_FALSE(report.ok);
  ASSERT_EQ(report.ops.wrong.size(), 1u);
  EXPECT_EQ(report.ops.wrong[0].op, "test_square");
  EXPECT_EQ(report.ops.unchecked, 0);
  EXPECT_EQ(drawn([&] { check_ops([&] { masked({x}); }); }), once);
}

TEST(GradcheckModule, NamesTheOpAndTheParameters) {
  manual_seed(1);
  GPTConfig config;
  config.block_size = 4, config.vocab_size = 5, config.n_layer = 1;
  config.n_head = 2, config.n_embd = 4, config.bias = true;
  CausalSelfAttention attention(config);
  Scaled wrong("causal_attention");
  const Observe observe(wrong);
  const GradcheckReport report = gradcheck_module(attention, randn({2, 3, 4}));
  EXPECT_FALSE(report.ok);
  const std::string text = text_of(report);
  EXPECT_EQ(text.rfind("FAILED: causal_attention (", 0), 0u) << text;
  EXPECT_NE(text.find("its definition passes: its vjp, or a kernel, is wrong\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  FAILED  c_attn.weight (12, 4), worst ["), std::string::npos) << text;
  EXPECT_NE(text.find("\n  ok      c_proj.bias (4,)"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  FAILED  input 0 (2, 3, 4)"), std::string::npos) << text;
}

// A layer whose outputs are `Result`, with ids and a size among them.
struct Encoded {
  Tensor mean, log_variance;
  Tensor ids;
  int64_t count = 0;
};
template <class Result, class Make>
bool checks_outputs(Make make) {
  struct Layer : Module {
    Linear a{3, 2}, b{3, 2};
    Make make_result;
    explicit Layer(Make f) : make_result(f) {}
    Result operator()(const Tensor& x) const { return make_result(a(x), tanh(b(x))); }
    INK_FIELDS(a, b)
  };
  Layer layer(make);
  const GradcheckReport report = gradcheck_module(layer, randn({4, 3}));
  EXPECT_EQ(report.inputs.size(), 5u);
  const auto f = [&](const std::vector<Tensor>& in) { return make(in[0] * in[0], sin(in[0])); };
  const Tensor x = randn({3}, f64).requires_grad_();
  EXPECT_TRUE(gradcheck(f, x).ok && gradgradcheck(f, x).ok);
  return report.ok;
}

TEST(GradcheckModule, LayersOfSeveralOutputs) {
  using T = const Tensor&;
  EXPECT_TRUE(
      (checks_outputs<std::pair<Tensor, Tensor>>([](T a, T b) { return std::pair(a, b); })));
  EXPECT_TRUE((checks_outputs<std::tuple<Tensor, int, Tensor>>(
      [](T a, T b) { return std::tuple(a, 3, b); })));
  EXPECT_TRUE(checks_outputs<std::vector<Tensor>>([](T a, T b) { return std::vector{a, b}; }));
  EXPECT_TRUE((checks_outputs<std::array<Tensor, 2>>([](T a, T b) { return std::array{a, b}; })));
  EXPECT_TRUE(checks_outputs<Encoded>([](T a, T b) { return Encoded{a, b, argmax(a, -1), 7}; }));
  EXPECT_TRUE(checks_outputs<ValuesIndices>([](T a, T b) { return sort(a * b); }));
  EXPECT_TRUE((checks_outputs<std::map<std::string, Tensor>>([](T a, T b) {
    return std::map<std::string, Tensor>{{"a", a}, {"b", b}};
  })));
  EXPECT_TRUE((checks_outputs<std::pair<Tensor, std::optional<Tensor>>>(
      [](T a, T b) { return std::pair(a + b, std::optional<Tensor>()); })));
  EXPECT_TRUE((checks_outputs<std::pair<Tensor, Tensor>>(
      [](T a, T b) { return std::pair(a * b, Tensor()); })));

  MultiheadAttention attention(4, 2);
  const Tensor x = randn({2, 3, 4});
  EXPECT_TRUE(gradcheck_module(attention, x, x, x));
  // An output that is wrong is found, whichever it is.
  struct Wrong : Module {
    Linear a{3, 2};
    std::pair<Tensor, Tensor> operator()(const Tensor& in) const {
      return {a(in), layer_norm(a(in))};
    }
    INK_FIELDS(a)
  } layer;
  Scaled wrong("layer_norm");
  const Observe observe(wrong);
  EXPECT_FALSE(gradcheck_module(layer, randn({2, 3})));
}

TEST(GradcheckModule, NeedsFields) {
  struct Bare : Module {
    Linear a{2, 2};
    Tensor operator()(const Tensor& x) const { return a(x); }
  };
  Bare bare;
  const std::string error = error_of([&] { gradcheck_module(bare, randn({3, 2})); });
  EXPECT_EQ(error.rfind("Bare: INK_FIELDS lacks a Linear", 0), 0u) << error;
}

TEST(GradcheckCommand, PrintsTheCauseFirst) {
  Scaled wrong("layer_norm");
  const Observe observe(wrong);
  testing::internal::CaptureStdout();
  const int code = gradcheck_command({"--only", "orm"});
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, kFailed);
  const size_t first = text.find("FAILED"), line = text.rfind('\n', first) + 1;
  EXPECT_EQ(text.substr(line, 11), "layer_norm ") << text;
  EXPECT_NE(text.find("or a kernel, is wrong\n"), std::string::npos) << text;
  const size_t module = text.find("\nLayerNorm "), built = text.find("FAILED, built on layer_norm");
  EXPECT_TRUE(first < module && module < built && built != std::string::npos) << text;
  EXPECT_NE(text.find("\n      FAILED  weight (6,), worst [", module), std::string::npos) << text;
  EXPECT_LT(text.find("\nrms_norm "), first) << text;  // passes
  EXPECT_NE(text.find("Begin with layer_norm: "), std::string::npos) << text;
}

}  // namespace
}  // namespace ink
