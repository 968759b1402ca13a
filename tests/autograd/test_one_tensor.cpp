// Handles share one tensor; views follow their base; writes are recorded whatever they go through.
#include <gtest/gtest.h>

#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/engine/checkpoint.h"
#include "autograd/engine/observer.h"
#include "autograd/ops.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

using V = std::vector<double>;

Tensor leaf(const Shape& shape, double value) { return full(shape, value, f64).requires_grad_(); }

// ---- handles

TEST(OneTensor, CopiesOfAHandleAreTheSameTensor) {
  Tensor w = ones({3});
  auto p = std::vector{w};
  p[0].requires_grad_();
  EXPECT_TRUE(w.requires_grad() && w.is_same(p[0]));
  EXPECT_EQ(sizeof(Tensor), 16u);
  Tensor y = w * 2;
  const Tensor other = y;
  y += 1;
  EXPECT_TRUE(other.is_same(y));
  sum(other * other).backward();  // 2 (2 w + 1) 2
  EXPECT_EQ(w.grad().tolist(), (V{12, 12, 12}));
}

TEST(OneTensor, AVariableMayMeanAnotherTensor) {
  Tensor a = ones({2}), b = zeros({3});
  const Tensor first = a;
  a = b;
  EXPECT_TRUE(a.is_same(b));
  EXPECT_EQ(first.tolist(), (V{1, 1}));
  std::swap(a, b);
  std::tie(a, b) = std::pair(first, zeros({1}));
  EXPECT_TRUE(a.is_same(first));
  EXPECT_EQ(std::exchange(a, b).shape(), (Shape{2}));
}

TEST(OneTensor, DetachIsAnotherTensorOnTheSameMemory) {
  const Tensor w = leaf({2}, 3);
  Tensor d = w.detach();
  EXPECT_FALSE(d.is_same(w) || d.requires_grad());
  d += 1;
  EXPECT_EQ(w.tolist(), (V{4, 4}));
  EXPECT_TRUE(w.requires_grad());
}

TEST(OneTensor, WritesAfterACopyingReshapeOrAnIndexWork) {
  const Tensor w = leaf({2, 3}, 2), x = leaf({4, 5, 2}, 1);
  Tensor h = matmul(x, w);
  h += 1;
  Tensor rows = w.index(tensor({1, 1, 0}));
  rows *= 3;
  Tensor flat = w.T().reshape({6});
  flat *= 5;
  (sum(h) + sum(rows) + sum(flat)).backward();
  EXPECT_EQ(w.grad().tolist(), (V{28, 28, 28, 31, 31, 31}));
  EXPECT_EQ(w.tolist(), V(6, 2));  // neither was a view
}

// ---- writes through views

TEST(OneTensor, AWriteThroughAViewReachesBaseAndValue) {
  const Tensor x = leaf({2, 3}, 2), v = leaf({2}, 5);
  Tensor y = x * 1;
  y.index({Slice(), 0}) *= v;  // y = {10, 2, 2, 10, 2, 2}
  sum(y * y).backward();
  EXPECT_EQ(x.grad().tolist(), (V{100, 4, 4, 100, 4, 4}));
  EXPECT_EQ(v.grad().tolist(), (V{40, 40}));
}

TEST(OneTensor, RowsAreFilledOneByOne) {
  const Tensor q = leaf({3}, 2), k = leaf({4, 3}, 3);
  Tensor scores = zeros({4}, f64);
  for (int64_t i = 0; i < 4; ++i) scores.index({i}).copy_(dot(q, k.select(0, i)));
  sum(scores * tensor({1, 2, 3, 4})).backward();
  EXPECT_EQ(scores.tolist(), (V{18, 18, 18, 18}));
  EXPECT_EQ(q.grad().tolist(), (V{30, 30, 30}));
  EXPECT_EQ(k.grad().tolist(), (V{2, 2, 2, 4, 4, 4, 6, 6, 6, 8, 8, 8}));
}

