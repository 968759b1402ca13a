// Attention's masks cannot lie: what a query must not see never matters to it, be it NaN, forward
// and backward, in kernels and definitions; and dropout of the weights is dropout's own.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

using Values = std::vector<double>;

class AttentionMask : public testing::Test {
 protected:
  void SetUp() override { manual_seed(1); }
  const ContextGuard guard_;
};

struct Result {
  Tensor out;
  Grads grads;  // of q, k, v, and of a floating mask
};

Result attend(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options) {
  const ContextGuard same_mask;
  std::vector<Tensor> leaves{q.clone(), k.clone(), v.clone()};
  Tensor& mask = options.attn_mask;
  if (mask.defined() && mask.is_floating()) leaves.push_back(mask.clone());
  for (Tensor& x : leaves) x.requires_grad_();
  if (leaves.size() == 4) mask = leaves[3];
  const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], options);
  const Tensor upstream = sin(arange(static_cast<double>(out.numel()), f64)).to(out.dtype());
  return {out.detach(), grad({out}, leaves, {upstream.view(out.shape())})};
}

void expect_bits(const Result& got, const Result& expected, const std::string& what) {
  EXPECT_EQ(got.out.tolist(), expected.out.tolist()) << what << ": out";
  for (size_t i = 0; i < got.grads.size(); ++i)
    EXPECT_EQ(got.grads[i].tolist(), expected.grads[i].tolist()) << what << ": gradient " << i;
}

// A way of masking, and the sizes it is tried at: (B, H, T, S), with H / group heads of keys. From
// key `hidden` of batch 0 on no query sees any.
struct Variant {
  std::string name;
  int64_t T, S, group, hidden;
  std::function<AttentionOptions(int64_t T, int64_t S, int64_t hidden, DType dtype)> options;
};

// (2, 1, 1, S): batch 0 sees keys before `hidden` alone, batch 1 all but key 0.
Tensor padding(int64_t S, int64_t hidden) {
  const Tensor j = arange(static_cast<double>(S));
  return stack({j<static_cast<double>(hidden), j> 0.0}).view({2, 1, 1, S});
}
Tensor as_bias(const Tensor& allowed, DType dtype) {
  const Tensor bias = sin(arange(static_cast<double>(allowed.numel()), dtype));
  return masked_fill(bias.view(allowed.shape()), logical_not(allowed), -INFINITY);
}
// (T, S): a band of width 3 that ends before `hidden`.
Tensor band(int64_t T, int64_t S, int64_t hidden) {
  const Tensor i = arange(static_cast<double>(T)).unsqueeze(1), j = arange(static_cast<double>(S));
  return logical_and(logical_and(j <= i + 1.0, i <= j + 1.0), j < static_cast<double>(hidden));
}

std::vector<Variant> variants() {
  const auto upper = [](auto...) { return AttentionOptions{.is_causal = true}; };
  const auto pad = [](auto, auto S, auto hidden, auto) {
    return AttentionOptions{.attn_mask = padding(S, hidden)};
  };
  const auto bias = [](auto, auto S, auto hidden, auto dtype) {
    return AttentionOptions{.attn_mask = as_bias(padding(S, hidden), dtype)};
  };
  const auto window = [](auto T, auto S, auto hidden, auto) {
    return AttentionOptions{.attn_mask = band(T, S, hidden)};
  };
  const auto all = [](auto, auto S, auto hidden, auto dtype) {
    return AttentionOptions{.attn_mask = as_bias(padding(S, hidden), dtype),
                            .dropout_p = 0.3,
                            .is_causal = true,
                            .scale = 0.2};
  };
  std::vector<Variant> list;
  for (const auto& [T, S, hidden] :
       {std::array<int64_t, 3>{7, 9, 5}, {70, 300, 41}, {300, 400, 230}}) {
    list.push_back({"causal", T, S, 1, T, upper});
    list.push_back({"causal, grouped", T, S, 2, T, upper});
    list.push_back({"padding", T, S, 1, hidden, pad});
    list.push_back({"padding, grouped", T, S, 2, hidden, pad});
    list.push_back({"bias", T, S, 1, hidden, bias});
    list.push_back({"band", T, S, 1, hidden, window});
    list.push_back({"all", T, S, 2, hidden, all});
  }
  return list;
}

