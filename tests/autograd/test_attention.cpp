#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/observer.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "tests/support/error_of.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

Tensor normal(const Shape& shape, DType dtype = f64) { return randn(shape, f64).to(dtype); }

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const auto x = a.tolist(), y = b.tolist();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

// out, dq, dk, dv of attention, or of its definition.
std::vector<Tensor> run(const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionOptions& options, bool definition) {
  const FlagGuard mode(&Context::composed, definition);
  std::vector<Tensor> leaves{q.clone(), k.clone(), v.clone()};
  for (Tensor& x : leaves) x.requires_grad_();
  const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], options);
  const Grads grads = grad(
      {sum(out * sin(arange(static_cast<double>(out.numel()), out.dtype()).view(out.shape())))},
      leaves);
  return {out.detach(), grads[0], grads[1], grads[2]};
}
std::vector<Tensor> run(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                        bool definition) {
  return run(q, k, v, AttentionOptions{.is_causal = causal}, definition);
}

TEST(Attention, EqualsItsDefinitionAtAllSizesAroundATile) {
  manual_seed(1);
  for (const int64_t t : {1, 6, 7, 33, 64, 65, 128, 129, 300}) {
    if (t > by_device(300, 70)) continue;
    for (const int64_t d : {1, 16, 37, 130}) {
      const Tensor q = normal({2, t, d}), k = normal({2, t, d}), v = normal({2, t, d / 2 + 1});
      for (const bool causal : {false, true}) {
        const auto fused = run(q, k, v, causal, false), definition = run(q, k, v, causal, true);
        for (size_t i = 0; i < 4; ++i)
          ASSERT_LT(largest_difference(fused[i], definition[i]), 1e-11)
              << "T " << t << " d " << d << " causal " << causal << " result " << i;
      }
    }
  }
}

TEST(Attention, QueriesAndKeysMayDifferInNumber) {
  manual_seed(2);
  for (const int64_t s : {1, 3, 150, 300}) {
    const Tensor q = normal({3, 2, 70, 8}), k = normal({3, 2, s, 8}), v = normal({3, 2, s, 4});
    const auto fused = run(q, k, v, false, false), definition = run(q, k, v, false, true);
    for (size_t i = 0; i < 4; ++i)
      ASSERT_LT(largest_difference(fused[i], definition[i]), 1e-11) << "S " << s << " result " << i;
  }
  const Tensor none = scaled_dot_product_attention(ones({2, 3}), ones({0, 3}), ones({0, 4}));
  EXPECT_EQ(none.tolist(), std::vector<double>(8));
}

// A tile of queries begins within a tile of keys: its first rows see nothing of the tile's second
// half.
TEST(Attention, TilesOfQueriesBeginWithinTilesOfKeys) {
  manual_seed(8);
  const auto x = [](int64_t length) { return normal({2, 2, length, 16}, bf16); };
  const Tensor q = x(256), k = x(320), v = x(320);
  const AttentionOptions last_queries{.causal_lower_right = true};
  const auto got = run(q, k, v, last_queries, false), expected = run(q, k, v, last_queries, true);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_LT(largest_difference(got[i], expected[i]) / max(abs(expected[i])).item(), 0.02)
        << "result " << i;
}

// With every number of heads to a head of keys, the units of the processor and the tiles agree with
// the definition, and heads are grouped in order: head h of q uses head h / group. The bits of one
// thread are those of repeated keys; several threads divide fewer heads differently.
TEST(Attention, GroupedHeadsAreThoseOfRepeatedKeys) {
  manual_seed(9);
  for (const DType dtype : {f64, bf16}) {
    const Tensor q = normal({2, 6, 70, 16}, dtype);
    for (const int64_t heads : {1, 2, 3, 6}) {
      const Tensor k = normal({2, heads, 70, 16}, dtype), v = normal({2, heads, 70, 8}, dtype);
      const int64_t group = 6 / heads;
      const auto repeated = [&](const Tensor& x) {
        return expand(x.unsqueeze(2), {2, heads, group, 70, x.size(3)}).reshape({2, 6, 70, -1});
      };
      const auto got = run(q, k, v, true, false), definition = run(q, k, v, true, true);
      const int threads = omp_get_max_threads();
      omp_set_num_threads(1);
      const auto alone = run(q, k, v, true, false);
      const auto apart = run(q, repeated(k), repeated(v), true, false);
      omp_set_num_threads(threads);
      EXPECT_EQ(alone[0].tolist(), apart[0].tolist()) << heads;
      EXPECT_EQ(alone[1].tolist(), apart[1].tolist()) << heads;
      for (size_t i = 0; i < 4; ++i)
        EXPECT_LT(largest_difference(got[i], definition[i]) / max(abs(definition[i])).item(),
                  dtype == f64 ? 1e-12 : 0.02)
            << heads << " heads of keys, result " << i;
    }
  }
}

