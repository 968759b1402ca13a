// Every public op, in three pages:
//
//   basic_ops.h   arithmetic, comparisons, sums, views, copies, products, random values
//   fused_ops.h   linear, softmax, norms, dropout, embedding, losses, attention
//   here          all others. A new op begins here, because few files include this page and have
//                 to be compiled again.
#pragma once

#include <concepts>
#include <utility>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"

namespace ink {

// ---- prod.cpp, var.cpp, logsumexp.cpp

Tensor prod(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
/// sum (x - mean)^2 / (n - correction): 1 gives the unbiased estimate, 0 the biased one.
Tensor var(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Shape& dims = {}, double correction = 1, bool keepdim = false);
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Shape& dims = {}, double correction = 1,
                                   bool keepdim = false);
// A bool is no correction: keepdim comes after it.
template <std::same_as<bool> Bool>
Tensor var(const Tensor& x, const Shape& dims, Bool keepdim, bool = false) = delete;
template <std::same_as<bool> Bool>
Tensor std(const Tensor& x, const Shape& dims, Bool keepdim, bool = false) = delete;
/// log sum exp x, without overflow.
Tensor logsumexp(const Tensor& x, const Shape& dims, bool keepdim = false);

// ---- cumsum.cpp, sort.cpp: along one dimension

Tensor cumsum(const Tensor& x, int64_t dim);
/// Stable; NaN is the largest.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The k largest (smallest) in order.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);

// ---- index.cpp: by i64 ids; an id out of range is an error that names it

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids);  // ids (n,)
/// y[i][j] = x[ids[i][j]][j] for dim 0.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& ids);
/// The reverse, summed onto x.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source);
Tensor index(const Tensor& x, const Tensor& ids);  // rows: ids.shape + x.shape[1:]
/// x with values at [ids[0], ids[1], ...]: i64 ids (below 0 from the end) that broadcast together,
/// one tensor for each of the first dimensions, or bool masks, each for as many as it has. The
/// values broadcast to the ids' shape + the other sizes. Where ids come twice, the last value
/// counts; with accumulate, values are added to x.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& ids, const Tensor& values,
                 bool accumulate = false);
/// ids (...): 1 at each id, else 0, (..., num_classes) i64; -1: one class more than the largest id.
Tensor one_hot(const Tensor& ids, int64_t num_classes = -1);

}  // namespace ink
