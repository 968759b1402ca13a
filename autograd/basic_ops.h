// Basic ops: what other ops, layers and tests are written with. They are closed under
// differentiation. The headings name the files in ops/.
//
// Shapes broadcast as in NumPy. Mixed dtypes are promoted as in PyTorch (i64 and bool with a
// floating dtype give that dtype; f32 with bf16 gives f32). Negative `dims` count from the end; an
// empty list means all of them. Errors are ink::Error, "op: ...".
#pragma once

#include <optional>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/random/generator.h"
#include "autograd/tensor.h"

namespace ink {

// ---- binary.cpp: elementwise, two tensors

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
/// a + alpha b and a - alpha b.
Tensor add(const Tensor& a, const Tensor& b, const Scalar& alpha);
Tensor sub(const Tensor& a, const Tensor& b, const Scalar& alpha);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // integers give the default floating dtype
Tensor pow(const Tensor& a, const Tensor& b);  // a ^ b
/// The larger one, or NaN if either is NaN; at a tie each gets half the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor atan2(const Tensor& a, const Tensor& b);  // the angle of the point (b, a), in [-pi, pi]
/// a - b floor(a / b). It has b's sign, as in Python.
Tensor remainder(const Tensor& a, const Tensor& b);
/// min(max(x, min), max); one of the bounds may be undefined.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max);
Tensor clamp_min(const Tensor& x, const Tensor& min);
Tensor clamp_max(const Tensor& x, const Tensor& max);

// A number takes the tensor's dtype; but a floating number, such as 2.0, makes i64 and bool tensors
// the default floating dtype.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, const Scalar& b);
Tensor operator-(const Tensor& a, const Scalar& b);
Tensor operator*(const Tensor& a, const Scalar& b);
Tensor operator/(const Tensor& a, const Scalar& b);
Tensor operator+(const Scalar& a, const Tensor& b);
Tensor operator-(const Scalar& a, const Tensor& b);
Tensor operator*(const Scalar& a, const Tensor& b);
Tensor operator/(const Scalar& a, const Tensor& b);
Tensor operator%(const Tensor& a, const Tensor& b);
Tensor operator%(const Tensor& a, const Scalar& b);
Tensor operator%(const Scalar& a, const Tensor& b);
Tensor remainder(const Tensor& a, const Scalar& b);
Tensor add(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);
Tensor sub(const Tensor& a, const Scalar& b, const Scalar& alpha = 1);
Tensor mul(const Tensor& a, const Scalar& b);
Tensor div(const Tensor& a, const Scalar& b);
Tensor maximum(const Tensor& a, const Scalar& b);
Tensor minimum(const Tensor& a, const Scalar& b);
Tensor operator-(const Tensor& x);
// Bit by bit for integers; logical and, or, exclusive or, not for bools.
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);
Tensor operator~(const Tensor& x);
Tensor operator&(const Tensor& a, const Scalar& b);
Tensor operator|(const Tensor& a, const Scalar& b);
Tensor operator^(const Tensor& a, const Scalar& b);
// bits, if a can hold them: a bool takes no integers.
Tensor bits_for(const Tensor& a, const Tensor& bits);
inline Tensor& operator&=(Tensor& a, const auto& b) { return a.copy_(bits_for(a, a & b)); }
inline Tensor& operator|=(Tensor& a, const auto& b) { return a.copy_(bits_for(a, a | b)); }
inline Tensor& operator^=(Tensor& a, const auto& b) { return a.copy_(bits_for(a, a ^ b)); }
inline Tensor& operator&=(Tensor&& a, const auto& b) { return std::move(a) = bits_for(a, a & b); }
inline Tensor& operator|=(Tensor&& a, const auto& b) { return std::move(a) = bits_for(a, a | b); }
inline Tensor& operator^=(Tensor&& a, const auto& b) { return std::move(a) = bits_for(a, a ^ b); }

// ---- unary.cpp, gelu.cpp: elementwise, one tensor

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor pow(const Tensor& x, const Scalar& exponent);
Tensor pow(const Scalar& number, const Tensor& exponent);
Tensor square(const Tensor& x);
Tensor log1p(const Tensor& x);  // log(1 + x)
Tensor expm1(const Tensor& x);  // exp(x) - 1
Tensor abs(const Tensor& x);    // gradient 0 at 0
Tensor sign(const Tensor& x);   // -1, 0 or 1; gradient 0
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);  // 1 / (1 + exp(-x))
Tensor relu(const Tensor& x);     // max(x, 0); gradient 0 at 0
Tensor silu(const Tensor& x);     // x sigmoid(x)
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);  // the gradient of these four is 0
Tensor ceil(const Tensor& x);
Tensor trunc(const Tensor& x);  // towards 0
Tensor round(const Tensor& x);  // halves to even
/// min(max(x, min), max); gradient 0 at the bounds.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
Tensor clamp_min(const Tensor& x, const Scalar& min);
Tensor clamp_max(const Tensor& x, const Scalar& max);
/// log(1 + exp(beta x)) / beta, and x where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);  // x > 0 ? x : negative_slope x
Tensor elu(const Tensor& x, double alpha = 1);                     // x > 0 ? x : alpha (exp(x) - 1)
enum class Gelu { erf, tanh };
/// x Phi(x); with Gelu::tanh its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
/// Hendrycks and Gimpel 2016.
Tensor gelu(const Tensor& x, Gelu approximate = Gelu::erf);

