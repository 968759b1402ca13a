// The engine, seen from outside: order, sums, freeing, hooks, and ops that users define.
// Threads: test_graph_threads.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/observer.h"
#include "tests/support/error_of.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& values) { return from_vector(values).requires_grad_(); }

TEST(Graph, SharedLeafCollectsBothPaths) {
  const Tensor x = leaf({1, 2, 3});
  sum(exp(x) * x + x).backward();
  const auto dx = x.grad().tolist();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(dx[i], std::exp(i + 1.0) * (i + 2.0) + 1, 1e-12);
}

TEST(Graph, DiamondsAreWalkedOncePerNode) {
  const Tensor x = leaf({2});
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = y + y;  // 2^60 paths
  y.backward();
  EXPECT_EQ(x.grad().item(), std::ldexp(1.0, 60));
}

TEST(Graph, GradientsAddUpOverWalks) {
  const Tensor x = leaf({3});
  (x * x).backward();
  (x * x).backward();
  EXPECT_EQ(x.grad().item(), 12);
}

TEST(Graph, LeafGradientsNeverShareMemory) {
  const Tensor a = leaf({1}), b = leaf({2});
  (a + b).backward();
  NoGrad no_grad;
  a.grad().add_(ones({1}, f64));
  EXPECT_EQ(b.grad().item(), 1);
}

TEST(Graph, ChainOfAMillionNodesIsBuiltWalkedAndFreed) {
  const Tensor x = leaf({1});
  Tensor y = x;
#ifdef __SANITIZE_ADDRESS__
  const int64_t nodes = by_device(30000, 3000);  // enough for any recursion to end on its stacks
#else
  const int64_t nodes = by_device(1000000, 10000);
#endif
  for (int64_t i = 0; i < nodes; ++i) y = y + x;
  EXPECT_EQ(Node::live, nodes);
  y.backward();
  EXPECT_EQ(x.grad().item(), static_cast<double>(nodes + 1));
  Tensor unwalked = x;
  for (int64_t i = 0; i < nodes; ++i) unwalked = exp(unwalked * unwalked);
}

TEST(Graph, IntermediateGradientsOnRequest) {
  const Tensor x = leaf({3});
  Tensor y = x * x, unasked = y + y;
  y.retain_grad();
  const Tensor loss = unasked * unasked;
  backward({loss}, {}, /*retain_graph=*/true);
  EXPECT_EQ(y.grad().item(), 2 * 18 * 2);
  loss.backward();
  EXPECT_EQ(y.grad().item(), 2 * (2 * 18 * 2));  // summed, as a leaf's
  EXPECT_FALSE(unasked.grad().defined());
}

TEST(Graph, HooksOutliveTheHandles) {
  const Tensor x = leaf({3});
  const auto forward = [&] {
    Tensor y = x * x;
    y.register_hook([](const Tensor& dy) { return dy * 10; });
    return y + y;
  };
  forward().backward();
  EXPECT_EQ(x.grad().item(), 2 * 6 * 10);
}