TEST_F(AttentionMask, KeysThatNoQuerySeesNeverMatter) {
  int64_t cases = 0, combinations = 0;
  for (const Variant& variant : variants()) {
    for (const DType dtype : {f32, f64, bf16}) {
      if (combinations++ % by_device(1, 10) != 0) continue;
      const auto& [name, T, S, group, hidden, options] = variant;
      const Tensor q = randn({2, 4, T, 5}, dtype), k = randn({2, 4 / group, S, 5}, dtype),
                   v = randn({2, 4 / group, S, 3}, dtype);
      const AttentionOptions how = options(T, S, hidden, dtype == f64 ? f64 : f32);
      const Result clean = attend(q, k, v, how);
      for (const double poison : {double(NAN), double(INFINITY), -double(INFINITY)}) {
        if (!test_device().is_cpu() && !std::isnan(poison)) continue;
        for (const bool in_keys : {true, false}) {
          Tensor bad_k = k.clone(), bad_v = v.clone();
          (in_keys ? bad_k : bad_v).narrow(0, 0, 1).narrow(2, hidden, S - hidden).fill_(poison);
          expect_bits(attend(q, bad_k, bad_v, how), clean, name);
          ++cases;
        }
      }
    }
  }
  EXPECT_EQ(cases, by_device(21 * 3 * 6, 7 * 2));
}

// Query 100's tile ends before key 192 at the latest: its row and all before it stay what they are.
TEST_F(AttentionMask, KeysBeyondTheTileNeverMatter) {
  for (const bool lower_right : {false, true}) {
    const int64_t T = 300, S = 300;
    const Tensor q = randn({2, T, 8}), k = randn({2, S, 8}), v = randn({2, S, 8});
    const AttentionOptions how{.is_causal = !lower_right, .causal_lower_right = lower_right};
    const Tensor upstream = cat({randn({2, 100, 8}), zeros({2, T - 100, 8})}, 1);
    const auto run = [&](const Tensor& keys, const Tensor& values) {
      std::vector<Tensor> x{q.clone(), keys.clone(), values.clone()};
      for (Tensor& leaf : x) leaf.requires_grad_();
      const Tensor out = scaled_dot_product_attention(x[0], x[1], x[2], how).narrow(1, 0, 100);
      Result result{out.detach(), grad({out}, x, {upstream.narrow(1, 0, 100)})};
      result.grads[0] = result.grads[0].narrow(1, 0, 100);
      result.grads.resize(1);
      return result;
    };
    Tensor bad_k = k.clone(), bad_v = v.clone();
    bad_k.narrow(1, 192, S - 192).fill_(NAN);
    bad_v.narrow(1, 192, S - 192).fill_(INFINITY);
    expect_bits(run(bad_k, bad_v), run(k, v), "beyond the tile");
  }
}

// Of key j, query i < j must see nothing, wherever in the diagonal tile they are.
TEST_F(AttentionMask, LargeNumbersInTheDiagonalTileNeverMatter) {
  const int64_t T = 100;
  for (const DType dtype : {f32, f64}) {
    const Tensor q = randn({2, T, 8}, dtype), k = randn({2, T, 8}, dtype),
                 v = randn({2, T, 4}, dtype), upstream = randn({2, T, 4}, dtype);
    for (const int64_t j : {1, 15, 16, 17, 40, 63, 64, 99}) {
      const auto run = [&](double large) {
        std::vector<Tensor> x{q.clone(), k.clone(), v.clone()};
        if (large != 0) {
          x[1].narrow(1, j, T - j).fill_(large);
          x[2].narrow(1, j, T - j).fill_(large);
        }
        for (Tensor& leaf : x) leaf.requires_grad_();
        const Tensor out =
            scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true}).narrow(1, 0, j);
        Result result{out.detach(), grad({out}, x, {upstream.narrow(1, 0, j)})};
        result.grads[0] = result.grads[0].narrow(1, 0, j);
        return result;
      };
      const Result clean = run(0);
      for (const double large : {1e30, -1e30})
        expect_bits(run(large), clean, "key " + std::to_string(j));
    }
  }
}