// A window equals the mask that hides what lies before it: a query sees itself and window - 1 keys.
TEST(Attention, AWindowIsAMask) {
  manual_seed(10);
  struct Sizes {
    int64_t queries, keys;
  };
  for (const auto& [T, S] : {Sizes{1, 9}, {3, 9}, {9, 9}, {9, 5}, {65, 200}, {300, 300}}) {
    if (S > by_device(300, 70)) continue;
    for (const DType dtype : {f64, bf16}) {
      const Tensor q = normal({2, 4, T, 16}, dtype), k = normal({2, 2, S, 16}, dtype),
                   v = normal({2, 2, S, 8}, dtype);
      for (const int64_t window : {1, 2, 5, 64, 199}) {
        if (S == 300 && window < 64) continue;  // seconds
        if (S < 64 && window == 199) continue;  // as 64: more than all
        for (const bool last : {false, true}) {
          if (T == S && !last) continue;  // the same
          AttentionOptions options{
              .is_causal = !last, .causal_lower_right = last, .window = window};
          const auto got = run(q, k, v, options, false), definition = run(q, k, v, options, true);
          const int64_t shift = last ? S - T : 0;  // query i stands at key i + shift
          options.window = 0;
          options.attn_mask = triu(ones({T, S}), shift - window + 1) > 0;
          const auto masked =  // a device has no definitions of its own
              test_device().is_cpu() ? run(q, k, v, options, true) : definition;
          for (size_t i = 0; i < 4; ++i) {
            SCOPED_TRACE(testing::Message() << T << " queries, " << S << " keys, window " << window
                                            << ", " << name_of(dtype) << ", result " << i);
            EXPECT_LT(largest_difference(definition[i], masked[i]), 1e-12);
            EXPECT_LT(largest_difference(got[i], definition[i]),
                      dtype == f64 ? 1e-11 : 0.02 * std::max(1.0, max(abs(definition[i])).item()));
          }
        }
      }
    }
  }
}

// A window that hides nothing changes no bit.
TEST(Attention, AWindowOfAllKeysIsNone) {
  manual_seed(11);
  for (const DType dtype : {f32, bf16}) {
    const Tensor q = normal({2, 2, 70, 16}, dtype), k = normal({2, 2, 90, 16}, dtype);
    const auto all = run(q, k, k, {.causal_lower_right = true}, false);
    for (const int64_t window : {90, 91, 1000}) {
      const auto got = run(q, k, k, {.causal_lower_right = true, .window = window}, false);
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[i].tolist(), all[i].tolist()) << window;
    }
  }
}