TEST(Graph, HooksSeeAndReplaceCompleteGradients) {
  const Tensor x = leaf({3});
  Tensor y = x * x;
  Values seen;
  y.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return g + g;
  });
  Tensor in = x;
  in.register_hook([&](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  (y + y).backward();
  EXPECT_EQ(seen, (Values{2, 24}));
  EXPECT_EQ(x.grad().item(), 24);
}

TEST(Graph, GradLeavesLeavesAlone) {
  const Tensor x = leaf({3}), y = leaf({4});
  const Tensor middle = x * y, out = middle * x;
  const Grads grads = grad({out}, {x, middle}, {}, true);
  EXPECT_EQ(grads[0].item(), 2 * 3 * 4);
  EXPECT_EQ(grads[1].item(), 3);
  EXPECT_FALSE(x.grad().defined() || y.grad().defined());
  const Tensor unrelated = leaf({1});
  EXPECT_FALSE(grad({out}, {unrelated})[0].defined());
}

TEST(Graph, OneTensorNeedsNoBraces) {
  const Tensor x = leaf({2}), w = leaf({3}), y = x * x * w;
  EXPECT_EQ(grad(y, x, {}, true)[0].item(), 12);
  EXPECT_EQ(grad(y, {x, w}, tensor({2.0}, f64), true)[1].item(), 8);
  EXPECT_EQ(grad({y, x}, x, {}, true)[0].item(), 13);
  EXPECT_EQ(grad(y, std::vector<Tensor>{w}, {}, true).size(), 1u);
  const Tensor dx = grad(y, x, {}, true, /*create_graph=*/true)[0];
  EXPECT_EQ(grad(dx, w)[0].item(), 4);
  backward(y, tensor({0.5}, f64));
  EXPECT_EQ(x.grad().item(), 6);
}

TEST(Graph, HigherDerivatives) {
  const Tensor x = leaf({2});
  const Tensor y = x * x * x * x;
  const Tensor dy = grad({y}, {x}, {}, true, true)[0];
  const Tensor ddy = grad({dy}, {x}, {}, true, true)[0];
  const Tensor dddy = grad({ddy}, {x})[0];
  EXPECT_EQ((Values{dy.item(), ddy.item(), dddy.item()}), (Values{32, 48, 48}));
}

TEST(Graph, ActivationsDieAsTheWalkPasses) {
  const Tensor x = from_vector(Values(1 << 16, 0.01)).requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = exp(y) * y;
  const Tensor loss = sum(y);
  y = Tensor();
  const int64_t before = memory_stats(test_device()).bytes_in_use;
  reset_peak_memory(test_device());
  loss.backward();
  EXPECT_LT(memory_stats(test_device()).peak_bytes_in_use - before, 6 * (1 << 16) * 8);
  EXPECT_LT(memory_stats(test_device()).bytes_in_use, before - 30 * (1 << 16) * 8);
}

TEST(Graph, NoGradAndDetachStopRecording) {
  const Tensor x = leaf({1});
  {
    const NoGrad no_grad;
    EXPECT_FALSE((x * x).requires_grad());
    const EnableGrad enable;
    EXPECT_TRUE((x * x).requires_grad());
  }
  EXPECT_FALSE((x.detach() * x.detach()).requires_grad());
  EXPECT_EQ(x.detach().storage(), x.storage());
}

TEST(Graph, RefusalsNameTheOpAndTheWayOut) {
  const Tensor x = leaf({1, 2});
  EXPECT_EQ(error_of([&] { (x * x).backward(); }),
            "backward: expected a tensor with one element, got (2,); pass the gradient to start "
            "from, or reduce it first "
            "(sum, mean)");
  EXPECT_EQ(
      error_of([&] { x.detach().backward(); }),
      "backward: the tensor does not require grad: it was computed from none that does, or under "
      "NoGrad, or it is a result of grad() without create_graph");
  EXPECT_EQ(error_of([&] { grad(sum(grad(sum(x * x), x)[0]), x); }),
            "grad: the tensor does not require grad: it was computed from none that does, or under "
            "NoGrad, or it is a result of grad() without create_graph");
  const Tensor loss = sum(x * x);
  loss.backward();
  EXPECT_EQ(error_of([&] { loss.backward(); }),
            "backward: the graph through mul was freed by an earlier walk; detach() what is kept "
            "of an earlier step, pass retain_graph to the first walk, or run the forward again");
  EXPECT_EQ(error_of([&] { grad(loss, x); }).rfind("grad: the graph through mul was freed", 0), 0u);
  EXPECT_EQ(error_of([&] { (x * x).backward(ones({3}, f64)); }),
            "backward: expected a gradient of shape (2,), got (3,)");
  EXPECT_EQ(error_of([&] { grad({sum(x)}, {ones({1})}); }),
            "grad: an input of the derivative, (1,), does not require grad");
  Tensor y = x * x;
  EXPECT_EQ(error_of([&] { y.requires_grad_(false); }),
            "requires_grad_: only a leaf's flag can be set; this tensor was computed by mul");
  EXPECT_FALSE(y.requires_grad_().is_leaf());
  Tensor ids = arange(3);
  EXPECT_EQ(error_of([&] { ids.requires_grad_(); }),
            "requires_grad_: expected a floating dtype, got int64");
}

TEST(Graph, RetainGraphAllowsASecondWalk) {
  const Tensor x = leaf({3});
  const Tensor y = x * x;
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(x.grad().item(), 12);
}

// ---- whose gradients are whose

TEST(Graph, ALeafSharesItsGradientWithNobody) {
  for (const bool create_graph : {false, true}) {
    const Tensor a = leaf({1, 2}), b = leaf({2, 3}), c = leaf({3, 4});
    const Tensor seed = ones({2}, f64);
    backward({a + b + c.expand({2})}, {seed}, false, create_graph);
    a.grad() *= 0.5;
    b.grad() *= 0.25;
    EXPECT_EQ(a.grad().tolist(), (Values{0.5, 0.5}));
    EXPECT_EQ(b.grad().tolist(), (Values{0.25, 0.25}));
    EXPECT_EQ(c.grad().tolist(), (Values{1, 1}));
    EXPECT_EQ(seed.tolist(), (Values{1, 1}));
    const Tensor x = leaf({1, 2, 3});
    backward({sum(x)}, {}, false, create_graph);
    x.grad() += 1;  // an expanded gradient would refuse
    EXPECT_EQ(x.grad().tolist(), (Values{2, 2, 2}));
  }
  Tensor a = leaf({1}), b = leaf({2});
  Grads both = grad({a + b}, {a, b});
  both[0] *= 5;
  EXPECT_EQ(both[1].item(), 1);
}

TEST(Graph, AGradientStaysTheSameTensorAsWalksAddToIt) {
  const Tensor x = leaf({3});
  (x * 2).backward();
  const Tensor g = x.grad();
  (x * 5).backward();
  EXPECT_TRUE(x.grad().is_same(g));
  EXPECT_EQ(g.item(), 7);
  const Tensor saved = g * leaf({1});  // keeps the 7
  (x * 1).backward();
  EXPECT_EQ(g.item(), 8);
  Tensor w = leaf({2, 2});
  w.set_grad(ones({1}, f64).expand({2}));
  sum(w * w).backward();
  EXPECT_EQ(w.grad().tolist(), (Values{5, 5}));
}

TEST(Graph, WhatAHookKeepsKeepsItsValue) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 3;
  std::vector<Tensor> kept;
  const auto keep = [&](const Tensor& g) {
    kept.push_back(g);
    return Tensor();
  };
  y.register_hook(keep);
  x.register_hook(keep);
  sum(y + exp(y) * 0).backward();
  sum(x * 100).backward();
  x.grad() *= 0;
  EXPECT_EQ(kept[0].tolist(), (Values{1, 1}));
  EXPECT_EQ(kept[1].tolist(), (Values{3, 3}));
  EXPECT_EQ(kept[2].tolist(), (Values{100, 100}));
}