// Ways to hide keys from some queries and not from others, which queries see which, (T, S).
struct Partly {
  std::string name;
  AttentionOptions options;
  Tensor sees;
};
std::vector<Partly> partly_hidden(int64_t T, int64_t S, DType dtype) {
  const Tensor i = arange(double(T)).unsqueeze(1), j = arange(double(S));
  const Tensor upper = j <= i, lower = j <= i + double(S - T),
               window = logical_and(lower, j > i + double(S - T - 5)),
               bias = as_bias(window, dtype == f64 ? f64 : f32);
  return {{"causal", {.is_causal = true}, upper},
          {"lower right", {.causal_lower_right = true}, lower},
          {"window", {.attn_mask = window}, window},
          {"window of the options", {.causal_lower_right = true, .window = 5}, window},
          {"bias", {.attn_mask = bias}, window},
          {"both", {.attn_mask = window, .is_causal = true}, logical_and(window, upper)},
          {"dropout", {.dropout_p = 0.3, .is_causal = true}, upper}};
}

// Compares the rows of x (2, T, d) of which `reached` (T) is false.
void expect_unreached(const Tensor& got, const Tensor& clean, const Tensor& reached,
                      const std::string& what) {
  const Tensor rows = reached.unsqueeze(1).to(got.device());
  EXPECT_TRUE(same_bits(masked_fill(got, rows, 0), masked_fill(clean, rows, 0))) << what;
}

// One row of q, k, v or dout in `poison`. It may reach the queries in `rows`, and the keys that
// they see.
void expect_reaches_only(const Partly& how, const std::vector<Tensor>& inputs, size_t bad,
                         int64_t at, double poison, const Result& clean, const std::string& what) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs) x.push_back(input.clone());
  x[bad].narrow(1, at, 1).fill_(poison);
  const int64_t T = how.sees.size(0);
  const Tensor rows = bad == 0 || bad == 3 ? arange(double(T)) == double(at)
                                           : how.sees.select(1, at).clone(),
               keys = any(logical_and(how.sees, rows.unsqueeze(1)), {0}),
               none = zeros(rows.shape(), DType::boolean);
  std::vector<Tensor> leaves{x[0], x[1], x[2]};
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  const ContextGuard same_dropout;
  const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], how.options);
  const Grads grads = grad({out}, leaves, {x[3]});
  expect_unreached(out.detach(), clean.out, bad == 3 ? none : rows, what + ": out");
  expect_unreached(grads[0], clean.grads[0], rows, what + ": dq");
  expect_unreached(grads[1], clean.grads[1], keys, what + ": dk");
  expect_unreached(grads[2], clean.grads[2], keys, what + ": dv");
  if (bad == 1) return;  // an infinite score may be -inf
  const Tensor odd = any(logical_not(isfinite(bad == 3 ? grads[2] : out.detach())), {0, 2}),
               seeing = logical_and(rows, any(how.sees, {1}));
  EXPECT_TRUE(same_bits(odd, bad == 3 ? keys : seeing)) << what << ": too few";
}