// ---- where.cpp

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);  // condition ? a : b
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b);
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b);
Tensor where(const Tensor& condition, const Scalar& a, const Scalar& b);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value);  // mask ? value : x
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);  // value ()

// ---- compare.cpp: bool results, no gradients

Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, const Tensor& b);
Tensor operator<(const Tensor& a, const Tensor& b);
Tensor operator<=(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator>=(const Tensor& a, const Tensor& b);
Tensor operator==(const Tensor& a, const Scalar& b);
Tensor operator!=(const Tensor& a, const Scalar& b);
Tensor operator<(const Tensor& a, const Scalar& b);
Tensor operator<=(const Tensor& a, const Scalar& b);
Tensor operator>(const Tensor& a, const Scalar& b);
Tensor operator>=(const Tensor& a, const Scalar& b);
Tensor operator==(const Scalar& a, const Tensor& b);
Tensor operator!=(const Scalar& a, const Tensor& b);
Tensor operator<(const Scalar& a, const Tensor& b);
Tensor operator<=(const Scalar& a, const Tensor& b);
Tensor operator>(const Scalar& a, const Tensor& b);
Tensor operator>=(const Scalar& a, const Tensor& b);
inline Tensor eq(const Tensor& a, const auto& b) { return a == b; }  // b: a tensor or a number
inline Tensor ne(const Tensor& a, const auto& b) { return a != b; }
inline Tensor lt(const Tensor& a, const auto& b) { return a < b; }
inline Tensor le(const Tensor& a, const auto& b) { return a <= b; }
inline Tensor gt(const Tensor& a, const auto& b) { return a > b; }
inline Tensor ge(const Tensor& a, const auto& b) { return a >= b; }
Tensor logical_and(const Tensor& a, const Tensor& b);  // non-zero counts as true
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// |a - b| <= atol + rtol |b|, element by element.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);
bool equal(const Tensor& a, const Tensor& b);  // same shape and the same values

// ---- reduce.cpp: over dimensions

Tensor sum(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);  // bool, i64: i64
Tensor mean(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
Tensor any(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);  // bool
Tensor all(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
/// Sums x down to a shape that broadcasts to x's: the gradient of expand.
Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- max_min.cpp

/// Values and their i64 indices along a dimension.
struct ValuesIndices {
  Tensor values, indices;
};
/// Of equal elements the first one is taken, and gets the gradient. NaN is taken before any number.
ValuesIndices max(const Tensor& x, NumberOf<int64_t> dim, Flag keepdim = false);
ValuesIndices min(const Tensor& x, NumberOf<int64_t> dim, Flag keepdim = false);
Tensor max(const Tensor& x);  // the largest of all
Tensor min(const Tensor& x);
Tensor max(const Tensor& a, const Tensor& b);  // maximum, minimum
Tensor min(const Tensor& a, const Tensor& b);
/// Equal elements share the gradient. NaN is taken before any number.
Tensor amax(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
Tensor amin(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
/// Without dim, the index is into the flat tensor.
Tensor argmax(const Tensor& x, std::optional<NumberOf<int64_t>> dim = {}, Flag keepdim = false);
Tensor argmin(const Tensor& x, std::optional<NumberOf<int64_t>> dim = {}, Flag keepdim = false);

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
/// start and stop are clamped to the size, as in Python.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
Tensor slice_backward(const Tensor& x, const Shape& shape, int64_t dim, int64_t start, int64_t stop,
                      int64_t step);
/// Pieces of `size`, or of each of the sizes.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);  // without the dimension
/// The elements (..., i, i + offset) of two dimensions, as the last one.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);

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

// ---- matmul.cpp

/// (..., n, k) @ (..., k, m); batches broadcast; vectors as in PyTorch.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);    // (b, n, k) @ (b, k, m)
Tensor dot(const Tensor& a, const Tensor& b);    // (n) . (n)
Tensor outer(const Tensor& a, const Tensor& b);  // (n), (m) -> (n, m)

// ---- random.cpp: values that PyTorch's CPU generator gives
// Any floating dtype, layout and device; the values are those of a CPU tensor, drawn in the order
// of its memory (bf16: f32's, rounded, but for the last 16 of a normal_). Rules for graphs: see
// engine/README.md, "In-place ops".

Tensor uniform_(Tensor x, double from = 0, double to = 1, Generator& g = default_generator());
Tensor normal_(Tensor x, double mean = 0, double std = 1, Generator& g = default_generator());
Tensor exponential_(Tensor x, double lambda = 1, Generator& g = default_generator());
/// 1 with probability p, else 0.
Tensor bernoulli_(Tensor x, double p = 0.5, Generator& g = default_generator(),
                  BernoulliRule rule = BernoulliRule::plain);
/// `samples` indices per row, drawn in proportion to weights (..., categories): (..., samples) i64.
Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement = false,
                   Generator& g = default_generator());

}  // namespace ink