// As a leaf's that other ops read.
TEST(Graph, HooksOfALeafThatIsTheOutputRun) {
  Tensor x = leaf({2});
  const Tensor y = x * 5;
  std::string log;
  x.register_hook([&](const Tensor& g) {
    log += "before ";
    return g * 3;
  });
  x.register_post_accumulate_grad_hook(
      [&](const Tensor& p) { log += std::to_string(static_cast<int>(p.grad().item())) + " "; });
  x.backward();
  EXPECT_EQ(grad({x}, {x})[0].item(), 3);
  backward({y, x});
  EXPECT_EQ(log, "before 3 before before 21 ");
}

// Walks start from a constant 1 that they share, and a hook sees it, too.
TEST(Graph, AHookMayWriteIntoWhatItSees) {
  const auto tenfold = [](const Tensor& g) {
    Tensor same = g;
    same *= 10;
    return Tensor();
  };
  Tensor x = leaf({2});
  const Tensor a = x * 3;
  Tensor b = x * 4;  // newer than a, and visited before it
  b.register_hook(tenfold);
  backward({a, b});
  EXPECT_EQ(x.grad().item(), 3 + 10 * 4);
  x.set_grad({});
  b.backward();
  EXPECT_EQ(x.grad().item(), 10 * 4);
  x.set_grad({});
  (x * 3).backward();
  EXPECT_EQ(x.grad().item(), 3) << "the next walk starts from 1 again";
}