TEST_F(AttentionMask, AHiddenValueReachesNobody) {
  const std::vector<std::array<int64_t, 2>> sizes{{3, 20}, {8, 8}, {16, 16}, {70, 75}, {300, 300}};
  const bool short_ones = std::getenv("INKLING_TEST_LARGEST") != nullptr;
  for (const auto& [T, S] : sizes) {
    if (short_ones && T > 100) continue;  // minutes
    for (const DType dtype : {f32, f64, bf16}) {
      if (short_ones && T > 20 && dtype == f64) continue;  // the kernels of f32
      const std::vector<Tensor> inputs{randn({2, T, 16}, dtype), randn({2, S, 16}, dtype),
                                       randn({2, S, 8}, dtype), randn({2, T, 8}, dtype)};
      for (const Partly& how : partly_hidden(T, S, dtype)) {
        std::vector<Tensor> leaves{inputs[0].clone(), inputs[1].clone(), inputs[2].clone()};
        for (Tensor& leaf : leaves) leaf.requires_grad_();
        Result clean;
        {
          const ContextGuard same_dropout;
          const Tensor out =
              scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], how.options);
          clean = {out.detach(), grad({out}, leaves, {inputs[3]})};
        }
        for (const double poison : {double(NAN), double(INFINITY)}) {
          for (size_t bad = 0; bad < 4; ++bad) {
            const int64_t rows = inputs[bad].size(1);
            if (T > (short_ones ? 20 : 100) && std::isinf(poison)) continue;  // seconds
            for (const int64_t at : {rows / 2, rows - 2}) {
              if (short_ones && T > 20 && at != rows / 2) continue;
              expect_reaches_only(how, inputs, bad, at, poison, clean,
                                  how.name + " " + std::to_string(T) + " " + name_of(dtype) + ", " +
                                      "qkvd"[bad] + std::to_string(at) + std::to_string(poison));
            }
          }
        }
      }
    }
  }
}

TEST_F(AttentionMask, RowsThatSeeNothingAreZero) {
  for (const bool definition : {false, true}) {
    const FlagGuard mode(&Context::composed, definition);
    const Tensor q = randn({2, 70, 4}), k = randn({2, 70, 4}), v = randn({2, 70, 3});
    const Tensor rows = arange(70.0) == 3.0;  // query 3 sees nothing
    const Tensor allowed = logical_not(rows.unsqueeze(1).expand({70, 70}));
    for (const Tensor& mask : {allowed, as_bias(allowed, f32)}) {
      const Result run = attend(q, k, v, {.attn_mask = mask, .is_causal = true});
      EXPECT_EQ(run.out.narrow(1, 3, 1).tolist(), Values(6, 0));
      EXPECT_EQ(run.grads[0].narrow(1, 3, 1).tolist(), Values(8, 0));
      for (const Tensor& g : run.grads) EXPECT_TRUE(all(isfinite(g)).item() != 0);
    }
    const Result none = attend(q, k, v, {.attn_mask = zeros({}, DType::boolean)});
    EXPECT_EQ(none.out.tolist(), Values(2 * 70 * 3, 0));
    for (const Tensor& g : none.grads) EXPECT_EQ(sum(abs(g)).item(), 0);
  }
}

// How attention and its gradients are computed.
enum class By { kernels, definition, second };

// out and the gradients of q, k, v and a floating mask; and with By::second those of a sum of those
// gradients, too.
Result attend_by(By by, const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options,
                 const Tensor& upstream) {
  const FlagGuard mode(&Context::composed, by == By::definition);
  std::vector<Tensor> leaves{q.clone(), k.clone(), v.clone()};
  Tensor& mask = options.attn_mask;
  if (mask.defined() && mask.is_floating()) leaves.push_back(mask.clone());
  for (Tensor& x : leaves) x.requires_grad_();
  if (leaves.size() == 4) mask = leaves[3];
  const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], options);
  Result result{out.detach(), grad({out}, leaves, {upstream}, false, by == By::second)};
  if (by != By::second) return result;
  Tensor total = zeros({}, q.dtype());
  for (const Tensor& g : result.grads) total = total + sum(sin(g));
  for (const Tensor& g : grad({total}, leaves)) result.grads.push_back(g);
  return result;
}
Result attend_by(By by, const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  const Tensor wave = sin(arange(static_cast<double>(q.numel() / q.size(-1) * v.size(-1)), f64));
  Shape shape = q.shape();
  shape.back() = v.size(-1);
  return attend_by(by, q, k, v, options, wave.view(shape).to(q.dtype()));
}

