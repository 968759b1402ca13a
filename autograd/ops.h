// Every public op: formula, shapes, one line each. The headings name the files in ops/.
//
// Shapes broadcast as in NumPy. Mixed dtypes are promoted as in PyTorch (i64 and bool yield to
// floating; f32 and bf16 meet in f32). `dims` count from the end when negative; an empty list means
// all of them. Errors are ink::Error, "op: ...".
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/random/generator.h"
#include "autograd/tensor.h"

namespace ink {

// ---- binary.cpp: elementwise, two tensors

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // integers give the default floating dtype
Tensor pow(const Tensor& a, const Tensor& b);  // a ^ b
/// The larger; at a tie each gets half the gradient; NaN wins.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);

// A number takes the tensor's dtype. With a fractional number, i64 and bool become the default
// floating dtype.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& x);
Tensor& operator+=(Tensor& a, const Tensor& b);  // in place, as a.add_(b)
Tensor& operator-=(Tensor& a, const Tensor& b);
Tensor& operator*=(Tensor& a, const Tensor& b);
Tensor& operator/=(Tensor& a, const Tensor& b);
Tensor& operator+=(Tensor& a, double b);
Tensor& operator-=(Tensor& a, double b);
Tensor& operator*=(Tensor& a, double b);
Tensor& operator/=(Tensor& a, double b);

// ---- unary.cpp, gelu.cpp: elementwise, one tensor

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor pow(const Tensor& x, double exponent);
Tensor abs(const Tensor& x);   // gradient 0 at 0
Tensor sign(const Tensor& x);  // -1, 0 or 1; gradient 0
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);  // 1 / (1 + exp(-x))
Tensor relu(const Tensor& x);     // max(x, 0); gradient 0 at 0
Tensor silu(const Tensor& x);     // x sigmoid(x)
Tensor erf(const Tensor& x);
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max = {});
enum class Gelu { erf, tanh };
/// x Phi(x); with Gelu::tanh its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
/// Hendrycks and Gimpel 2016.
Tensor gelu(const Tensor& x, Gelu approximate = Gelu::erf);

// ---- where.cpp

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);  // condition ? a : b
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);    // mask ? value : x

// ---- compare.cpp: bool results, no gradients

Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, const Tensor& b);
Tensor operator<(const Tensor& a, const Tensor& b);
Tensor operator<=(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator>=(const Tensor& a, const Tensor& b);
Tensor operator==(const Tensor& a, double b);
Tensor operator!=(const Tensor& a, double b);
Tensor operator<(const Tensor& a, double b);
Tensor operator<=(const Tensor& a, double b);
Tensor operator>(const Tensor& a, double b);
Tensor operator>=(const Tensor& a, double b);
Tensor logical_and(const Tensor& a, const Tensor& b);  // non-zero counts as true
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// |a - b| <= atol + rtol |b|, element by element.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);
bool equal(const Tensor& a, const Tensor& b);  // same shape and the same values

// ---- reduce.cpp: over dimensions

Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false);  // bool, i64: i64
Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, const Shape& dims = {}, bool keepdim = false);  // bool
Tensor all(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Sums x down to a shape that broadcasts to x's: the gradient of expand.
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- prod.cpp, var.cpp, logsumexp.cpp

Tensor prod(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// sum (x - mean)^2 / (n - correction): 1 gives the unbiased estimate, 0 the biased one.
Tensor var(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);
/// log sum exp x, without overflow.
Tensor logsumexp(const Tensor& x, const Shape& dims, bool keepdim = false);

// ---- max_min.cpp

/// Values and their i64 indices along a dimension.
struct ValuesIndices {
  Tensor values, indices;
};
/// Of equals the first one counts, and gets the gradient. NaN wins.
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor max(const Tensor& x);  // the largest of all
Tensor min(const Tensor& x);
/// Equals share the gradient; NaN wins.
Tensor amax(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// Without dim, of the flat tensor.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);

// ---- cumsum.cpp, sort.cpp: along one dimension

Tensor cumsum(const Tensor& x, int64_t dim);
/// Stable; NaN is the largest.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The k largest (smallest) in order.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);

// ---- views.cpp, split.cpp: the same memory

Tensor view(const Tensor& x, const Shape& shape);
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const Shape& dims);
Tensor squeeze(const Tensor& x, std::optional<int64_t> dim = {});
Tensor unsqueeze(const Tensor& x, int64_t dim);
Tensor expand(const Tensor& x, const Shape& shape);
Tensor select(const Tensor& x, int64_t dim, int64_t index);
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// start and stop are clamped, as Python's.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
Tensor slice_backward(const Tensor& x, const Shape& shape, int64_t dim, int64_t start, int64_t stop,
                      int64_t step);
/// Pieces of `size`, or of each of the sizes.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);

// ---- copy.cpp, cat.cpp, flip.cpp, tril.cpp

Tensor contiguous(const Tensor& x);
Tensor clone(const Tensor& x);
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);
Tensor repeat(const Tensor& x, const Shape& times);
Tensor flip(const Tensor& x, const Shape& dims);
/// Zeros above (below) the given diagonal of the last two dimensions.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// ---- index.cpp: by i64 ids; an id out of range is an error that names it

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids);  // ids (n,)
/// y[i][j] = x[ids[i][j]][j] for dim 0.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& ids);
/// The reverse, summed onto x.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source);
Tensor index(const Tensor& x, const Tensor& ids);        // rows: ids.shape + x.shape[1:]
Tensor one_hot(const Tensor& ids, int64_t num_classes);  // i64