// And so does a vjp, which is given the constant itself.
TEST(Graph, AVjpThatWritesIntoWhatItIsGivenHarmsNoOtherWalk) {
  Tensor x = leaf({2});
  const auto tenfold = [](const Tensor& dy) -> Grads {
    Tensor same = dy;
    same *= 10;
    return {dy.clone()};
  };
  record("test_tenfold", {x}, x.clone(), tenfold).backward();
  EXPECT_EQ(x.grad().item(), 10);
  x.set_grad({});
  (x * 3).backward();
  EXPECT_EQ(x.grad().item(), 3);
}

TEST(Graph, WhatAHookReturnsHasTheShapeOfWhatItReplaces) {
  Tensor x = leaf({1, 2});
  const auto longer = [](const Tensor& g) { return cat({g, g}); };
  HookHandle hook = x.register_hook(longer);
  const std::string error = "hook: expected a gradient of shape (2,), got (4,)";
  EXPECT_EQ(error_of([&] { sum(x * x).backward(); }), error);
  hook.remove();
  Tensor y = x * 3;
  y.register_hook(longer);
  EXPECT_EQ(error_of([&] { sum(y * y).backward(); }), error);
  EXPECT_FALSE(x.grad().defined());
}

// What a walk starts from is cast, as in PyTorch, and its own derivative is told through the cast.
TEST(Graph, AGivenGradientIsCast) {
  Tensor x = leaf({1, 2});
  for (const Tensor& given :
       {ones({2}), full({2}, 3, i64), tensor({true, false}), ones({2}, bf16)}) {
    x.set_grad({});
    (x * x).backward(given);
    EXPECT_EQ(x.grad().dtype(), f64);
    EXPECT_EQ(x.grad().tolist(), (2 * x.detach() * given.to(f64)).tolist());
    EXPECT_EQ(grad({x * x}, {x}, {given})[0].tolist(), x.grad().tolist());
  }
  Tensor dy = ones({2}).requires_grad_();
  const Tensor dx = grad({x * x}, {x}, {dy}, false, true)[0];
  sum(dx).backward();
  EXPECT_EQ(dy.grad().dtype(), f32);
  EXPECT_EQ(dy.grad().tolist(), (std::vector<double>{2, 4}));
}

TEST(Graph, GradientsHaveTheDtypeOfWhatTheyBelongTo) {
  Tensor x = leaf({1, 2});
  std::ostringstream on;
  on << " on " << test_device();
  const std::string got =
      ": expected a gradient of float64" + on.str() + ", as the tensor, got float32" + on.str();
  EXPECT_EQ(error_of([&] { x.set_grad(ones({2})); }), "set_grad" + got);
  HookHandle hook = x.register_hook([](const Tensor& g) { return g.to(f32); });
  EXPECT_EQ(error_of([&] { sum(x).backward(); }), "hook" + got);
  hook.remove();
  const Tensor wrong =
      record("test_narrow", {x}, x.clone(), [](const Tensor& dy) -> Grads { return {dy.to(f32)}; });
  EXPECT_EQ(error_of([&] { sum(wrong).backward(); }), "test_narrow" + got);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Graph, HooksMustBeThere) {
  Tensor x = leaf({2});
  EXPECT_EQ(error_of([&] { x.register_hook({}); }),
            "register_hook: no function, or the tensor requires no grad");
  EXPECT_EQ(error_of([&] { x.register_post_accumulate_grad_hook({}); }),
            "register_post_accumulate_grad_hook: expected a function, and a leaf with grad");
}