// As expect_reaches_only, of the definition, and with second derivatives of what is not reached.
// A hidden value counts as 0.
void expect_hidden_as_zero(By by, const Partly& how, const std::vector<Tensor>& inputs, size_t bad,
                           int64_t at, double poison, const std::string& what) {
  const int64_t T = how.sees.size(0);
  const Tensor rows = bad == 0 || bad == 3 ? arange(double(T)) == double(at)
                                           : how.sees.select(1, at).clone(),
               keys = any(logical_and(how.sees, rows.unsqueeze(1)), {0}),
               none = zeros(rows.shape(), DType::boolean);
  const std::array reached{rows.unsqueeze(1), keys.unsqueeze(1), keys.unsqueeze(1)};
  const FlagGuard mode(&Context::composed, by == By::definition);
  const auto run = [&](double value) {
    const ContextGuard same_dropout;
    std::vector<Tensor> x;
    for (const Tensor& input : inputs) x.push_back(input.clone());
    x[bad].narrow(1, at, 1).fill_(value);
    const std::vector leaves{x[0].requires_grad_(), x[1].requires_grad_(), x[2].requires_grad_()};
    const Tensor out = scaled_dot_product_attention(x[0], x[1], x[2], how.options);
    Grads results = grad({out}, leaves, {x[3]}, false, by == By::second);
    if (by == By::second) {
      Tensor total = zeros({}, out.dtype());
      for (size_t i = 0; i < 3; ++i)
        total = total + sum(sin(masked_fill(results[i], reached[i], 0)));
      for (const Tensor& g : grad({total}, leaves)) results.push_back(g);
    }
    for (size_t i = 0; i < results.size(); ++i)
      results[i] = masked_fill(results[i].detach(), reached[i % 3], 0);
    results.push_back(masked_fill(out.detach(), (bad == 3 ? none : rows).unsqueeze(1), 0));
    return results;
  };
  const Grads clean = run(0), got = run(poison);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(all(isfinite(got[i])).item() != 0) << what << ": result " << i;
    EXPECT_TRUE(same_bits(got[i], clean[i])) << what << ": result " << i;
  }
}

TEST_F(AttentionMask, AHiddenValueReachesNobodyInDefinitions) {
  for (const int64_t T : {1, 2, 5, 8, 16, 17, 40}) {
    const int64_t S = T + T % 3;
    for (const DType dtype : {f32, f64, bf16}) {
      if (dtype != f32 && T % 8 != 0) continue;
      const std::vector<Tensor> inputs{randn({2, T, 6}, dtype), randn({2, S, 6}, dtype),
                                       randn({2, S, 4}, dtype), randn({2, T, 4}, dtype)};
      for (const Partly& how : partly_hidden(T, S, dtype)) {
        for (const By by : {By::definition, By::second}) {
          for (const double poison : {double(NAN), double(INFINITY), -double(INFINITY)}) {
            if (!test_device().is_cpu() && (T % 8 != 0 || std::isinf(poison))) continue;  // minutes
            for (size_t bad = 0; bad < 4; ++bad) {
              for (const int64_t at : {inputs[bad].size(1) / 2, inputs[bad].size(1) - 1})
                expect_hidden_as_zero(by, how, inputs, bad, at, poison,
                                      how.name + " " + std::to_string(T) + " " + name_of(dtype) +
                                          ", " + "qkvd"[bad] + std::to_string(at) +
                                          std::to_string(poison) + " by " +
                                          std::to_string(int(by)));
            }
          }
        }
      }
    }
  }
}