// ---- matmul.cpp

/// (..., n, k) @ (..., k, m); batches broadcast; vectors as in PyTorch.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);    // (n) . (n)
Tensor outer(const Tensor& a, const Tensor& b);  // (n), (m) -> (n, m)

// ---- random.cpp: values that PyTorch's CPU generator gives
// Any floating dtype, layout and device; the values are those of a contiguous CPU tensor in
// row-major order (bf16: f32's, rounded). With grad mode on, a leaf that requires grad is refused.

Tensor& uniform_(Tensor& x, double from = 0, double to = 1, Generator& g = default_generator());
Tensor& normal_(Tensor& x, double mean = 0, double std = 1, Generator& g = default_generator());
Tensor& exponential_(Tensor& x, double lambda = 1, Generator& g = default_generator());
/// 1 with probability p, else 0.
Tensor& bernoulli_(Tensor& x, double p = 0.5, Generator& g = default_generator(),
                   BernoulliRule rule = BernoulliRule::plain);
/// A random order of 0 .. n-1, (n,) i64.
Tensor randperm(int64_t n, Generator& g = default_generator());
/// `samples` indices per row, drawn in proportion to weights (..., categories): (..., samples) i64.
Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement = false,
                   Generator& g = default_generator());

// ---- fused ops: kernels of their own forward and backward, and a definition in the same file

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
Tensor softmax(const Tensor& x, int64_t dim = -1);
/// x - logsumexp x (log_softmax.cpp)
Tensor log_softmax(const Tensor& x, int64_t dim = -1);
/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimension, var biased; weight, bias
/// (C) or undefined, f32 also for a bf16 x; under Autocast bf16 for an f32 x. Ba, Kiros, Hinton
/// 2016, eq. 4. (layer_norm.cpp)
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// {s, layer_norm(s, ...)}, s = x + branch of the same shape: what stands between the parts of a
/// transformer's block, in one pass. (layer_norm.cpp)
std::pair<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& branch,
                                         const Tensor& weight = {}, const Tensor& bias = {},
                                         double eps = 1e-5);
/// x / sqrt(mean x^2 + eps) * weight over the last dimension, dtypes as layer_norm's. Zhang and
/// Sennrich 2019. (rms_norm.cpp)
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
/// Rows of weight (V, C) by ids (...): (..., C). (embedding.cpp)
Tensor embedding(const Tensor& ids, const Tensor& weight);
/// Zeroes each element with probability p and scales the others by 1 / (1 - p); the mask is a
/// function of the context's random position, which moves on, and the element's index. x itself
/// where p = 0 or not training. Srivastava et al. 2014. (dropout.cpp)
Tensor dropout(const Tensor& x, double p, bool training = true);
/// An element drawn from each row of probabilities (..., V), which sums to 1: i64 (..., 1). The
/// draw is a function of the context's random position, which moves on, and the row. (sample.cpp)
Tensor sample(const Tensor& probabilities);

// ---- losses

enum class Reduction { mean, sum, none };
/// -log softmax(logits)[target]. logits (..., V), targets (...) i64; targets equal to ignore_index
/// count nothing. mean: over the targets that count, NaN if none does. -> () or, for none, targets'
/// shape; f32 for bf16 logits. (cross_entropy.cpp)
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t ignore_index = -100,
                     Reduction reduction = Reduction::mean);
/// cross_entropy(linear(x, weight), targets) in chunks of rows: the logits never exist whole.
/// x (..., C), weight (V, C), both rounded to bf16 under Autocast -> f32 (linear_cross_entropy.cpp)
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t ignore_index = -100, Reduction reduction = Reduction::mean);
/// How many of x's rows have logits at a time there.
int64_t linear_cross_entropy_rows(int64_t rows, int64_t classes, Device device = cpu_device);
/// The mean of (input - target)^2: a basic op. (mse_loss.cpp)
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);

// ---- attention/

/// What scaled_dot_product_attention attends to, and how. T queries, S keys.
struct AttentionOptions {
  /// Bool: true where a query may attend to a key; or floating: added to the scores, -inf for what
  /// may not be attended to, with a gradient if it requires one. Broadcasts to (..., T, S) and is
  /// never expanded in memory: (S,) or (B, 1, 1, S) masks padding, (T, S) serves all heads.
  Tensor attn_mask = {};
  double dropout_p = 0;              ///< of each weight, always in force: pass 0 when not training
  bool is_causal = false;            ///< query i attends to keys 0 .. i
  bool causal_lower_right = false;   ///< ... to keys 0 .. i + S - T: the queries are the last of S
  std::optional<double> scale = {};  ///< of the scores; 1 / sqrt(d) if not given
};
/// softmax(q k^T scale + mask) v: (..., T, dv) of q (..., T, d), k (..., S, d), v (..., S, dv), all
/// read in place where strided. k and v may have fewer heads (dimension -3) than q, by a whole
/// factor n: head h of q then uses head h / n. Everything in `options` applies together; a query
/// that may attend to nothing gives zeros, and no gradient. Dropout is that of dropout(weights,
/// dropout_p) at the same random position. Memory is linear in T and S. Dao et al. 2022, alg. 1 and
/// 4. (attention.cpp)
///   scaled_dot_product_attention(q, k, v, {.is_causal = true})
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
/// The weights, (..., T, S), by which scaled_dot_product_attention mixes values: for looking at
/// them. At the same random position they have the same ones dropped.
Tensor attention_weights(const Tensor& q, const Tensor& k, const AttentionOptions& options = {});

}  // namespace ink
