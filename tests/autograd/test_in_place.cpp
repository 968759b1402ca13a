// Writes in place: values, gradients, and every refusal with its text.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

Tensor leaf(const Shape& shape, double value) {
  Tensor x = full(shape, value);
  x.requires_grad_();
  return x;
}

using V = std::vector<double>;

// ---- values

TEST(InPlace, TimesAlpha) {
  Tensor x = tensor({1.0, 2.0, 3.0});
  const Tensor y = tensor({10.0, 20.0, 30.0});
  EXPECT_EQ(x.add_(y, 0.5).tolist(), (V{6, 12, 18}));
  EXPECT_EQ(x.sub_(y, 0.5).tolist(), (V{1, 2, 3}));
  EXPECT_EQ(x.add_(2, 3).sub_(1, 0.5).tolist(), (V{6.5, 7.5, 8.5}));
  EXPECT_EQ(add(x, y, -1).tolist(), sub(x, y).tolist());
  EXPECT_EQ(x.add(y, 2).tolist(), (V{26.5, 47.5, 68.5}));
  EXPECT_EQ(x.sub(1, 2).tolist(), add(x, 1, -2).tolist());
  Tensor k = tensor({1, 2}), m = tensor({true, false});
  EXPECT_EQ(k.add_(k, 3).tolist(), (V{4, 8}));
  EXPECT_EQ(add(k, tensor({1.0, 1.0}), 0.5).tolist(), (V{4.5, 8.5}));
  EXPECT_EQ(add(m, tensor({true, true}), 0).tolist(), (V{1, 0}));
  EXPECT_EQ(add(m, tensor({true, true}), true).tolist(), (V{1, 1}));
  // PyTorch's bits: the sum alone is rounded to bf16.
  const Tensor a = tensor({1.0, 2.0, 3.0}, bf16), b = tensor({0.1, 0.7, 1.0 / 3}, bf16);
  EXPECT_EQ(add(a, b, 0.3).tolist(), (V{1.03125, 2.203125, 3.09375}));
  EXPECT_EQ(a.clone().sub_(b, 0.3).tolist(), (V{0.96875, 1.7890625, 2.90625}));
  EXPECT_EQ(a.clone().sub_(b, 0.3).dtype(), bf16);
  Tensor w = leaf({2}, 3), v = leaf({2}, 5), z = w * 2;
  z.add_(v, 0.25);
  sum(z * z).backward();
  EXPECT_EQ(z.tolist(), (V{7.25, 7.25}));
  EXPECT_EQ(w.grad().tolist(), (V{29, 29}));
  EXPECT_EQ(v.grad().tolist(), (V{3.625, 3.625}));
  EXPECT_EQ(error_of([&] { add(k, k, 0.5); }),
            "add: expected an integer as alpha for int64, got 0.5");
  EXPECT_EQ(error_of([&] { k.sub_(k, true); }),
            "sub_: expected an integer as alpha for int64, got 1");
  EXPECT_EQ(error_of([&] { k.add_(2, 1.5); }),
            "add_: expected an integer as alpha for int64, got 1.5");
  EXPECT_NE(error_of([&] { x.add_(Tensor(), 2); }).find("add_: argument 1 is undefined"),
            std::string::npos);
}