// PyTorch broadcasts all dimensions before the last two. The results are those of what it would
// expand, and gradients have the inputs' shapes.
TEST(Attention, BroadcastsAsPyTorchDoes) {
  manual_seed(7);
  struct Sizes {
    Shape q, k, v, common;  // the last: all but the last two of the result
  };
  const Sizes cases[] = {{{1, 3, 4}, {5, 3, 4}, {5, 3, 4}, {5}},
                         {{3, 3}, {2, 3, 3}, {2, 3, 3}, {2}},
                         {{1, 3, 3}, {2, 2, 3, 3}, {2, 2, 3, 3}, {2, 2}},
                         {{5, 1, 3, 4}, {5, 2, 3, 4}, {5, 2, 3, 4}, {5, 2}},
                         {{2, 3, 4}, {2, 3, 4}, {1, 3, 4}, {2}},
                         {{2, 3, 4}, {5, 2, 3, 4}, {5, 2, 3, 4}, {5, 2}},
                         {{3, 4, 2, 5}, {3, 1, 2, 5}, {3, 4, 2, 5}, {3, 4}},
                         {{3, 4, 2, 5}, {4, 6, 5}, {3, 1, 6, 2}, {3, 4}},
                         {{1, 4, 2, 5}, {3, 1, 6, 5}, {6, 5}, {3, 4}},
                         {{2, 3}, {3, 3}, {2, 1, 3, 2}, {2, 1}},
                         {{2, 1, 3, 4}, {2, 3, 4}, {1, 3, 4}, {2, 2}},
                         {{5, 2, 3, 4}, {3, 4}, {3, 4}, {5, 2}},
                         {{2, 1, 2, 3, 4}, {3, 1, 3, 4}, {2, 3, 4}, {2, 3, 2}},
                         {{1, 3, 4}, {0, 3, 4}, {0, 3, 4}, {0}}};
  const auto whole = [](const Tensor& x, Shape common) {
    common.push_back(x.size(-2));
    common.push_back(x.size(-1));
    return expand(x, common).clone();
  };
  for (const DType dtype : {f64, bf16}) {
    for (const auto& [q_shape, k_shape, v_shape, common] : cases) {
      const std::vector<Tensor> x{normal(q_shape, dtype), normal(k_shape, dtype),
                                  normal(v_shape, dtype)};
      std::vector<Tensor> expanded;
      for (const Tensor& each : x) expanded.push_back(whole(each, common));
      for (const bool definition : {false, true}) {
        if (definition && !test_device().is_cpu()) continue;  // a device has none of its own
        const auto got = run(x[0], x[1], x[2], true, definition),
                   expected = run(expanded[0], expanded[1], expanded[2], true, definition);
        const double rounding = dtype == f64 ? 1e-13 : 0.1;
        EXPECT_LE(largest_difference(got[0], expected[0]), dtype == f64 ? 1e-13 : 0.02) << q_shape;
        for (size_t i = 0; i < 3; ++i) {
          ASSERT_EQ(got[i + 1].shape(), x[i].shape());
          EXPECT_LE(largest_difference(whole(got[i + 1], common),
                                       whole(sum_to(expected[i + 1], x[i].shape()), common)),
                    rounding)
              << q_shape << " gradient " << i << " definition " << definition;
        }
      }
      const Tensor weights = attention_weights(x[0], x[1]),
                   expected = attention_weights(expanded[0], expanded[1]);
      EXPECT_LE(largest_difference(whole(weights, common), expected), 1e-13) << q_shape;
    }
  }
}

TEST(Attention, NoKeysAndValuesWithoutColumnsHaveNoGradient) {
  for (const auto& [keys, columns] : {std::pair{0, 3}, {5, 0}}) {
    const std::vector<Tensor> in{randn({2, 4}).requires_grad_(), randn({keys, 4}).requires_grad_(),
                                 randn({keys, columns}).requires_grad_()};
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2]);
    EXPECT_EQ(y.shape(), Shape({2, columns}));
    for (const Tensor& d : grad({sum(y)}, in)) EXPECT_TRUE(all(d == 0).item<bool>());
  }
}

TEST(Attention, LargeScoresAndLongRowsStayFinite) {
  manual_seed(3);
  const Tensor q = normal({1, 300, 8}) * 100, k = normal({1, 300, 8}) * 100,
               v = normal({1, 300, 8});
  const auto fused = run(q, k, v, true, false), definition = run(q, k, v, true, true);
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(largest_difference(fused[i], definition[i]), 1e-9);
}

TEST(Attention, WhatIsMaskedNeverMatters) {
  manual_seed(4);
  Tensor q = normal({1, 200, 16}), k = normal({1, 200, 16}), v = normal({1, 200, 16});
  const Tensor before =
      scaled_dot_product_attention(q, k, v, {.is_causal = true}).narrow(1, 0, 150);
  k.narrow(1, 192, 8).fill_(NAN);
  v.narrow(1, 192, 8).fill_(INFINITY);
  EXPECT_EQ(scaled_dot_product_attention(q, k, v, {.is_causal = true}).narrow(1, 0, 150).tolist(),
            before.tolist());
  const Tensor after = scaled_dot_product_attention(q, k, v, {.is_causal = true}).narrow(1, 192, 8);
  for (const double x : after.tolist()) EXPECT_TRUE(std::isnan(x));
}

// Keeps what the vjp of attention returned.
struct AttentionGrads : Observer {
  Grads grads;
  void after_vjp(const Node& node, const Grads& input_grads) override {
    if (std::string(node.name) == "causal_attention") grads = input_grads;
  }
};