// What a query does see reaches it, as the formula says: infinities of one sign stay infinite.
TEST_F(AttentionMask, AVisibleValueIsNotLostInDefinitions) {
  const FlagGuard definition(&Context::composed, true);
  const Tensor q = zeros({3, 2}), k = zeros({4, 2});
  Tensor v = ones({4, 3});
  const double infinity = INFINITY;
  v.select(0, 0).select(0, 1).fill_(infinity);
  v.select(0, 1).select(0, 1).fill_(-infinity);
  v.select(0, 1).select(0, 2).fill_(-infinity);
  v.select(0, 3).fill_(NAN);  // no query sees it
  const Tensor out = scaled_dot_product_attention(q, k, v, {.is_causal = true});
  const Tensor expected = tensor({1, infinity, 1, 1, NAN, -infinity, 1, NAN, -infinity});
  EXPECT_TRUE(same_bits(isnan(out), isnan(expected.view({3, 3}))));
  EXPECT_EQ(masked_fill(out, isnan(out), 7).tolist(),
            masked_fill(expected, isnan(expected), 7).tolist());
}

// Ways in which queries before `blind` see nothing, and the others keys before S - 1; of the last
// way T - S must be `blind`. Rows of eight bf16 go to tensor cores, or a unit of the CPU.
std::vector<AttentionOptions> blinding(int64_t T, int64_t S, int64_t blind, DType dtype) {
  const Tensor i = arange(static_cast<double>(T)).unsqueeze(1), j = arange(static_cast<double>(S));
  const Tensor allowed =
      logical_and(i >= static_cast<double>(blind), j < static_cast<double>(S - 1));
  const DType bias = dtype == f64 ? f64 : f32;
  return {{.attn_mask = allowed},
          {.attn_mask = as_bias(allowed, bias)},
          {.attn_mask = allowed, .dropout_p = 0.3},
          {.causal_lower_right = true}};
}

// f(by, blind, inputs, options): q, k, v and the gradient of what comes out, small and of several
// tiles, in each dtype; of their queries the first `blind` see nothing.
using Inputs = std::array<Tensor, 4>;
template <class F>
void for_blind_queries(F&& f) {
  for (const auto& [T, S, d] : {std::array<int64_t, 3>{9, 6, 8}, {133, 70, 16}}) {
    for (const DType dtype : {f32, f64, bf16}) {
      const Shape queries{2, 2, T, d}, keys{2, 2, S, d};
      const Inputs inputs{randn(queries, dtype), randn(keys, dtype), randn(keys, dtype),
                          randn(queries, dtype)};
      for (const AttentionOptions& options : blinding(T, S, T - S, dtype)) {
        for (const By by : {By::kernels, By::definition, By::second})
          if (test_device().is_cpu() || by == By::kernels) f(by, T - S, inputs, options);
      }
    }
  }
}

TEST_F(AttentionMask, AQueryThatSeesNothingHasNoGradientWhateverOthersSee) {
  for_blind_queries([](By by, int64_t blind, const Inputs& x, const AttentionOptions& options) {
    const auto& [q, k, v, upstream] = x;
    for (const double poison : {double(NAN), double(INFINITY)}) {
      Tensor bad_k = k.clone(), bad_v = v.clone();
      bad_k.narrow(2, 0, 1).fill_(poison);
      bad_v.narrow(2, 1, 1).fill_(poison);
      const Result run = attend_by(by, q, bad_k, bad_v, options, upstream);
      const auto expect_zeros = [&](const Tensor& y) {
        const auto values = y.narrow(2, 0, blind).tolist();
        EXPECT_EQ(values, Values(values.size(), 0))
            << x[0].shape() << x[0].dtype() << " by " << int(by);
      };
      expect_zeros(run.out);
      expect_zeros(run.grads[0]);
      if (by == By::second) expect_zeros(run.grads[run.grads.size() / 2]);  // of q
    }
  });
}

TEST_F(AttentionMask, AQueryThatSeesNothingNeverMatters) {
  for_blind_queries([](By by, int64_t blind, const Inputs& x, const AttentionOptions& options) {
    const auto& [q, k, v, upstream] = x;
    Tensor bad_q = q.clone(), bad_upstream = upstream.clone();
    bad_q.narrow(2, 0, blind).fill_(NAN);
    bad_upstream.narrow(2, 0, blind).fill_(NAN);
    const RandomPosition at = context().random;
    const Result clean = attend_by(by, q, k, v, options, upstream);
    context().random = at;
    expect_bits(attend_by(by, bad_q, k, v, options, bad_upstream), clean,
                "by " + std::to_string(int(by)));
  });
}