TEST(OneTensor, OtherViewsSeeAWriteAndDeriveTheirPlaceAgain) {
  const Tensor x = leaf({2, 2}, 3), v = leaf({2}, 4);
  Tensor y = x * 1;
  const Tensor row = y.index({0}), column = y.T().index({1}), wide = row.expand({3, 2});
  y.index({Slice(), 0}) *= v;
  EXPECT_EQ(row.tolist(), (V{12, 3}));
  sum(row * row).backward({}, true);
  EXPECT_EQ(x.grad().tolist(), (V{96, 6, 0, 0}));
  EXPECT_EQ(v.grad().tolist(), (V{72, 0}));
  sum(column + wide.index({2})).backward();  // y01 + y11 + y00 + y01
  EXPECT_EQ(x.grad().tolist(), (V{100, 8, 0, 1}));
  EXPECT_EQ(v.grad().tolist(), (V{75, 0}));
}

TEST(OneTensor, AConstantGetsIntoTheGraphThroughItsView) {
  const Tensor w = leaf({3}, 2);
  Tensor x = zeros({2, 3}, f64);
  const Tensor all = x.view({6});
  x.index({1}) = w;
  EXPECT_TRUE(x.requires_grad() && all.requires_grad());
  sum(all * all).backward();
  EXPECT_EQ(w.grad().tolist(), (V{4, 4, 4}));
}

TEST(OneTensor, PiecesOfASplitAreViewsLikeAnyOther) {
  const Tensor x = leaf({4}, 3);
  const Tensor y = x * 1;
  auto pieces = split(y, 2);
  pieces[0] *= 5;
  (sum(y) + sum(pieces[1])).backward();
  EXPECT_EQ(x.grad().tolist(), (V{5, 5, 2, 2}));
}

TEST(OneTensor, AWriteIntoAViewOfAViewOfStridedMemory) {
  const Tensor x = leaf({2, 3, 4}, 1), v = leaf({2, 2}, 3);
  Tensor y = (x * 1).transpose(0, 2).contiguous().transpose(0, 1);
  y.index({Slice(1), Slice(0, 4, 2)}).index({0}).mul_(v);
  sum(y * y).backward();
  const V dx = x.grad().tolist();
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(dx[i], i / 4 % 3 == 1 && i % 2 == 0 ? 18 : 2) << i;
  EXPECT_EQ(v.grad().tolist(), (V{6, 6, 6, 6}));
}

TEST(OneTensor, FillsOfViewsCutTheGradient) {
  const Tensor x = leaf({4}, 3);
  Tensor y = x * x;
  y.index({Slice(0, 2)}).fill_(7);
  uniform_(y.narrow(0, 3, 1));
  y.index({2}).masked_fill_(tensor(false), 0);
  sum(y).backward();
  EXPECT_EQ(x.grad().tolist(), (V{0, 0, 6, 0}));
}

TEST(OneTensor, BroadcastAndConvertedValues) {
  const Tensor half = ones({3}, bf16).requires_grad_(), w = ones({2, 1}).requires_grad_();
  Tensor y = half * 2;
  y += w.index({0});  // f32 into bf16
  EXPECT_EQ(y.dtype(), bf16);
  Tensor x = zeros({2, 3});
  x.index({Slice(), Slice(1)}).copy_(w);
  (sum(y) + sum(x) * 2).backward();
  EXPECT_EQ(w.grad().tolist(), (V{3 + 4, 4}));
  EXPECT_EQ(half.grad().dtype(), bf16);
  EXPECT_EQ(half.grad().tolist(), (V{2, 2, 2}));
}

TEST(OneTensor, SecondDerivativesGoThroughWrites) {
  const Tensor x = leaf({3}, 2), v = leaf({2}, 3);
  Tensor y = x * 1;
  y.index({Slice(1)}) *= v;
  const Tensor dx = grad({sum(y * y * y)}, {x}, {}, true, true)[0];  // 3 y^2 v: 12, 3 * 36 * 3
  EXPECT_EQ(dx.tolist(), (V{12, 324, 324}));
  const Grads second = grad({sum(dx)}, {x, v});
  EXPECT_EQ(second[0].tolist(), (V{12, 324, 324}));  // 6 x v^3
  EXPECT_EQ(second[1].tolist(), (V{324, 324}));      // 9 x^2 v^2
}