// Heads inside a packed (B, T, 3 C), as a GPT has them: gradients come in the same packing, and the
// heads' outputs are joined by a view.
TEST(Attention, PackedHeadsStayPacked) {
  manual_seed(5);
  const int64_t B = 2, T = 70, H = 3, d = 4, C = H * d;
  Tensor packed = normal({B, T, 3 * C}).requires_grad_();
  const auto heads = [&](const Tensor& x) { return x.view({B, T, H, d}).transpose(1, 2); };
  std::vector<Tensor> qkv = split(packed, C, 2);
  for (Tensor& x : qkv) x = heads(x);
  const Tensor out = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {.is_causal = true});
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  const Tensor upstream = normal(out.shape());
  AttentionGrads seen;
  {
    const Observe observe(seen);
    out.backward(upstream);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(seen.grads[i].storage(), seen.grads[0].storage());
    EXPECT_EQ(seen.grads[i].strides(), qkv[i].strides());
    EXPECT_EQ(seen.grads[i].layout().offset, static_cast<int64_t>(i) * C);
  }
  std::vector<Tensor> apart;
  for (const Tensor& x : qkv) apart.push_back(x.detach().contiguous().requires_grad_());
  scaled_dot_product_attention(apart[0], apart[1], apart[2], {.is_causal = true})
      .backward(upstream);
  const std::vector<Tensor> joined = split(packed.grad(), C, 2);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(heads(joined[i]).tolist(), apart[i].grad().tolist());
}

TEST(Attention, MemoryIsLinearInT) {
  manual_seed(6);
  const auto peak = [](int64_t t) {
    std::vector<Tensor> leaves;
    for (int i = 0; i < 3; ++i) leaves.push_back(normal({1, t, 16}, f32).requires_grad_());
    empty_cache(test_device());
    reset_peak_memory(test_device());
    const int64_t before = memory_stats(test_device()).bytes_in_use;
    sum(scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {.is_causal = true}))
        .backward();
    return memory_stats(test_device()).peak_bytes_in_use - before;
  };
  const int64_t t = by_device(2048, 256);
  EXPECT_LT(peak(4 * t), 8 * peak(t));  // T x T anywhere would make it 16
}

TEST(Attention, ScaleIsGivenOrOneOverTheRootOfD) {
  const Tensor q = tensor({{2.0}}), k = tensor({{0.0}, {1.0}}), v = tensor({{0.0}, {1.0}});
  const auto sigmoid_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(scaled_dot_product_attention(q, k, v).item(), sigmoid_of(2), 1e-6);
  EXPECT_NEAR(scaled_dot_product_attention(q, k, v, {.scale = 0.25}).item(), sigmoid_of(0.5), 1e-6);
  const Tensor wide_q = tensor({{1.0, 1.0, 1.0, 1.0}}),
               wide_k = tensor({{0.0, 0.0, 0.0, 0.0}, {1.0, 1.0, 1.0, 1.0}});
  EXPECT_NEAR(scaled_dot_product_attention(wide_q, wide_k, v).item(), sigmoid_of(2), 1e-6);
}