// Like retain_graph, create_graph keeps the graph.
TEST(Graph, AGraphOfTheGradientKeepsThatOfTheValue) {
  const Tensor x = leaf({2}), y = sin(x) * 3;
  const Tensor slope = grad({y}, {x}, {}, false, true)[0];
  EXPECT_NEAR(grad({slope}, {x}, {}, true)[0].item(), -3 * std::sin(2), 1e-6);
  y.backward();
  EXPECT_NEAR(x.grad().item(), 3 * std::cos(2), 1e-6);
}

TEST(Graph, EveryHookOfALeafRuns) {
  Tensor x = leaf({2});
  int runs = 0;
  for (int i = 0; i < 3; ++i) x.register_post_accumulate_grad_hook([&](const Tensor&) { ++runs; });
  (x * 3).backward();
  EXPECT_EQ(runs, 3);
}

TEST(Graph, HooksCanBeRemoved) {
  Tensor x = leaf({2});
  int calls = 0;
  HookHandle once, handle = x.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  once = x.register_hook([&](const Tensor&) {
    calls += 10;
    once.remove();
    return Tensor();
  });
  (x * 2).backward();
  (x * 2).backward();
  handle.remove();
  handle.remove();
  (x * 2).backward();
  EXPECT_EQ(calls, 12);
  Tensor gone = leaf({1});
  handle = gone.register_hook([](const Tensor& g) { return g; });
  gone = Tensor();
  handle.remove();
}

// The order of what happens in a walk, with the leaf's gradient as it is then.
TEST(Graph, ALeafSaysWhenItsGradientIsComplete) {
  Tensor w = leaf({2}), v = leaf({3}), unused = leaf({4});
  std::string log;
  const auto tell = [&](const char* name) {
    return [&log, name](const Tensor& p) {
      log += name + std::string("=") + std::to_string(static_cast<int>(p.grad().item())) + " ";
    };
  };
  w.register_post_accumulate_grad_hook(tell("w"));
  HookHandle on_v = v.register_post_accumulate_grad_hook(tell("v"));
  unused.register_post_accumulate_grad_hook(tell("unused"));
  Tensor first = w * 3;
  first.register_hook([&](const Tensor&) {
    log += "first ";
    return Tensor();
  });
  (first * 1 * v * v + v).backward({}, true);  // v is last used by the product, w by `first`
  EXPECT_EQ(log, "v=37 first w=27 ");
  log.clear();
  on_v.remove();
  EXPECT_EQ(grad({first * v}, {w}, {}, true)[0].item(), 9);
  EXPECT_EQ(log, "first ");  // grad() leaves the leaves alone
}

// ---- what a walk looks at

// Counts the vjps that run.
struct CountVjps : Observer {
  void before_vjp(const Node& node) override { names += node.name + std::string(" "); }
  std::string names;
};

TEST(Graph, OnlyWhatLeadsToWhatIsAskedForRuns) {
  const Tensor p = leaf({2}), q = leaf({3});
  const Tensor branch = exp(exp(q)), middle = sin(p), y = middle * branch + q;
  CountVjps count;
  const Observe observe(count);
  EXPECT_NEAR(grad({y}, {p}, {}, true)[0].item(), std::cos(2) * std::exp(std::exp(3)), 1e-3);
  EXPECT_EQ(count.names, "add mul sin ");
  count.names.clear();
  grad({y}, {middle}, {}, true);
  EXPECT_EQ(count.names, "add mul ");
  count.names.clear();
  EXPECT_FALSE(grad({branch}, {p}, {}, true)[0].defined());
  EXPECT_EQ(count.names, "");
  grad({y}, {p});  // frees what it walked, and the other branch not
  EXPECT_EQ(grad({branch}, {q})[0].defined(), true);
}