TEST(OneTensor, AssignmentToAViewWrites) {
  Tensor x = zeros({2, 3}, f64);
  const Tensor y = leaf({3}, 4);
  x.index({0}) = y;
  x.index({1, 0}) = 5;
  x.T().index({1}).index({1}) = 6.5;
  EXPECT_EQ(x.tolist(), (V{4, 4, 4, 5, 6.5, 0}));
  x.index({}) = y;
  sum(x).backward();
  EXPECT_EQ(y.grad().tolist(), (V{2, 2, 2}));
  // As in PyTorch, leading dimensions of 1 are left out; copy_ and += do not.
  Tensor z = zeros({2, 3}, f64);
  const Tensor row = leaf({1, 1, 3}, 2);
  z.index({0}) = row;
  z.index({1, 0}) = ones({1}, f64);
  z.index({Slice(1), 1}) = full({1, 1}, 3, f64);
  z.index_put_({z > 2.5}, full({1, 1}, 7, f64));
  z.index_put_({tensor({1}), 2}, full({1, 1, 1}, 8, f64));
  EXPECT_EQ(z.tolist(), (V{2, 2, 2, 1, 7, 8}));
  sum(z).backward();
  EXPECT_EQ(row.grad().tolist(), (V{1, 1, 1}));
  EXPECT_NE(error_of([&] { z.detach().index({0}) = ones({2, 3}, f64); }), "");
  EXPECT_NE(error_of([&] { z.detach().index({0}).copy_(ones({1, 3}, f64)); }), "");
  const auto refused = [](auto assign) {
    EXPECT_EQ(error_of(assign).rfind("=: expected a view on the left", 0), 0u) << error_of(assign);
  };
  refused([&] { exp(x) = y; });
  refused([&] { x.index(tensor({0})) = y; });
  refused([&] { x.T().reshape({6}) = y; });
  refused([&] { x.transpose(0, 1).contiguous() = 1; });
}

// ---- writes by ids and masks

TEST(OneTensor, IdsAndMasksNameWhatIsWritten) {
  const Tensor x = leaf({3, 2}, 1), v = leaf({2}, 5);
  Tensor y = x * 1;
  y.index_put_({tensor({2, 0, -1})}, v * tensor({{1}, {2}, {3}}));  // row 2 twice: the last counts
  EXPECT_EQ(y.tolist(), (V{10, 10, 1, 1, 15, 15}));
  sum(y * y).backward();
  EXPECT_EQ(x.grad().tolist(), (V{0, 0, 2, 2, 0, 0}));
  EXPECT_EQ(v.grad().tolist(), (V{2 * 10 * 2 + 2 * 15 * 3, 2 * 10 * 2 + 2 * 15 * 3}));

  Tensor z = zeros({3, 2}, f64);
  const Tensor column = z.T().index({1});
  z.index_put_({tensor({0, 1, 0}), tensor({1})}, v.index({0}), /*accumulate=*/true);
  z.index_put_({tensor({{false, false}, {false, false}, {true, true}})}, v * 2);
  EXPECT_EQ(z.tolist(), (V{0, 10, 0, 5, 10, 10}));
  EXPECT_EQ(grad({sum(column)}, {v})[0].tolist(), (V{3, 2}));
  z.index_put_({tensor({true, false, true})}, tensor(7.0, f64));
  EXPECT_EQ(z.tolist(), (V{7, 7, 0, 5, 7, 7}));
  z.index_put_({tensor({false, false, false})}, tensor(9.0, f64));
  EXPECT_EQ(z.tolist()[0], 7);
  EXPECT_EQ(error_of([&] { z.index_put_({tensor({3})}, v); }),
            "index_put: index 3 is out of range for dimension 0 of (3, 2)");
  EXPECT_EQ(error_of([&] { z.index_put_({tensor({true})}, v); }),
            "index_put: expected a mask whose sizes are those of (3, 2) from dimension 0 on, got "
            "(1,)");
  EXPECT_EQ(error_of([&] { z.index_put_({tensor({0})}, leaf({3}, 1)); }),
            "index_put: shapes (1, 2) and (3,) do not broadcast");
}

