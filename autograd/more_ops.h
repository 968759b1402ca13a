// Ops that few others are written with: reductions, sorting, indices, norms over several
// dimensions, einsum, copies, losses. Each comment names the file in ops/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"

namespace ink {

// ---- prod.cpp, var.cpp, logsumexp.cpp

Tensor prod(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
/// sum (x - mean)^2 / (n - correction): 1 gives the unbiased estimate, 0 the biased one.
Tensor var(const Tensor& x, const Shape& dims = {}, NumberOf<double> correction = 1,
           Flag keepdim = false);
Tensor std(const Tensor& x, const Shape& dims = {}, NumberOf<double> correction = 1,
           Flag keepdim = false);
TensorPair var_mean(const Tensor& x, const Shape& dims = {}, NumberOf<double> correction = 1,
                    Flag keepdim = false);
/// log sum exp x, without overflow.
Tensor logsumexp(const Tensor& x, const Shape& dims, Flag keepdim = false);

/// (sum |x|^p)^(1/p); p = infinity gives the largest |x|, p = 0 the number of nonzeros. (norm.cpp)
Tensor norm(const Tensor& x, NumberOf<double> p = 2, const Shape& dims = {}, Flag keepdim = false);
Tensor norm(const Tensor& x, std::initializer_list<int64_t>) = delete;  // p comes first

// ---- cumsum.cpp, sort.cpp: along one dimension

Tensor cumsum(const Tensor& x, int64_t dim);
Tensor cumprod(const Tensor& x, int64_t dim);
/// Stable; NaN counts as the largest.
ValuesIndices sort(const Tensor& x, NumberOf<int64_t> dim = -1, bool descending = false);
/// The k largest (smallest) in order.
ValuesIndices topk(const Tensor& x, int64_t k, NumberOf<int64_t> dim = -1, bool largest = true);
Tensor argsort(const Tensor& x, NumberOf<int64_t> dim = -1,
               bool descending = false);  // sort's indices

// ---- index.cpp: by i64 ids; an id out of range is an error that names it

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids);  // ids (n,)
/// y[i][j] = x[ids[i][j]][j] for dim 0.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& ids);
/// The reverse of gather: y = x, then y[ids[i][j]][j] += source[i][j] for dim 0.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source);
/// y = x, then y[ids[i][j]][j] = source[i][j] for dim 0. If an id occurs twice, the last one
/// counts.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& ids, const Scalar& value);
Tensor index(const Tensor& x, const Tensor& ids);  // rows: ids.shape + x.shape[1:]; or by a mask
/// x[ids[0], :, ids[1]]. Each entry indexes a dimension of x: i64 ids, which broadcast together; a
/// bool mask, which indexes as many dimensions as it has (one without any, a new dimension of size
/// 1); or undefined for ":". As in NumPy, the ids' dimensions come first in the result, unless all
/// indexed dimensions are adjacent.
/// (index_put.cpp)
Tensor index(const Tensor& x, const std::vector<Tensor>& ids);
/// The elements where mask, which broadcasts with x, is true: (n,).
Tensor masked_select(const Tensor& x, const Tensor& mask);
Tensor nonzero(const Tensor& x);  // where x is not 0: (n, dims) i64
/// x with values at [ids[0], ids[1], ...]. Each entry indexes one of the first dimensions by i64
/// ids (negative ones count from the end), which broadcast together; or it is a bool mask, which
/// indexes as many dimensions as it has. The values broadcast to the ids' shape + the other sizes.
/// If a place occurs twice, the last value counts; with accumulate, all values are added to x.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& ids, const Tensor& values,
                 bool accumulate = false);
/// 1 at each of ids (...), else 0: (..., num_classes) i64. num_classes = -1 means the largest id +
/// 1.
Tensor one_hot(const Tensor& ids, int64_t num_classes = -1);

/// embedding of fused_ops.h, except that the row padding_idx gets no gradient. (embedding.cpp)
Tensor embedding(const Tensor& ids, const Tensor& weight, NumberOf<int64_t> padding_idx);