TEST(InPlace, BoundsAndAngles) {
  Tensor x = tensor({-1.0, 0.5, 2.0}), y = x.clone();
  EXPECT_EQ(x.clamp_min_(0).clamp_max_(1).tolist(), (V{0, 0.5, 1}));
  EXPECT_EQ(y.clamp_min_(tensor({0.0, 1.0, 0.0})).clamp_max_(tensor({1.0})).tolist(), (V{0, 1, 1}));
  EXPECT_EQ(y.maximum(0.5).tolist(), (V{0.5, 1, 1}));
  EXPECT_EQ(minimum(y, 0.5).tolist(), y.clamp_max(0.5).tolist());
  EXPECT_EQ(maximum(tensor({1, 3}), 2).dtype(), i64);
  EXPECT_EQ(maximum(tensor({1, 3}), 2.5).tolist(), (V{2.5, 3}));
  Tensor a = tensor({1.0, -1.0}, f64);
  a.atan2_(tensor({0.0, -1.0}, f64));
  EXPECT_DOUBLE_EQ(a.tolist()[0], std::acos(-1) / 2);
  EXPECT_DOUBLE_EQ(a.tolist()[1], -3 * std::acos(-1) / 4);
  // As in PyTorch, a number that bounds leaves no gradient at a tie, and a tensor half of it.
  const Tensor w = tensor({1.0, -2.0, 3.0}).requires_grad_();
  EXPECT_EQ(grad(sum(w.clamp_min(-2)), w)[0].tolist(), (V{1, 0, 1}));
  EXPECT_EQ(grad(sum(w.clamp_max(tensor({1.0, 0.0, 0.0}))), w)[0].tolist(), (V{0.5, 1, 0}));
  EXPECT_EQ(grad(sum(maximum(w, -2)), w)[0].tolist(), (V{1, 0.5, 1}));
  EXPECT_TRUE(error_of([&] { w.clamp_min(Tensor()); }).starts_with("clamp_min: argument 2 is"));
}

TEST(InPlace, OperatorsWriteTheSameMemory) {
  Tensor x = tensor({1.0, 2.0, 3.0});
  const Tensor other_handle = x;
  x += tensor({1.0, 1.0, 1.0});
  x *= x;
  x -= tensor({1.0});
  x /= tensor({3.0, 4.0, 5.0});
  EXPECT_EQ(other_handle.tolist(), (V{1, 2, 3}));
  x += 1;
  x *= 6;
  x -= 2;
  x /= 2;
  EXPECT_EQ(other_handle.tolist(), (V{5, 8, 11}));
  x.fill_(7);
  x.masked_fill_(tensor({true, false, true}), -1);
  EXPECT_EQ(other_handle.tolist(), (V{-1, 7, -1}));
  x.copy_(tensor({4}));
  EXPECT_EQ(other_handle.tolist(), (V{4, 4, 4}));
  x.zero_();
  EXPECT_EQ(other_handle.tolist(), (V{0, 0, 0}));
}

TEST(InPlace, ViewsAndOverlaps) {
  Tensor x = arange(6, f32).view({2, 3});
  x.select(0, 1).add_(10);
  EXPECT_EQ(x.tolist(), (V{0, 1, 2, 13, 14, 15}));
  x.T().select(0, 0).mul_(2);
  EXPECT_EQ(x.tolist(), (V{0, 1, 2, 26, 14, 15}));
  x.sub_(x.select(0, 1));  // reads what it writes
  EXPECT_EQ(x.tolist(), (V{-26, -13, -13, 0, 0, 0}));
  Tensor line = arange(1000, f32);
  line.narrow(0, 1, 999).copy_(line.narrow(0, 0, 999));
  EXPECT_EQ(line.tolist()[999], 998);
  EXPECT_EQ(line.tolist()[1], 0);
  line.narrow(0, 1, 999).add_(line.narrow(0, 0, 999));
  EXPECT_EQ(line.tolist()[999], 998 + 997);
}

TEST(InPlace, DtypesOfTheTensorStay) {
  Tensor h = ones({2}, bf16), i = ones({2}, i64), b = tensor({true, false}), f = ones({2});
  h += tensor({0.5, 1.0}, f64);
  EXPECT_EQ(h.dtype(), bf16);
  EXPECT_EQ(h.tolist(), (V{1.5, 2}));
  i += b;
  EXPECT_EQ(i.tolist(), (V{2, 1}));
  i *= 3;
  EXPECT_EQ(i.tolist(), (V{6, 3}));
  b += tensor({false, true});
  EXPECT_EQ(b.tolist(), (V{1, 1}));
  b.masked_fill_(tensor({false, true}), 0);
  EXPECT_EQ(b.tolist(), (V{1, 0}));
  f /= i;
  EXPECT_EQ(f.tolist(), (V{1 / 6.0f, 1 / 3.0f}));
}