// ---- refusals

TEST(OneTensor, RefusesWritesThatTheGraphCannotSee) {
  Tensor w = leaf({3}, 2), h = w * 1, constant = ones({3}, f64);
  EXPECT_EQ(error_of([&] { w.index({0}) += 1; }),
            "add_: a view of a leaf that requires grad, (), cannot be written in place while a "
            "graph is recorded; do it under NoGrad, or on x.detach()");
  Tensor of_leaf, of_graph, of_constant;
  {
    const NoGrad no_grad;
    of_leaf = w.index({0});
    of_graph = h.index({0}).view({1});
    of_constant = constant.index({0});
    of_graph += 1;
  }
  const std::string hint =
      ", that was taken under NoGrad cannot be written while a graph is recorded, because the "
      "graph would not see it; take the view again, or write under NoGrad";
  EXPECT_EQ(error_of([&] { of_leaf += 1; }), "add_: a view, ()" + hint);
  EXPECT_EQ(error_of([&] { of_graph.fill_(1); }), "fill_: a view, (1,)" + hint);
  EXPECT_EQ(error_of([&] { of_constant += w.index({0}); }), "add_: a view, ()" + hint);
  of_constant += 1;
  EXPECT_EQ(constant.tolist(), (V{2, 1, 1}));
  EXPECT_EQ(h.tolist(), (V{3, 2, 2}));
  constant *= w;  // what the view sees has come into a graph since
  EXPECT_EQ(error_of([&] { of_constant += 1; }), "add_: a view, ()" + hint);
}

TEST(OneTensor, RefusesWritesIntoViewsOfWhatIsExpanded) {
  Tensor wide = ones({3}, f64).expand({2, 3}).detach(), row = wide.index({0});
  const Tensor w = leaf({3}, 2);
  EXPECT_EQ(error_of([&] { row *= w; }),
            "mul_: a view, (3,), of (2, 3), of which several elements lie in one place (it was "
            "expanded or unfolded); clone() that first");
  row *= 2;  // without a graph it is plain memory
  EXPECT_EQ(wide.tolist(), V(6, 2));
  Tensor x = w * 1, same = x.expand({2, 3});
  same.copy_(same);  // nothing to do, as in PyTorch
  EXPECT_TRUE(x.requires_grad());
}

// What divides and what was divided may be written afterwards where PyTorch allows it.
TEST(OneTensor, AQuotientKeepsItsOperands) {
  const Tensor a = leaf({2}, 3), b = leaf({2}, 2);
  Tensor q = a / b, r = 1 / b;
  q += 1;
  r *= 3;
  sum(q + r).backward();
  EXPECT_EQ(b.grad().tolist(), (V{-1.5, -1.5}));  // -a / b^2 - 3 / b^2
}

TEST(OneTensor, FindsASavedValueThatWasWrittenThroughAView) {
  const Tensor x = leaf({3}, 2);
  Tensor y = exp(x);
  y.index({0}) += 1;
  const std::string error = error_of([&] { sum(y).backward(); });
  EXPECT_EQ(error.rfind("the backward of exp: its output, (3,) float64, was saved", 0), 0u)
      << error;
}

// ---- the traps of views

TEST(OneTensor, AViewUnderNoGradKeepsNoGraphAlive) {
  Tensor view;
  {
    const Tensor h = leaf({3}, 2) * 1;
    const NoGrad no_grad;
    view = h.index({0});
  }
  EXPECT_EQ(Node::live, 0);
}

TEST(OneTensor, AViewMadeALeafStaysOne) {
  Tensor x = zeros({2, 2}, f64);
  Tensor row = x.index({0});
  row.requires_grad_();
  x += leaf({2, 2}, 1);  // would give the view a place in the graph of its own
  EXPECT_TRUE(row.is_leaf() && row.requires_grad());
  sum(row * 3).backward();
  EXPECT_EQ(row.grad().tolist(), (V{3, 3}));
}