// ---- group_norm.cpp

/// layer_norm of fused_ops.h over the last dimensions of x (..., shape); weight, bias (shape).
Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
enum class NoWeight {};  // layer_norm(x, {}, bias) is that of fused_ops.h without a weight
inline Tensor layer_norm(const Tensor& x, NoWeight, const Tensor& bias = {}, double eps = 1e-5) {
  return layer_norm(x, Tensor(), bias, eps);
}
/// (x - mean) / sqrt(var + eps) * weight + bias of x (N, C, ...). mean and var are taken over each
/// sample's groups of C / groups channels; weight and bias are (C). Wu and He 2018.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// ---- einsum.cpp

/// Sums of products over named dimensions: einsum("bij,bjk->bik", {a, b}) is a batch of matrix
/// products. "..." stands for dimensions without names, which broadcast.
Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands);

// ---- cat.cpp, views.cpp

Tensor concat(const std::vector<Tensor>& tensors, int64_t dim = 0);  // cat
/// Repeats each element `times` times in a row; without dim, those of the flat tensor.
Tensor repeat_interleave(const Tensor& x, int64_t times, std::optional<int64_t> dim = {});
/// Repeats element i times[i] times; times (n,) i64.
Tensor repeat_interleave(const Tensor& x, const Tensor& times, std::optional<int64_t> dim = {});
/// `value` around x: pads[0] before and pads[1] after along the last dimension, pads[2] and pads[3]
/// along the one before it, and so on. Negative numbers cut off.
Tensor pad(const Tensor& x, const Shape& pads, const Scalar& value = 0);
/// Windows of `size` elements, each `step` after the last: (..., windows, ..., size). A view;
/// overlapping windows cannot be written in place.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);

/// Moves the elements `shifts` places up along each of dims; those that leave at the end come back
/// at the start. Without dims, the flat tensor. (flip.cpp)
Tensor roll(const Tensor& x, const Shape& shifts, const Shape& dims = {});
/// The matrix with x (n) on a diagonal, or that diagonal of a matrix, copied.
Tensor diag(const Tensor& x, int64_t diagonal = 0);
Tensor trace(const Tensor& x);  // the sum of a matrix's diagonal

// ---- losses.cpp: input and target broadcast, without PyTorch's warning that (N, 1) and (N) do

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      Reduction reduction = Reduction::mean, double beta = 1);
/// -t log sigmoid x - (1 - t) log(1 - sigmoid x), targets t in [0, 1] of x's shape.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets,
                                        Reduction reduction = Reduction::mean);
/// -t log p - (1 - t) log(1 - p) with each log at least -100, probabilities p and targets t in
/// [0, 1] of one shape. On a CPU, others are an error. From logits, take the one above.
Tensor binary_cross_entropy(const Tensor& p, const Tensor& targets,
                            Reduction reduction = Reduction::mean);
/// target (log target - input). input holds log probabilities; with log_target, so does target.
Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
              bool log_target = false);

/// The options of losses over classes, with logits (..., V) and i64 targets (...).
struct ClassOptions {
  Tensor weight = {};                     ///< (V): a factor for each class
  int64_t ignore_index = -100;            ///< targets equal to it are left out
  Reduction reduction = Reduction::mean;  ///< mean: divided by the weights of the targets
  double label_smoothing = 0;             ///< the probability that is spread over all classes
  int64_t dim = -1;                       ///< where the classes are: 1 for logits (N, V, ...)
};
/// -log_p[target], where log_p holds log probabilities.
Tensor nll_loss(const Tensor& log_p, const Tensor& targets, const ClassOptions& options = {});
/// cross_entropy of fused_ops.h with class weights, label smoothing or another dimension of
/// classes. The result has the dtype of the logits, as in PyTorch:
///   cross_entropy(logits, targets, {.label_smoothing = 0.1})
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const ClassOptions& options);

}  // namespace ink
