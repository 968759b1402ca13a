// Dropout: what is kept, that the mask is a function of position and index alone, and that backward
// draws the same one.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "autograd/random/philox.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

using Values = std::vector<double>;

// The mask of dropout(x, p) at a position, by the definition.
Values plain_mask(int64_t n, double p, const RandomPosition& at, uint64_t first = 0) {
  Values mask;
  for (uint64_t i = first; i < first + static_cast<uint64_t>(n); ++i) {
    const uint64_t key = Philox::derive(at.seed, at.step, at.micro_batch);
    const double uniform = Philox::uniform(Philox::at(key, i / 4, at.call)[i % 4]);
    mask.push_back(uniform >= p ? 1 / (1 - p) : 0);
  }
  return mask;
}

class Dropout : public testing::Test {
 protected:
  void SetUp() override { context().random = {.seed = 7, .step = 3, .micro_batch = 1}; }
  const ContextGuard guard_;
};

TEST_F(Dropout, MaskIsTheDefinitions) {
  for (double p : {0.1, 0.5, 0.999}) {
    const RandomPosition at = context().random;
    EXPECT_EQ(dropout(ones({1037}, f64), p).tolist(), plain_mask(1037, p, at)) << p;
    EXPECT_EQ(context().random.call, at.call + 1);
  }
}

TEST_F(Dropout, CountersPass32Bits) {
  constexpr int64_t kRow = 4100;
  context().random.call = uint64_t{5} << 32 | 3;
  context().random.first_row = (uint64_t{1} << 34) / kRow;  // four elements a counter
  const RandomPosition at = context().random;
  const Tensor y = dropout(ones({1, kRow}, f64), 0.5);
  EXPECT_EQ(y.tolist(), plain_mask(kRow, 0.5, at, at.first_row * kRow));
}

TEST_F(Dropout, KeepsTheRightShare) {
  const Tensor y = dropout(ones({1000000}), 0.3);
  const auto values = y.tolist();
  const auto kept = static_cast<double>(
      std::count_if(values.begin(), values.end(), [](double v) { return v != 0; }));
  EXPECT_NEAR(kept / 1e6, 0.7, 5 * std::sqrt(0.21 / 1e6));
  EXPECT_EQ((std::set<double>(values.begin(), values.end())),
            (std::set<double>{0, static_cast<float>(1 / 0.7)}));
}

TEST_F(Dropout, SameMaskWhateverTheThreads) {
  const RandomPosition at = context().random;
  const int threads = omp_get_max_threads();
  Values runs[4];
  for (int n = 1; n <= 4; ++n) {
    omp_set_num_threads(n);
    context().random = at;
    runs[n - 1] = dropout(ones({100003}), 0.5).tolist();
  }
  omp_set_num_threads(threads);
  for (int n = 1; n < 4; ++n) EXPECT_EQ(runs[n], runs[0]) << n + 1 << " threads";
}

TEST_F(Dropout, PartsOfABatchDrawTheirOwnRows) {
  const RandomPosition at = context().random;
  const Tensor whole = dropout(ones({7, 5, 3}), 0.5);
  for (uint64_t first : {0u, 2u, 5u}) {
    context().random = at;
    context().random.first_row = first;
    EXPECT_EQ(dropout(ones({2, 5, 3}), 0.5).tolist(),
              whole.narrow(0, static_cast<int64_t>(first), 2).tolist());
  }
}

TEST_F(Dropout, PositionsAreStreamsOfTheirOwn) {
  std::set<Values> masks;
  for (uint64_t k = 0; k < 3; ++k) {
    const RandomPosition positions[] = {
        {.seed = k}, {.step = k + 1}, {.micro_batch = k + 1}, {.call = k + 1}};
    for (const RandomPosition& at : positions) {
      context().random = at;
      masks.insert(dropout(ones({64}), 0.5).tolist());
    }
  }
  EXPECT_EQ(masks.size(), 12u);
}

TEST_F(Dropout, ManualSeedStartsOver) {
  manual_seed(11);
  const Values first = dropout(ones({100}), 0.5).tolist();
  const Values second = dropout(ones({100}), 0.5).tolist();
  EXPECT_NE(first, second);
  manual_seed(11);
  EXPECT_EQ(dropout(ones({100}), 0.5).tolist(), first);
  manual_seed(12);
  EXPECT_NE(dropout(ones({100}), 0.5).tolist(), first);
}

TEST_F(Dropout, BackwardDrawsTheSameMask) {
  const Tensor x = ones({999}, f64).requires_grad_();
  const Tensor y = dropout(x, 0.4);
  dropout(x, 0.4);
  context().random = {.seed = 99};  // the position of the forward pass is the one that counts
  sum(y).backward();
  EXPECT_EQ(x.grad().tolist(), y.tolist());
}

TEST_F(Dropout, ComposedIsTheSameNumbers) {
  const RandomPosition at = context().random;
  const Tensor x = arange(0, 300, DType::f32).requires_grad_();
  const Tensor y = dropout(x, 0.4);
  context().random = at;
  const Composed composed;
  EXPECT_EQ(dropout(x, 0.4).tolist(), y.tolist());
}

