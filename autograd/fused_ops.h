// Fused ops, losses and attention. A fused op has kernels of its own for forward and backward, and
// a definition in basic ops in the same file. Each comment names the file in ops/. (Two are not
// fused: mse_loss is a basic op, and sample has no gradient.)
#pragma once

#include <optional>
#include <utility>

#include "autograd/tensor.h"

namespace ink {

/// What ops with two results return.
using TensorPair = std::pair<Tensor, Tensor>;

/// x W^T + b. x (..., in), weight (out, in), bias (out) or undefined. -> (..., out), bf16 under
/// Autocast. (linear.cpp)
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// linear(gelu(x, Gelu::tanh), weight, bias) (mlp.cpp)
Tensor gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// gelu_linear(linear(x, fc_weight, fc_bias), proj_weight, proj_bias): x (..., in), weights
/// (hidden, in) and (out, hidden), biases (hidden) and (out) or undefined -> (..., out). (mlp.cpp)
Tensor mlp(const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias,
           const Tensor& proj_weight, const Tensor& proj_bias);
/// exp(x - max x) / sum exp(x - max x) (softmax.cpp)
Tensor softmax(const Tensor& x, NumberOf<int64_t> dim = -1);
/// x - logsumexp x (log_softmax.cpp)
Tensor log_softmax(const Tensor& x, NumberOf<int64_t> dim = -1);
/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimension, with the biased variance.
/// weight and bias (C) may be undefined; they may be f32 for a bf16 x. Under Autocast an f32 x
/// gives bf16. Ba, Kiros, Hinton 2016, eq. 4. (layer_norm.cpp)
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  NumberOf<double> eps = 1e-5);
/// {s, layer_norm(s, ...)} with s = x + dropout(branch, dropout_p), of one shape, on a GPU in one
/// pass. A transformer's block computes this between its parts. (layer_norm.cpp)
TensorPair add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight = {},
                          const Tensor& bias = {}, NumberOf<double> eps = 1e-5,
                          double dropout_p = 0);
/// x / sqrt(mean x^2 + eps) * weight over the last dimension, with the dtypes of layer_norm. Zhang
/// and Sennrich 2019. PyTorch's eps, if none is given, is the dtype's epsilon. (layer_norm.cpp)
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, NumberOf<double> eps = 1e-6);
/// {s, rms_norm(s, weight, eps)}, as add_layer_norm. (layer_norm.cpp)
TensorPair add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight = {},
                        NumberOf<double> eps = 1e-6, double dropout_p = 0);
/// x (..., T, d) with pairs of each row turned by angles: (a, b) -> (a cos - b sin, b cos + a sin).
/// The pairs are x[k], x[k + pairs] (Llama, GPT-NeoX), or x[2k], x[2k + 1] if interleaved (GPT-J).
/// cos and sin (T, pairs), or what broadcasts to (..., T, pairs), get no gradient. What follows the
/// pairs of a row stays as it is. Su et al. 2021, eq. 34. (rotary.cpp)
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved = false);
/// silu(gate) * up, of one shape and dtype: Llama's MLP. Shazeer 2020, eq. 5. (swiglu.cpp)
Tensor swiglu(const Tensor& gate, const Tensor& up);
/// Rows of weight (V, C) by ids (...): (..., C). (embedding.cpp)
Tensor embedding(const Tensor& ids, const Tensor& weight);
/// Zeroes each element with probability p and scales the others by 1 / (1 - p). The mask is a
/// function of the element's index and the context's random position, which then moves on. Returns
/// x itself if p = 0 or not training. Srivastava et al. 2014. (dropout.cpp)
Tensor dropout(const Tensor& x, NumberOf<double> p, bool training = true);
/// Draws an element from each row of probabilities (..., V), which sums to 1: i64 (..., 1). The
/// draw is a function of the row and the context's random position, which then moves on.
/// (sample.cpp)
Tensor sample(const Tensor& probabilities);

// ---- losses

enum class Reduction { mean, sum, none };
/// -log softmax(logits)[target] for logits (..., V) and targets (...) i64. Targets equal to
/// ignore_index are left out. Reduction::mean is over the other targets, and NaN if there are none.
/// z_loss times (log sum exp logits)^2 is added for each, which keeps logits small (Chowdhery et
/// al. 2022). -> (), or the shape of targets with Reduction::none; f32 for bf16 logits.
/// (cross_entropy.cpp)
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     NumberOf<int64_t> ignore_index = -100, Reduction reduction = Reduction::mean,
                     double z_loss = 0);
/// cross_entropy(linear(x, weight), targets, ...), computed in chunks of rows, so that all logits
/// never exist at once. x (..., C), weight (V, C), both rounded to bf16 under Autocast -> f32
/// (linear_cross_entropy.cpp)
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            NumberOf<int64_t> ignore_index = -100,
                            Reduction reduction = Reduction::mean, double z_loss = 0);
/// The mean of (input - target)^2: a basic op. Shapes broadcast, without PyTorch's warning: of
/// (N, 1) and (N) it is the mean over N x N. (mse_loss.cpp)
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// ---- attention/

/// The options of scaled_dot_product_attention, for T queries and S keys.
struct AttentionOptions {
  /// A bool mask is true where a query may attend to a key. A floating mask is added to the scores:
  /// -inf hides a key; it gets a gradient if it requires one. The mask broadcasts to (..., T, S)
  /// and is never expanded in memory: (S,) or (B, 1, 1, S) masks padding, (T, S) serves all heads.
  Tensor attn_mask = {};
  double dropout_p = 0;              ///< for each weight, always in force: pass 0 if not training
  bool is_causal = false;            ///< query i attends to keys 0 .. i
  bool causal_lower_right = false;   ///< ... to keys 0 .. i + S - T: the queries are the last of S
  int64_t window = 0;                ///< ... and of these only to the last `window`; 0: to all
  std::optional<double> scale = {};  ///< multiplies the scores; 1 / sqrt(d) if not given
};
/// softmax(q k^T scale + mask) v: (..., T, dv) for q (..., T, d), k (..., S, d), v (..., S, dv).
/// Strided inputs are read in place. Dimensions before the last two broadcast. k and v may also
/// have fewer heads (dimension -3) than q, by a whole factor n: head h of q then uses head h / n.
/// All options may be used together. A query that may attend to nothing gives zeros, and no
/// gradient. A query and a key that it may not attend to have no influence on each other, forward
/// and backward, even if one of them is NaN or infinite. Dropout is that of
/// dropout(weights, dropout_p) at the same random position. Memory is linear in T and S.
/// Dao et al. 2022, alg. 1 and 4. (attention.cpp)
///   scaled_dot_product_attention(q, k, v, {.is_causal = true})
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
/// The weights (..., T, S) with which scaled_dot_product_attention mixes values, to look at them.
/// At the same random position dropout zeroes the same ones.
Tensor attention_weights(const Tensor& q, const Tensor& k, const AttentionOptions& options = {});

}  // namespace ink
