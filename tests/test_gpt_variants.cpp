// GPTs that replace a step: rotary positions and ALiBi, from one layer to a resumed run.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/inspect/gradcheck.h"
#include "autograd/random/generator.h"
#include "nn/gpt.h"
#include "nn/gradcheck_module.h"
#include "tests/error_of.h"

namespace ink {
namespace {

// Turns pairs of each head's features by an angle for each position. Su et al. 2021.
struct RotaryAttention : CausalSelfAttention {
  UnsavedBuffer cosines, sines;  // (block_size, d / 2)

  explicit RotaryAttention(const GPTConfig& c) : CausalSelfAttention(c) {
    const int64_t half = c.n_embd / c.n_head / 2;
    const Tensor speed = exp(arange(half, f32) * (-std::log(10000.0) / static_cast<double>(half)));
    const Tensor angle = arange(c.block_size, f32).unsqueeze(1) * speed;
    cosines = cos(angle);
    sines = sin(angle);
  }
  void prepare_scores(Tensor& q, Tensor& k, AttentionOptions&, int64_t start) const override {
    q = turned(q, start);
    k = turned(k, start);
  }
  Tensor turned(const Tensor& x, int64_t start) const {
    const Tensor c = cosines.narrow(0, start, x.size(2)), s = sines.narrow(0, start, x.size(2));
    const std::vector<Tensor> halves = split(x, c.size(1), 3);
    return cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, 3).to(x.dtype());
  }
  INK_FIELDS(CausalSelfAttention, cosines, sines)
};

// Lowers a score by the distance of the key, at a slope for each head. Press et al. 2021. What all
// scores of a query share does not matter to softmax, so m (j - i) is written m j.
struct AlibiAttention : CausalSelfAttention {
  UnsavedBuffer slopes;  // (n_head, 1, 1)

  explicit AlibiAttention(const GPTConfig& c)
      : CausalSelfAttention(c),
        slopes(
            exp((arange(c.n_head, f32) + 1) * (-8 * std::log(2.0) / static_cast<double>(c.n_head)))
                .view({c.n_head, 1, 1})) {}
  void prepare_scores(Tensor& q, Tensor&, AttentionOptions& options, int64_t start) const override {
    options.attn_mask = slopes * arange(start + q.size(2), slopes.options());
  }
  INK_FIELDS(CausalSelfAttention, slopes)
};

GPTConfig tiny() {
  return {.block_size = 6, .vocab_size = 7, .n_layer = 2, .n_head = 2, .n_embd = 8};
}

// softmax(scores) v through c_proj, with scores (B, H, T, T) of q and k (B, H, T, d).
template <class Scores>
Tensor by_hand(const CausalSelfAttention& attn, const Tensor& x, Scores&& scores) {
  const int64_t B = x.size(0), T = x.size(1), C = x.size(2), H = attn.n_head;
  std::vector<Tensor> qkv = split(attn.c_attn(x), C, 2);
  for (Tensor& t : qkv) t = t.view({B, T, H, C / H}).transpose(1, 2);
  const Tensor later = arange(T, i64) > arange(T, i64).unsqueeze(1);
  const Tensor s = masked_fill(scores(qkv[0], qkv[1]), later, -INFINITY);
  return attn.c_proj(matmul(softmax(s), qkv[2]).transpose(1, 2).reshape({B, T, C}));
}

TEST(RotaryAttention, IsTheFormula) {
  manual_seed(1);
  RotaryAttention attn(tiny());
  attn.to(f64);
  const Tensor x = randn({2, 5, 8}, f64);
  // A score is a sum over pairs of features: q_i and k_j turned by their distance i - j.
  const Tensor expected = by_hand(attn, x, [](const Tensor& q, const Tensor& k) {
    Tensor scores = zeros({2, 2, 5, 5}, f64);
    const Tensor distance = arange(5, f64).unsqueeze(1) - arange(5, f64);
    for (int64_t f = 0; f < 2; ++f) {
      const Tensor angle = distance * std::pow(10000.0, -static_cast<double>(f) / 2);
      const auto feature = [](const Tensor& t, int64_t i) { return t.narrow(3, i, 1); };
      const Tensor q1 = feature(q, f), q2 = feature(q, f + 2);
      const Tensor k1 = feature(k, f).transpose(2, 3), k2 = feature(k, f + 2).transpose(2, 3);
      scores = scores + cos(angle) * (q1 * k1 + q2 * k2) + sin(angle) * (q1 * k2 - q2 * k1);
    }
    return scores / 2.0;
  });
  EXPECT_TRUE(allclose(attn(x), expected, 1e-6, 1e-7));
}

TEST(AlibiAttention, IsTheFormula) {
  manual_seed(1);
  AlibiAttention attn(tiny());
  attn.to(f64);
  const Tensor x = randn({2, 5, 8}, f64);
  const Tensor expected = by_hand(attn, x, [](const Tensor& q, const Tensor& k) {
    const Tensor distance = arange(5, f64).unsqueeze(1) - arange(5, f64);
    const Tensor slopes = tensor({1.0 / 16, 1.0 / 256}, f64).view({2, 1, 1});
    return matmul(q, k.transpose(2, 3)) / 2.0 - slopes * distance;
  });
  EXPECT_TRUE(allclose(attn(x), expected, 1e-6, 1e-7));
}

template <class Attention>
void expect_right_gradients_and_cache() {
  manual_seed(2);
  Attention attn(tiny());
  const GradcheckReport report = gradcheck_module(attn, randn({2, 5, 8}));
  EXPECT_TRUE(report.ok) << report;
  const NoGrad no_grad;
  const Tensor x = randn({2, 6, 8});
  KVCache cache(6);
  const Tensor first = attn(x.narrow(1, 0, 4), &cache), last = attn(x.narrow(1, 4, 2), &cache);
  EXPECT_TRUE(allclose(cat({first, last}, 1), attn(x), 1e-5, 1e-5));
}

TEST(RotaryAttention, HasRightGradientsAndWorksWithACache) {
  expect_right_gradients_and_cache<RotaryAttention>();
}
TEST(AlibiAttention, HasRightGradientsAndWorksWithACache) {
  expect_right_gradients_and_cache<AlibiAttention>();
}

struct Forgotten : CausalSelfAttention {
  Parameter scale = ones({2});
  using CausalSelfAttention::CausalSelfAttention;
};

TEST(Attention, NeedsItsOwnFields) {
  EXPECT_EQ(error_of([] { GPT(tiny(), make_attention<Forgotten>); }),
            "Forgotten: has members of its own and no INK_FIELDS; name them there, after the class "
            "that it extends: INK_FIELDS(Base, member)");
}

}  // namespace
}  // namespace ink