TEST_F(Dropout, NothingToDo) {
  const Tensor x = ones({3}).requires_grad_();
  EXPECT_EQ(dropout(x, 0).slot(), x.slot());
  EXPECT_EQ(dropout(x, 0.5, false).slot(), x.slot());
  EXPECT_EQ(context().random.call, 0u);
  EXPECT_EQ(dropout(x, 1).tolist(), Values(3, 0));
  EXPECT_EQ(grad({dropout(x, 1)}, {x}, {ones({3})})[0].tolist(), Values(3, 0));
}

TEST_F(Dropout, DroppedNanAndInfinityStayNanAsInPyTorch) {
  const Tensor x = tensor({std::nan(""), INFINITY, 1.0});
  const Values y = dropout(x, 1).tolist();
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 0);
}

// ---- threads of the user's own

Values mask_of(int64_t n = 200) { return dropout(ones({n}, f64), 0.5).tolist(); }

// What f() gives on a new thread.
template <class F>
Values on_a_thread(const F& f) {
  Values result;
  std::thread([&] { result = f(); }).join();
  return result;
}

TEST_F(Dropout, EveryThreadHasItsOwnMasksWhichFollowTheSeed) {
  const auto all_masks = [](uint64_t seed) {
    manual_seed(seed);
    std::vector<Values> masks{mask_of(), mask_of()};
    for (int t = 0; t < 3; ++t) {
      masks.push_back(on_a_thread([&] {
        masks.push_back(mask_of());
        return mask_of();
      }));
    }
    return masks;
  };
  const auto of_one = all_masks(1), of_two = all_masks(2), again = all_masks(1);
  EXPECT_EQ(of_one, again);
  std::set<Values> different(of_one.begin(), of_one.end());
  different.insert(of_two.begin(), of_two.end());
  EXPECT_EQ(different.size(), of_one.size() + of_two.size());
}

// Threads that the library starts for a thread's ops take no part in this.
TEST_F(Dropout, MasksOfThreadsDoNotDependOnHowOpsShareTheirWork) {
  const auto masks_with = [](int threads) {
    manual_seed(1);
    std::vector<Values> masks;
    for (int t = 0; t < 2; ++t) {
      masks.push_back(on_a_thread([&] {
        omp_set_num_threads(threads);
        const Tensor x = ones({4, 64, 192}).requires_grad_(), w = ones({192, 192}).requires_grad_();
        const Tensor h = layer_norm(gelu_linear(x, w), ones({192}));
        const Tensor y = scaled_dot_product_attention(h, h, h, {.is_causal = true});
        (sum(dropout(softmax(y), 0.5)) + cross_entropy(y, zeros({4, 64}, i64))).backward();
        return mask_of();
      }));
    }
    return masks;
  };
  EXPECT_EQ(masks_with(1), masks_with(3));
}

// A thread that has drawn before follows the next call of manual_seed, too, on whatever thread.
TEST_F(Dropout, AThreadThatLivesOnFollowsTheSeed) {
  std::vector<Values> masks;
  std::thread([&] {
    for (const uint64_t seed : {5, 6, 5}) {
      std::thread([&] { manual_seed(seed); }).join();
      masks.push_back(mask_of());
    }
  }).join();
  EXPECT_EQ(masks[0], masks[2]);
  EXPECT_NE(masks[0], masks[1]);
}

// A thread's own seed or position is no other thread's business, and an inherited one is kept.
TEST_F(Dropout, APositionThatWasSetStays) {
  manual_seed(3);
  const Context caller = context();
  const Values expected = mask_of();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(on_a_thread([&] {
                const ContextGuard guard(caller);
                return mask_of();
              }),
              expected);
    EXPECT_EQ(on_a_thread([&] {
                manual_seed(3);
                return mask_of();
              }),
              expected);
    const Values own = on_a_thread([&] {
      context().random = {.seed = 3, .micro_batch = 1};
      manual_seed(100);
      context().random = {.seed = 3, .micro_batch = 1};
      std::thread([] { manual_seed(9); }).join();
      return mask_of();
    });
    EXPECT_EQ(own, plain_mask(200, 0.5, {.seed = 3, .micro_batch = 1}));
  }
  EXPECT_EQ(context().random.call, 1u);
}

TEST_F(Dropout, ThreadsLeaveNoWeightWithoutAGradient) {
  manual_seed(1);
  Tensor w = ones({40}).requires_grad_();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 40; ++i) sum(dropout(w, 0.5)).backward();
    });
  for (std::thread& thread : threads) thread.join();
  for (const double g : w.grad().tolist()) EXPECT_GT(g, 0);
}

TEST_F(Dropout, ErrorTexts) {
  EXPECT_EQ(error_of([] { dropout(ones({2}), 1.5); }),
            "dropout: expected a probability in [0, 1], got 1.5");
  EXPECT_EQ(error_of([] { dropout(ones({2}), -0.1); }),
            "dropout: expected a probability in [0, 1], got -0.1");
  EXPECT_EQ(error_of([] { dropout(ones({2}, i64), 0.5); }),
            "dropout: expected a floating dtype, got int64");
}

}  // namespace
}  // namespace ink
