// The engine with several threads: a model that they share through stores, and graphs of their own.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/grad_store.h"
#include "autograd/fused_ops.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& values) { return from_vector(values).requires_grad_(); }

TEST(GraphThreads, ThreadsShareAModelThroughStores) {
  const Tensor weight = from_vector(Values(1000, 0.5)).requires_grad_();
  const auto loss_of = [&](double scale) {
    return sum(exp(weight * weight) * from_vector(Values(1000, scale)));
  };
  GradStore stores[2];
  const Context inherited = context();
  {
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        const ContextGuard guard(inherited);
        for (int i = 0; i < 20; ++i) backward(loss_of(t + 1.0), stores[t]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_FALSE(weight.grad().defined());
  const double one = 2 * 0.5 * std::exp(0.25);
  EXPECT_NEAR(stores[0].get(weight).tolist()[7], 20 * one, 1e-10);
  EXPECT_NEAR(stores[1].get(weight).tolist()[7], 40 * one, 1e-10);
  for (GradStore& store : stores) store.add_to_leaves();
  EXPECT_NEAR(weight.grad().tolist()[999], 60 * one, 1e-10);
  EXPECT_FALSE(stores[0].get(weight).defined());
}

TEST(GraphThreads, RetainGradAndHooksWorkWithAStore) {
  Tensor x = leaf({3});
  int calls = 0;
  x.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 2;
  });
  Tensor y = x * x;
  y.retain_grad();
  GradStore store;
  backward(y * 5, store);
  EXPECT_EQ(y.grad().item(), 5);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(store.get(x).item(), 30);
  store.add_to_leaves();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(x.grad().item(), 60);
}

// Threads that call backward() on graphs of their own add to the same leaves: every gradient
// counts, also where a vjp adds to the sum so far. All numbers are whole, so that sums are exact.
TEST(GraphThreads, ThreadsAddToTheLeavesOfOneModel) {
  constexpr int kThreads = 4, kWalks = 300;
  const Tensor x = ones({8, 3}), w = zeros({5, 3}).requires_grad_(),
               b = zeros({5}).requires_grad_();
  Tensor scale = ones({5}).requires_grad_(), hooked = zeros({5}).requires_grad_();
  std::atomic<int> before = 0, after = 0;
  hooked.register_hook([&](const Tensor& g) {
    ++before;
    return g * 2;
  });
  hooked.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    EXPECT_EQ(leaf.grad().tolist()[0], 16.0 * ++after)
        << "the hook sees the sum that it is called for";
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kWalks; ++i)
        (sum(linear(x, w, b) + hooked) + sum(scale * scale)).backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double walks = kThreads * kWalks;
  EXPECT_EQ(w.grad().tolist(), Values(15, 8 * walks));
  EXPECT_EQ(b.grad().tolist(), Values(5, 8 * walks));
  EXPECT_EQ(scale.grad().tolist(), Values(5, 2 * walks));
  EXPECT_EQ(hooked.grad().tolist(), Values(5, 16 * walks));
  EXPECT_EQ(before, walks);
  EXPECT_EQ(after, walks);
}

// A hook may walk another graph into the leaf whose hook it is.
TEST(GraphThreads, AHookWalksIntoItsOwnLeaf) {
  Tensor x = leaf({3});
  bool first = true;
  x.register_post_accumulate_grad_hook([&](const Tensor& again) {
    const EnableGrad with_graph;
    if (std::exchange(first, false)) (again * 5).backward();
  });
  (x * 2).backward();
  EXPECT_EQ(x.grad().item(), 7);
}

// Leaves without hooks share a few locks; a hook may wait for another thread's.
// A walk that frees its graph may look at it from its hooks, and no other thread may meanwhile.
TEST(GraphThreads, NobodyWalksAGraphThatIsBeingFreed) {
  const Tensor x = ones({}).requires_grad_();
  Tensor y = x * x, z = y * 3;
  std::string before, after;
  const auto error_elsewhere = [&](std::string& error) {
    std::thread([&] { error = error_of([&] { grad({y}, {x}, {}, true); }); }).join();
  };
  z.register_hook([&](const Tensor&) {
    error_elsewhere(before);
    EXPECT_EQ(grad({y}, {x}, {}, true)[0].item(), 2);
    error_elsewhere(after);
    return Tensor();
  });
  z.backward();
  for (const std::string& error : {before, after})
    EXPECT_NE(error.find("is being walked already, by another thread"), std::string::npos) << error;
}

TEST(GraphThreads, HooksOfTwoLeavesMeet) {
  // Of 65 leaves two share one of the 64 locks that leaves without hooks have.
  std::vector<Tensor> pair;
  std::map<const void*, Tensor> by_lock;
  while (pair.empty()) {
    ASSERT_LE(by_lock.size(), 64u);
    Tensor x = leaf({2});
    const auto [before, is_first] = by_lock.emplace(&x.slot()->mutex(), x);
    if (!is_first) pair = {before->second, x};
  }
  std::atomic<int> inside = 0, met = 0;
  const auto meet = [&](const Tensor&) {
    ++inside;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (inside < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    met += inside == 2;
  };
  std::vector<std::thread> threads;
  for (Tensor x : pair) {
    x.register_post_accumulate_grad_hook(meet);
    threads.emplace_back([x] { (x * 3).backward(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, 2);
  for (const Tensor& x : pair) EXPECT_EQ(x.grad().item(), 3);
}

// Of walks that would free a graph that they share, one is right and the others are refused, and
// have changed nothing. Walks that leave it as it is are all right.
TEST(GraphThreads, ThreadsThatShareAnInnerNode) {
  for (const bool retain : {false, true}) {
    for (int round = 0; round < 50; ++round) {
      const Tensor w = from_vector(Values(64, 0.5)).requires_grad_();
      const Tensor shared = exp(w * w);
      std::vector<Tensor> own, losses;
      for (int t = 0; t < 3; ++t) {
        own.push_back(leaf({2.0}));
        losses.push_back(sum(sin(shared) * own.back()));
      }
      std::vector<std::string> errors(3);
      std::vector<Grads> found(3);
      std::vector<std::thread> threads;
      for (size_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          errors[t] = error_of([&] { found[t] = grad({losses[t]}, {w, own[t]}, {}, retain); });
        });
      }
      for (std::thread& thread : threads) thread.join();
      int right = 0;
      for (size_t t = 0; t < 3; ++t) {
        if (errors[t] == "(no error)") {
          const double u = std::exp(0.25);
          EXPECT_NEAR(found[t][0].tolist()[63], 2 * std::cos(u) * u, 1e-12);
          ++right;
        } else {
          EXPECT_NE(errors[t].find(": the graph through "), std::string::npos) << errors[t];
          EXPECT_FALSE(losses[t].slot()->node->freed);
        }
      }
      EXPECT_EQ(right, retain ? 3 : 1);
    }
  }
}

TEST(GraphThreads, ThreadsHaveIndependentGraphs) {
  std::vector<std::thread> threads;
  std::vector<double> results(4);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&results, t] {
      const Tensor x = from_vector(Values{static_cast<double>(t)}).requires_grad_();
      for (int i = 0; i < 200; ++i) (x * x).backward();
      results[t] = x.grad().item();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, (std::vector<double>{0, 400, 800, 1200}));
}

}  // namespace
}  // namespace ink