TEST_F(AttentionMask, KeysThatNoQuerySeesNeverMatterInDefinitions) {
  for (const Variant& variant : variants()) {
    const auto& [name, T, S, group, hidden, options] = variant;
    if (T > 9) continue;
    const Tensor q = randn({2, 4, T, 5}), k = randn({2, 4 / group, S, 5}),
                 v = randn({2, 4 / group, S, 3});
    const AttentionOptions how = options(T, S, hidden, f32);
    for (const double poison : {double(NAN), double(INFINITY)}) {
      Tensor bad_k = k.clone(), bad_v = v.clone();
      for (Tensor* x : {&bad_k, &bad_v})
        x->narrow(0, 0, 1).narrow(2, hidden, S - hidden).fill_(poison);
      for (const By by : {By::definition, By::second}) {
        const RandomPosition at = context().random;
        const Result clean = attend_by(by, q, k, v, how);
        context().random = at;
        expect_bits(attend_by(by, q, bad_k, bad_v, how), clean, name);
        for (const Tensor& g : clean.grads) EXPECT_TRUE(all(isfinite(g)).item() != 0) << name;
      }
      const auto weights = [&](const Tensor& keys) {
        const ContextGuard same_mask;
        std::vector<Tensor> x{q.clone().requires_grad_(), keys.clone().requires_grad_()};
        const Tensor out = attention_weights(x[0], x[1], how);
        return Result{out.detach(), grad({sum(sin(out * 3))}, x)};
      };
      expect_bits(weights(bad_k), weights(k), name + ", weights");
    }
  }
}

// Of a key that other queries see. Its score is NaN or +inf, and -inf added to that would be NaN.
TEST_F(AttentionMask, ScoresUnderAMaskNeverMatterWhateverTheyAre) {
  const int64_t T = 20, last = T - 1;
  const Tensor q = abs(randn({2, T, 4})) + 0.1, v = randn({2, T, 3}), i = arange(double(T));
  const Tensor allowed = logical_or(i.unsqueeze(0) < double(last), i.unsqueeze(1) == double(last));
  for (const Tensor& mask : {allowed, as_bias(allowed, f32)}) {
    const AttentionOptions how{.attn_mask = mask};
    for (const bool definition : {false, true}) {
      const FlagGuard mode(&Context::composed, definition);
      const auto run = [&](double key) {
        Tensor k = sin(q);
        k.narrow(1, last, 1).fill_(key);
        return std::array{scaled_dot_product_attention(q, k, v, how), attention_weights(q, k, how)};
      };
      const auto clean = run(0);
      for (const double key : {double(NAN), double(INFINITY)}) {
        const auto got = run(key);
        for (size_t y = 0; y < 2; ++y) {
          EXPECT_EQ(got[y].narrow(1, 0, last).tolist(), clean[y].narrow(1, 0, last).tolist())
              << key << (definition ? " by definition" : " by kernels");
          EXPECT_TRUE(any(isnan(got[y].narrow(1, last, 1))).item<bool>()) << "who sees it";
        }
      }
    }
  }
}

TEST_F(AttentionMask, ABiasForAllKeysHasNoGradientButRounding) {
  const Tensor q = randn({2, 3, 70, 4}, f64), k = randn({2, 3, 200, 4}, f64);
  for (const Shape& shape : {Shape{2, 3, 70, 1}, Shape{70, 1}, Shape{}}) {
    const Result run = attend(q, k, k, {.attn_mask = randn(shape, f64)});
    EXPECT_EQ(run.grads[3].shape(), shape);
    EXPECT_LT(amax(abs(run.grads[3])).item(), 1e-13);
  }
}