TEST(OneTensor, RetainGradMovesWithTheTensorAndHooksStay) {
  const Tensor x = leaf({2}, 1);
  Tensor y = x * 2;
  y.retain_grad();
  V seen;
  y.register_hook([&](const Tensor& g) {
    seen = g.tolist();
    return Tensor();
  });
  const Tensor z = y * 3;
  y *= 5;
  sum(z + y).backward();
  EXPECT_EQ(y.grad().tolist(), (V{1, 1}));
  EXPECT_EQ(seen, (V{8, 8}));
  EXPECT_EQ(x.grad().tolist(), (V{16, 16}));

  Tensor base = x * 2, view = base.index({0});
  view.retain_grad();
  const Tensor before = view * 3;
  base *= 2;
  (before + view).backward();
  EXPECT_EQ(view.grad().item(), 1);

  // Of a view, hooks do not see what the write itself sends to the old value.
  base = x * 2, view = base.index({0});
  view.register_hook([&](const Tensor& g) {
    seen = {g.item()};
    return Tensor();
  });
  const Tensor other_use = view * 3;
  view *= 5;
  (other_use + view).backward();
  EXPECT_EQ(seen, V{3});

  // What is written moves at once, though nobody asks for its place afterwards.
  base = x * 2, view = base.index({0});
  view.retain_grad();
  const Tensor early = view * 3;
  view *= 2;
  (early + base.index({0})).backward();
  EXPECT_FALSE(view.grad().defined());
}

TEST(OneTensor, AnExpandedViewSumsItsGradient) {
  const Tensor x = leaf({2, 1}, 1);
  Tensor y = x * 1;
  const Tensor wide = y.expand({2, 3});
  y *= 2;
  sum(wide * tensor({{1, 2, 3}, {4, 5, 6}})).backward();
  EXPECT_EQ(x.grad().tolist(), (V{12, 30}));
}

TEST(OneTensor, AViewFollowsItsBaseOverManyWrites) {
  const Tensor w = leaf({2}, 3);
  Tensor y = zeros({2}, f64);
  const Tensor first = y.index({0});
  for (int i = 0; i < 100; ++i) {
    y.copy_(w * i);
    EXPECT_EQ(grad({first}, {w}, {}, true)[0].tolist(), (V{static_cast<double>(i), 0}));
  }
}

TEST(OneTensor, ThreadsMayUseOneViewWhoseBaseWasWritten) {
  const Tensor w = leaf({64}, 3);
  for (int round = 0; round < 20; ++round) {
    Tensor y = w * 1;
    const Tensor view = y.view({8, 8});
    y *= 2;
    std::vector<std::thread> threads;
    V slots(4);
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] { slots[t] = (view * 2).requires_grad(); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(slots, V(4, 1));
  }
}

TEST(OneTensor, AnObserverMayUseAViewWhoseBaseWasWritten) {
  struct Look : Observer {
    Tensor view;
    int ops = 0, in_graph = 0;
    void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
      ++ops;
      in_graph += view.requires_grad() ? 1 : 0;
    }
  } look;
  const Tensor w = leaf({2}, 3);
  Tensor x = zeros({4}, f64);
  const Tensor view = x.narrow(0, 0, 2);
  look.view = x.narrow(0, 2, 2);
  x.index({0}) = w.index({0});
  const Observe observe(look);
  EXPECT_TRUE(view.requires_grad());
  EXPECT_EQ(look.ops, 0);  // nothing was computed
  exp(w);
  EXPECT_EQ(look.ops, 1);
  EXPECT_EQ(look.in_graph, 1);
}

TEST(OneTensor, ManyRowsCostNoMoreThanTheirOwnSize) {
  constexpr int64_t kRows = 4000;
  const Tensor w = leaf({8}, 1);
  Tensor y = zeros({kRows, 8}, f64);
  for (int64_t i = 0; i < kRows; ++i) y.index({i}).copy_(w);
  const int64_t version = y.version();
  sum(y).backward();  // whole copies would move 4000 x 4000 x 64 bytes, 1 GB
  EXPECT_EQ(w.grad().tolist(), V(8, kRows));
  EXPECT_EQ(y.version(), version);
}