// What PyTorch 2.15 prints, on a CPU. Dropout is not what its fused kernels do.
TEST(Attention, IsCalledAsInPyTorch) {
  const ImitateTorch guard(BernoulliRule::plain);
  const std::string flash = "ScaledDotProductFlashAttentionForCpuBackward0",
                    view = "UnsafeViewBackward0";
  const auto name = [](const Shape& q, const Shape& k, const Shape& v, double p,
                       DType dtype = f32) {
    const auto leaf = [&](const Shape& shape) { return ones(shape, dtype).requires_grad_(); };
    const std::string text =
        scaled_dot_product_attention(leaf(q), leaf(k), leaf(v), {.dropout_p = p}).to_string();
    const size_t at = text.find("grad_fn=<") + 9;
    return text.substr(at, text.rfind('>') - at);
  };
  struct Row {
    Shape q, k, v;
    std::string plain, dropped;
  };
  const Row rows[] = {{{4, 3}, {4, 3}, {4, 3}, "MmBackward0", "MmBackward0"},
                      {{2, 4, 3}, {2, 4, 3}, {2, 4, 3}, "SqueezeBackward1", "SqueezeBackward1"},
                      {{2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}, flash, view},
                      {{2, 4, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}, flash, view},
                      {{5, 2, 3, 4}, {5, 1, 3, 4}, {5, 1, 3, 4}, flash, view},
                      {{1, 2, 2, 4, 3}, {1, 2, 2, 4, 3}, {1, 2, 2, 4, 3}, view, view},
                      {{2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 5}, view, view},
                      {{2, 4, 3, 4}, {1, 4, 3, 4}, {1, 4, 3, 4}, view, view},
                      {{5, 1, 3, 4}, {5, 2, 3, 4}, {5, 2, 3, 4}, view, view},
                      {{5, 2, 3, 4}, {5, 2, 3, 4}, {5, 1, 3, 4}, view, view},
                      {{1, 3, 4}, {5, 3, 4}, {5, 3, 4}, "SqueezeBackward1", "SqueezeBackward1"},
                      {{3, 3}, {2, 3, 3}, {2, 3, 3}, view, view},
                      {{2, 3}, {2, 3, 3}, {3, 3}, view, view},
                      {{3, 4}, {3, 4}, {2, 3, 4}, "CloneBackward0", "CloneBackward0"},
                      {{1, 4}, {3, 4}, {2, 3, 4}, "TransposeBackward0", "TransposeBackward0"}};
  for (const auto& [q, k, v, plain, dropped] : rows) {
    EXPECT_EQ(name(q, k, v, 0), plain) << q << k << v;
    EXPECT_EQ(name(q, k, v, 0.1), dropped) << q << k << v;
  }
  EXPECT_EQ(name({2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}, 0, bf16), flash);
  EXPECT_EQ(name({2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}, 0.1, bf16), "ToCopyBackward0");
}

TEST(Attention, Errors) {
  const Tensor x = ones({2, 4, 3});
  const auto error = [](const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionOptions& options = {}) {
    return error_of([&] { scaled_dot_product_attention(q, k, v, options); });
  };
  const std::string op = "scaled_dot_product_attention: ";
  EXPECT_EQ(error(x, ones({2, 4, 5}), x),
            op + "expected q (..., T, d), k (..., S, d) and v (..., S, dv), got (2, 4, 3), "
                 "(2, 4, 5) and (2, 4, 3)");
  EXPECT_EQ(error(ones({3}), ones({3}), ones({3})),
            op + "expected q (..., T, d), k (..., S, d) and v (..., S, dv), got (3,), (3,) "
                 "and (3,)");
  EXPECT_EQ(error(ones({3, 4, 3}), x, x),
            op + "expected the heads of q, dimension -3, to be a multiple of those of k and v, "
                 "got 3 and 2");
  EXPECT_EQ(error(ones({1, 4, 3}), x, ones({3, 4, 3})),
            op + "expected q (..., T, d), k (..., S, d) and v (..., S, dv), got (1, 4, 3), "
                 "(2, 4, 3) and (3, 4, 3)");
  EXPECT_EQ(error_of([&] {
              attention_weights(ones({4, 4, 3}), ones({3, 4, 3}));
            }),
            "attention_weights: expected the heads of q, dimension -3, to be a multiple of those "
            "of k and v, got 4 and 3");
  EXPECT_EQ(error(x, x, ones({2, 4, 3}, f64)),
            op + "expected one floating dtype, got float32, float32 and float64");
  EXPECT_EQ(error(x, x, x, {.dropout_p = -0.5}), op + "expected dropout_p in [0, 1], got -0.5");
  EXPECT_EQ(error(x, x, x, {.is_causal = true, .window = -1}),
            op + "expected a window of 0 or more, got -1");
  EXPECT_EQ(error(x, x, x, {.window = 2}),
            op + "expected is_causal or causal_lower_right with a window");
  EXPECT_EQ(error(x, x, x, {.attn_mask = ones({4, 4}, i64)}),
            op + "expected a bool or floating attn_mask, got int64");
  EXPECT_EQ(error(x, x, x, {.attn_mask = ones({3, 4, 4})}),
            op + "expected an attn_mask that broadcasts to (2, 4, 4), got (3, 4, 4)");
  EXPECT_EQ(error(x, x, x, {.attn_mask = ones({1, 2, 4, 4})}),
            op + "expected an attn_mask that broadcasts to (2, 4, 4), got (1, 2, 4, 4)");
  EXPECT_EQ(error_of([&] {
              attention_weights(x, ones({2, 4, 5}));
            }).substr(0, 19),
            "attention_weights: ");
}

}  // namespace
}  // namespace ink