TEST_F(AttentionMask, TheSameBitsEveryTimeAndMemoryNotOfTheBroadcastMask) {
  const Tensor q = randn({2, 3, 130, 8}), bias = randn({130, 130});
  const Result first = attend(q, q, q, {.attn_mask = bias, .dropout_p = 0.1});
  for (int i = 0; i < 3; ++i)
    expect_bits(attend(q, q, q, {.attn_mask = bias, .dropout_p = 0.1}), first, "again");
  const int64_t t = by_device(512, 128);
  const Tensor x = randn({1, 64, t, 4}), allowed = randn({t, t}) > 0.0;
  empty_cache(test_device());
  reset_peak_memory(test_device());
  const int64_t before = memory_stats(test_device()).bytes_in_use;
  scaled_dot_product_attention(x, x, x, {.attn_mask = allowed});
  // The mask expanded would take 64 t t bytes.
  EXPECT_LT(memory_stats(test_device()).peak_bytes_in_use - before, 64 * t * t);
}

TEST_F(AttentionMask, MemoryIsLinearInTForEveryVariant) {
  const auto peak = [](int64_t t, const AttentionOptions& options) {
    std::vector<Tensor> x;
    for (int i = 0; i < 3; ++i) x.push_back(randn({1, 2, t, 4}).requires_grad_());
    if (options.attn_mask.defined()) x.push_back(options.attn_mask);
    empty_cache(test_device());
    reset_peak_memory(test_device());
    const int64_t before = memory_stats(test_device()).bytes_in_use;
    grad({sum(scaled_dot_product_attention(x[0], x[1], x[2], options))}, x);
    return memory_stats(test_device()).peak_bytes_in_use - before;
  };
  const auto bias = [](int64_t t) { return randn({2, 1, t}).requires_grad_(); };
  const int64_t t = by_device(1024, 128);
  for (const double p : {0.0, 0.1}) {
    EXPECT_LT(peak(4 * t, {.dropout_p = p}), 8 * peak(t, {.dropout_p = p}));
    EXPECT_LT(peak(4 * t, {.attn_mask = bias(4 * t), .dropout_p = p, .is_causal = true}),
              8 * peak(t, {.attn_mask = bias(t), .dropout_p = p, .is_causal = true}));
  }
}

TEST_F(AttentionMask, DropsWhatDropoutDrops) {
  context().random = {.seed = 7, .step = 3, .micro_batch = 1};
  const Tensor q = randn({3, 2, 70, 4}, f64), k = randn({3, 2, 203, 4}, f64),
               v = randn({3, 2, 203, 5}, f64);
  const AttentionOptions how{.dropout_p = 0.4, .causal_lower_right = true};
  const RandomPosition at = context().random;
  const Tensor out = scaled_dot_product_attention(q, k, v, how);
  EXPECT_EQ(context().random.call, at.call + 1);
  context().random = at;
  const Tensor weights = attention_weights(q, k, how);
  EXPECT_EQ(context().random.call, at.call + 1);
  EXPECT_LT(amax(abs(matmul(weights, v) - out)).item(), 1e-14);
  context().random = at;
  const Tensor dropped = dropout(attention_weights(q, k, {.causal_lower_right = true}), 0.4);
  EXPECT_TRUE(equal(dropped, weights));

  for (const uint64_t first : {1u, 2u}) {  // a part of the batch draws its own rows
    context().random = at;
    context().random.first_row = first;
    const auto part = [&](const Tensor& x) { return x.narrow(0, static_cast<int64_t>(first), 1); };
    EXPECT_TRUE(equal(scaled_dot_product_attention(part(q), part(k), part(v), how), part(out)));
  }
  const int threads = omp_get_max_threads();
  for (const int n : {1, 3}) {
    omp_set_num_threads(n);
    context().random = at;
    EXPECT_TRUE(equal(scaled_dot_product_attention(q, k, v, how), out)) << n << " threads";
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(sum(abs(scaled_dot_product_attention(q, k, v, {.dropout_p = 1}))).item(), 0);
}

}  // namespace
}  // namespace ink