// ---- walks

TEST(OneTensor, AFreedBranchThatIsNotNeededIsNoObstacle) {
  const Tensor a = ones({2}).requires_grad_(), p = ones({2}).requires_grad_();
  const Tensor h = exp(a);
  sum(h).backward();  // frees exp
  const Tensor y = sum(h * 1) + sum(p * 2);
  EXPECT_EQ(grad({y}, {p})[0].tolist(), (std::vector<double>{2, 2}));
  EXPECT_NE(error_of([&] { grad({y}, {a}); }), "(no error)");
  const Tensor e = exp(a), z = sum(e * 1) + sum(p * p);
  grad({z}, {p});  // frees p * p alone
  EXPECT_EQ(grad({z}, {a})[0].tolist(), exp(a).tolist());
}

TEST(OneTensor, TheSeedOfAWalkIsNobodyElses) {
  const Tensor x = tensor(1.0).requires_grad_();
  Tensor y1 = x * 1, y2 = x * 10, kept;
  y1.register_hook([&](const Tensor& g) {
    kept = g;
    return Tensor();
  });
  y2.register_hook([](const Tensor& g) {
    Tensor t = g;
    t.mul_(2);
    return Tensor();
  });
  backward({y1, y2});
  EXPECT_EQ(x.grad().item(), 21);
  EXPECT_EQ(kept.item(), 1);
}

TEST(OneTensor, AHookThatAWalkAddsIsForLaterWalks) {
  Tensor a = ones({2}).requires_grad_(), h = a * 2;
  std::vector<double> seen;
  bool added = false;
  h.register_hook([&](const Tensor&) {
    if (!std::exchange(added, true))
      a.register_hook([&](const Tensor& g) {
        seen = g.tolist();
        return Tensor();
      });
    return Tensor();
  });
  const Tensor y = sum(h) + sum(a * 3);
  y.backward(Tensor(), true);
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(a.grad().tolist(), (std::vector<double>{5, 5}));
  y.backward();
  EXPECT_EQ(seen, (std::vector<double>{5, 5}));
}

TEST(OneTensor, AGradientThatWasSetIsAddedToInPlace) {
  Tensor flat = zeros({4}), w = ones({2}).requires_grad_();
  w.set_grad(flat.narrow(0, 1, 2));
  sum(w * 3).backward();
  EXPECT_EQ(flat.tolist(), (std::vector<double>{0, 3, 3, 0}));
  EXPECT_NE(error_of([&] { w.set_grad(w); }), "(no error)");
}

TEST(OneTensor, WhatACheckpointReturnsIsMemoryOfItsOwn) {
  const Tensor w = ones({2}).requires_grad_(), x = w * 1;
  Tensor y = checkpoint([](const Tensor& t) { return t; }, x);
  y *= 3;
  sum(x).backward();
  EXPECT_EQ(x.tolist(), (std::vector<double>{1, 1}));
  EXPECT_EQ(w.grad().tolist(), (std::vector<double>{1, 1}));
  Tensor z = checkpoint([](const Tensor& t) { return t.view({2, 1}); }, w);
  z *= 3;
  EXPECT_EQ(w.tolist(), (std::vector<double>{1, 1}));
}

TEST(OneTensor, WhatIsComputedAgainIsKeptIfItWasWritten) {
  const Tensor x = tensor({0.5, -1.0}).requires_grad_(), w = tensor({{2.0, 3.0}}).requires_grad_();
  const auto gradient = [&](bool again) {
    const ContextGuard guard(context());
    context().recompute = again;
    Tensor h = gelu(x);
    {
      const NoGrad no_grad;
      h *= 2;
    }
    return grad({sum(linear(h, w))}, {w})[0].tolist();
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

}  // namespace
}  // namespace ink