// Whoever goes through the list goes on.
TEST(Graph, AnObserverMayChangeTheListForAWhile) {
  struct Quiet : Observer {
  } quiet;
  struct Changes : Observer {
    explicit Changes(Observer& other) : others(100, &other) {}
    std::vector<Observer*> others;
    int ops = 0;
    void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
      ++ops;
      const FieldGuard now(&Context::observers, others);
    }
  } first(quiet), second(quiet);
  const Observe one(first), other(second);
  exp(ones({2}).requires_grad_());
  EXPECT_EQ(first.ops, 1);
  EXPECT_EQ(second.ops, 1);
}

TEST(Graph, AnObserveTakesOffItsOwnObserver) {
  const std::vector<Observer*> before = context().observers;
  CountVjps first, second;
  {
    std::optional<Observe> observe(first);
    const Observe observe_too(second);
    observe.reset();
    EXPECT_EQ(context().observers.size(), before.size() + 1);
    leaf({2}).exp().backward();
    EXPECT_EQ(first.names, "");
    EXPECT_EQ(second.names, "exp ");
    const ContextGuard guard;
    observe.emplace(first);
    context() = Context();
  }
  EXPECT_EQ(context().observers, before);
}

// As in PyTorch: what keeps no tensor is not freed, and can be walked again.
TEST(Graph, OpsThatKeepNothingAreWalkedAgain) {
  Tensor x = leaf({1, 2, 3, 4}), w = leaf({5, 6, 7, 8});
  const Tensor shared = (x + w).view({2, 2});
  const Tensor first = sum(shared), second = sum(shared * shared.transpose(0, 1));
  first.backward();
  second.backward();
  first.backward();
  const Tensor s = shared.detach();
  EXPECT_EQ(x.grad().tolist(), (s.T() * 2 + 2).flatten().tolist());
  EXPECT_EQ(error_of([&] { second.backward(); }).substr(0, 39),
            "backward: the graph through mul was fre");
  x.set_grad({});
  const Recompute again;  // keeps inputs, to compute its output again
  const Tensor y = sum(exp(x.view({2, 2}) * 2));
  y.backward();
  EXPECT_NE(error_of([&] { y.backward(); }), "(no error)");
}

TEST(Graph, AFreedGraphIsRefusedBeforeAnythingHappens) {
  const Tensor a = leaf({2}), b = leaf({3});
  const Tensor shared = exp(a);
  sum(shared).backward();
  const Tensor fresh = b * b, both = fresh + shared;
  EXPECT_NE(error_of([&] { both.backward(); }).find("through exp was freed"), std::string::npos);
  EXPECT_FALSE(b.grad().defined());
  fresh.backward();  // still whole
  EXPECT_EQ(b.grad().item(), 6);
}

TEST(Graph, AHookMayLookAtTheGraphButNotTakeItAway) {
  const Tensor x = leaf({2});
  Tensor y = x * x, z = y * 3;
  double inner = 0;
  z.register_hook([&](const Tensor&) {
    inner = grad({y}, {x}, {}, true)[0].item();
    EXPECT_NE(error_of([&] { y.backward(); }).find("is being walked already"), std::string::npos);
    return Tensor();
  });
  z.backward();
  EXPECT_EQ(inner, 4);
  EXPECT_EQ(x.grad().item(), 12);
}

// ---- ops defined outside the library