// ---- gradients

TEST(InPlace, RecordAnOrdinaryOp) {
  Tensor w = leaf({3}, 2), x = leaf({3}, 3);
  Tensor y = x * 1;
  y *= w;      // 6
  y += x;      // 9
  y /= w;      // 4.5
  y -= w * 2;  // 0.5
  EXPECT_EQ(y.tolist(), (V{0.5, 0.5, 0.5}));
  sum(y).backward();
  EXPECT_EQ(x.grad().tolist(), (V{1.5, 1.5, 1.5}));        // (x w + x) / w - 2 w: 1 + 1 / w
  EXPECT_EQ(w.grad().tolist(), (V{-2.75, -2.75, -2.75}));  // -x / w^2 - 2
}

TEST(InPlace, AConstantBecomesPartOfTheGraph) {
  Tensor w = leaf({3}, 2);
  Tensor x = ones({2, 3});
  x *= w;
  EXPECT_TRUE(x.requires_grad());
  sum(x).backward();
  EXPECT_EQ(w.grad().tolist(), (V{2, 2, 2}));
}

TEST(InPlace, CopySendsTheGradientToItsSource) {
  Tensor x = leaf({2, 3}, 1), source = leaf({3}, 5);
  Tensor y = x * 2;
  y.copy_(source);
  sum(y * 3).backward();
  EXPECT_EQ(x.grad().tolist(), (V{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(source.grad().tolist(), (V{6, 6, 6}));
}

TEST(InPlace, WhatIsFilledHasNoGradient) {
  Tensor x = leaf({3}, 1);
  Tensor y = x * 2;
  y.fill_(4);
  sum(y).backward();
  EXPECT_EQ(x.grad().tolist(), (V{0, 0, 0}));
  Tensor z = x * 2;
  z.masked_fill_(tensor({true, false, false}), 9);
  sum(z).backward();
  EXPECT_EQ(x.grad().tolist(), (V{0, 2, 2}));
}

TEST(InPlace, PlainMemoryUnderNoGrad) {
  Tensor w = leaf({3}, 2);
  {
    const NoGrad no_grad;
    w.sub_(ones({3}));
    w.select(0, 0).fill_(7);
    w.narrow(0, 1, 2).copy_(w.narrow(0, 0, 2));
    w *= 2;
  }
  EXPECT_TRUE(w.requires_grad());
  EXPECT_EQ(w.tolist(), (V{14, 14, 2}));
  sum(w * w).backward();
  EXPECT_EQ(w.grad().tolist(), (V{28, 28, 4}));
}

// ---- refusals

TEST(InPlace, RefusesALeafThatRequiresGrad) {
  Tensor w = leaf({3}, 2);
  const std::string hint =
      ": a leaf that requires grad, (3,), cannot be written in place while a graph is recorded; do "
      "it under NoGrad, or on x.detach()";
  EXPECT_EQ(error_of([&] { w += ones({3}); }), "add_" + hint);
  EXPECT_EQ(error_of([&] { w -= 1; }), "sub_" + hint);
  EXPECT_EQ(error_of([&] { w *= 2; }), "mul_" + hint);
  EXPECT_EQ(error_of([&] { w /= w; }), "div_" + hint);
  EXPECT_EQ(error_of([&] { w.fill_(0); }), "fill_" + hint);
  EXPECT_EQ(error_of([&] { w.copy_(ones({3})); }), "copy_" + hint);
  EXPECT_EQ(error_of([&] { w.masked_fill_(w > 0, 0); }), "masked_fill_" + hint);
  EXPECT_EQ(w.tolist(), (V{2, 2, 2}));
}

TEST(InPlace, RefusesBackwardThroughASavedTensorThatWasWritten) {
  Tensor x = leaf({3}, 2);
  const auto text = [](const char* op, const char* what) {
    return std::string("the backward of ") + op + ": " + what +
           ", (3,) float32, was saved at version 1 and has been written since (now "
           "version 2); write out of place (x = x + y) or clone() first";
  };
  {
    Tensor y = exp(x);
    y += 1;
    EXPECT_EQ(error_of([&] { sum(y).backward(); }), text("exp", "its output"));
  }
  {
    Tensor factor = ones({3});
    const Tensor y = x * factor;
    factor += 1;
    EXPECT_EQ(error_of([&] { sum(y).backward(); }), text("mul", "an input"));
  }
  {
    Tensor y = x * 1;
    y *= y;  // saves itself
    EXPECT_EQ(error_of([&] { sum(y).backward(); }), text("mul", "an input"));
  }
}

TEST(InPlace, RefusesAResultThatDoesNotFit) {
  Tensor x = ones({2, 1, 5}), i = ones({2}, i64), b = tensor({true, false});
  EXPECT_EQ(error_of([&] {
              x += ones({2, 5, 5});
            }),
            "output with shape [2, 1, 5] doesn't match the broadcast shape [2, 5, 5]");
  EXPECT_EQ(error_of([&] {
              x.masked_fill_(ones({2, 5, 5}, boolean), 0);
            }),
            "output with shape [2, 1, 5] doesn't match the broadcast shape [2, 5, 5]");
  EXPECT_EQ(error_of([&] {
              x.copy_(ones({2, 5, 5}));
            }),
            "output with shape [2, 1, 5] doesn't match the broadcast shape [2, 5, 5]");
  EXPECT_EQ(error_of([&] { x += ones({3}); }), "add_: shapes (2, 1, 5) and (3,) do not broadcast");
  EXPECT_EQ(error_of([&] { i += ones({2}); }),
            "add_: the result, float32, does not fit into the tensor, int64");
  EXPECT_EQ(error_of([&] { i *= 0.5; }),
            "mul_: the result, float32, does not fit into the tensor, int64");
  EXPECT_EQ(error_of([&] { i /= i; }),
            "div_: the result, float32, does not fit into the tensor, int64");
  EXPECT_EQ(error_of([&] { b += 1; }),
            "add_: the result, int64, does not fit into the tensor, bool");
}

TEST(InPlace, RefusesAnExpandedTensor) {
  Tensor x = ones({3}).expand({2, 3});
  EXPECT_EQ(error_of([&] { x += 1; }),
            "add_: several elements of (2, 3) lie in one place (it was expanded or unfolded); "
            "clone() it first");
  EXPECT_EQ(error_of([&] { x.fill_(1); }),
            "fill_: several elements of (2, 3) lie in one place (it was expanded or unfolded); "
            "clone() it first");
}

TEST(InPlace, WindowsAreWrittenWhereTheyDoNotOverlap) {
  Tensor x = zeros({2, 7});
  x.unfold(1, 2, 3) += 1;  // two windows of two elements
  EXPECT_EQ(x.tolist<int64_t>(), (std::vector<int64_t>{1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0}));
  for (const Tensor& overlapping : {x.unfold(1, 2, 1), x.unfold(1, 3, 2).transpose(1, 2)}) {
    Tensor y = overlapping;
    EXPECT_NE(error_of([&] { y += 1; }).find("lie in one place"), std::string::npos);
  }
  // A view that is taken before its base is written follows it. Windows add up.
  Tensor leaf = zeros({5}).requires_grad_(), base = leaf * 1, windows = base.unfold(0, 3, 1);
  base.mul_(2);
  windows.sum().backward();
  EXPECT_EQ(leaf.grad().tolist<int64_t>(), (std::vector<int64_t>{2, 4, 6, 4, 2}));
}

}  // namespace
}  // namespace ink
