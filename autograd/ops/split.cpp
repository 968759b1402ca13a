// split, chunk: a tensor cut into views along one dimension, and put together again.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"

namespace ink {

// The tensor of the given shape whose pieces along a dimension are these, if they already lie side
// by side in memory; else undefined. (Attention's backward writes the gradients of q, k and v into
// one buffer, which then is the gradient of the packed tensor without a copy.)
static Tensor joined(const Grads& pieces, const Shape& shape, int64_t dim) {
  if (!pieces[0].defined()) return {};
  const Tensor& first = pieces[0];
  int64_t offset = first.layout().offset;
  for (const Tensor& piece : pieces) {
    if (!piece.defined() || piece.storage() != first.storage() || piece.dtype() != first.dtype() ||
        piece.strides() != first.strides() || piece.layout().offset != offset ||
        (grad_enabled() && piece.requires_grad()))
      return {};
    offset += piece.shape()[dim] * piece.strides()[dim];
  }
  return Tensor(first.array().seen_as({shape, first.strides(), first.layout().offset}));
}

static Shape with_size(Shape shape, int64_t dim, int64_t size) {
  shape[dim] = size;
  return shape;
}

// y_i = x[..., size_0 + ... + size_(i-1) onwards, size_i elements, ...].
// dx = the dy_i side by side, with zeros for a missing one
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  check_defined("split", x);
  INK_CHECK(x.dim() > 0, "split: a scalar has no dimension to split");
  const int64_t d = wrap_dim("split", dim, x.shape()), n = x.shape()[d];
  for (int64_t s : sizes) INK_CHECK(s >= 0, "split: expected sizes of 0 or more, got ", s);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  INK_CHECK(total == n, "split: expected sizes that add up to dimension ", d, " of ", x.shape(),
            ", got a sum of ", total);
  if (sizes.empty()) return {};
  std::vector<Tensor> pieces;
  Layout layout = x.layout();
  for (int64_t size : sizes) {
    layout.sizes[d] = size;
    pieces.push_back(x.alias(layout));
    layout.offset += size * layout.strides[d];
  }
  const auto vjp = [shape = x.shape(), sizes, d](const Grads& dys, VjpContext&) -> Grads {
    if (Tensor whole = joined(dys, shape, d); whole.defined()) return {whole};
    const auto given = std::find_if(dys.begin(), dys.end(), [](auto& dy) { return dy.defined(); });
    Grads parts = dys;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].defined())
        parts[i] = expand(zeros({}, given->options()), with_size(shape, d, sizes[i]));
    }
    return {cat(parts, d)};
  };
  pieces = record("split", {x}, std::move(pieces), vjp);
  shown_as("split_with_sizes", pieces[0]);
  return pieces;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  check_defined("split", x);
  INK_CHECK(x.dim() > 0, "split: a scalar has no dimension to split");
  const int64_t n = x.shape()[wrap_dim("split", dim, x.shape())];
  INK_CHECK(size > 0 || (size == 0 && n == 0), "split: expected a positive size, got ", size);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
  const auto pieces = split(x, n == 0 ? std::vector<int64_t>{0} : sizes, dim);
  shown_as("split", pieces[0]);
  return pieces;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  check_defined("chunk", x);
  INK_CHECK(x.dim() > 0, "chunk: a scalar has no dimension to split");
  INK_CHECK(chunks > 0, "chunk: expected a positive number of chunks, got ", chunks);
  const int64_t n = x.shape()[wrap_dim("chunk", dim, x.shape())];
  if (n == 0) return split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), dim);
  return split(x, (n - 1) / chunks + 1, dim);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  check_defined("unbind", x);
  INK_CHECK(x.dim() > 0, "unbind: a scalar has no dimension to take apart");
  const int64_t d = wrap_dim("unbind", dim, x.shape());
  std::vector<Tensor> layers;
  for (const Tensor& piece : split(x, 1, d)) {
    if (x.shape()[d] > 0) layers.push_back(shown_as("unbind", squeeze(piece, d)));
  }
  return layers;
}

}  // namespace ink