// y = x^3, with its derivative in one line: all that a new basic op needs.
Tensor cube(const Tensor& x) {
  const Tensor y = (x * x * x).detach();
  return record("test_cube", {x}, y, [x = Saved::input(x)](const Tensor& dy) -> Grads {
    return {dy * (*x * *x + *x * *x + *x * *x)};
  });
}

TEST(Graph, AUsersOpInADozenLines) {
  const Tensor x = leaf({2});
  const Tensor dx = grad({cube(x)}, {x}, {}, true, true)[0];
  EXPECT_EQ(dx.item(), 12);
  EXPECT_EQ(grad({dx}, {x})[0].item(), 12);
}

// Two outputs, one vjp: (a + b, a * b). The gradient of an output that nobody used is undefined.
std::vector<Tensor> sum_and_product(const Tensor& a, const Tensor& b) {
  return record("test_sum_and_product", {a, b}, {(a + b).detach(), (a * b).detach()},
                [a = Saved::input(a), b = Saved::input(b)](const Grads& dys, VjpContext&) -> Grads {
                  Grads g(2);
                  if (dys[0].defined()) g = {dys[0], dys[0]};
                  if (!dys[1].defined()) return g;
                  const Grads product{dys[1] * *b, dys[1] * *a};
                  return g[0].defined() ? Grads{g[0] + product[0], g[1] + product[1]} : product;
                });
}

TEST(Graph, SeveralOutputsShareOneVjp) {
  const Tensor a = leaf({2}), b = leaf({5});
  const auto both = sum_and_product(a, b);
  (both[0] * both[1]).backward();
  EXPECT_EQ(a.grad().item(), 10 + 7 * 5);
  const auto one = sum_and_product(a, b);
  EXPECT_EQ(grad({one[1]}, {a})[0].item(), 5);
}

// Adds its gradient into what is there already, and skips what nobody needs.
TEST(Graph, NeedsAndInto) {
  const Tensor a = leaf({1}), b = leaf({2}), c = from_vector(Values{3});
  int given = 0;
  const auto op = [&](const Tensor& x, const Tensor& y, const Tensor& z) {
    return record("test_into", {x, y, z}, (x + y + z).detach(),
                  [&given](const Tensor& dy, VjpContext& g) -> Grads {
                    EXPECT_FALSE(g.needs(2));
                    Tensor dx = g.sum_so_far(0);
                    given += dx.defined();
                    if (dx.defined()) {
                      dx.add_(dy);
                    } else {
                      dx = dy.clone();
                    }
                    return {dx, g.needs(1) ? dy : Tensor(), {}};
                  });
  };
  op(a, b, c).backward();
  op(a, b, c).backward();
  EXPECT_EQ(given, 1);
  EXPECT_EQ(a.grad().item(), 2);
  EXPECT_EQ(b.grad().item(), 2);
  const Tensor loss = op(a, b, c);
  EXPECT_EQ(grad({loss}, {a})[0].item(), 1);
  EXPECT_EQ(a.grad().item(), 2);
}

TEST(Graph, AWrongVjpIsNamed) {
  const Tensor x = leaf({1, 2});
  const auto op = [&](auto vjp) { return sum(record("test_wrong", {x}, x.detach().clone(), vjp)); };
  EXPECT_EQ(error_of([&] { op([](const Tensor& dy) -> Grads {
                             return {dy, dy};
                           }).backward(); }),
            "test_wrong: its vjp returned 2 gradients for 1 inputs");
  EXPECT_EQ(error_of([&] { op([](const Tensor& dy) -> Grads { return {sum(dy)}; }).backward(); }),
            "test_wrong: expected a gradient of shape (2,), got ()");
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(error_of([&] { op([](const Tensor&) -> Grads { throw Error("mine"); }).backward(); }),
            "the backward of test_wrong: mine");
  sum(x).backward();  // nothing was left behind
  EXPECT_EQ(x.grad().tolist(), (Values{1, 1}));
}

}  // namespace
}  // namespace ink
