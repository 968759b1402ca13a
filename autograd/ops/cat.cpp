// cat, stack, repeat, pad: one tensor made of several, of copies, or of one and a border.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/kernels/copy.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/promote.h"

namespace ink {

static void check_all(const char* op, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) detail::fail_undefined(op, static_cast<int>(i) + 1);
  }
}

// y = the tensors one after the other along a dimension.   dx_i = dy's part, a view of it
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) {
  INK_CHECK(!tensors.empty(), "cat: expected at least one tensor");
  check_all("cat", tensors);
  // As in PyTorch, an empty tensor of shape (0,) goes with any others.
  const auto is_void = [](const Tensor& x) { return x.shape() == Shape{0}; };
  const auto first = std::find_if_not(tensors.begin(), tensors.end(), is_void);
  Shape shape = first == tensors.end() ? Shape{0} : first->shape();
  const Shape wanted = shape;
  INK_CHECK(shape.size() > 0, "cat: scalars have no dimension to join along; use stack");
  const int64_t d = first == tensors.end() ? 0 : wrap_dim("cat", dim, shape);
  DType dtype = tensors[0].dtype();  // promoted by the others
  const auto skipped = [&](const Tensor& x) { return is_void(x) && wanted.size() > 1; };
  shape[d] = 0;
  for (const Tensor& x : tensors) {
    dtype = promote(x.dtype(), dtype);
    if (skipped(x)) continue;
    Shape expected = shape;
    if (x.dim() == shape.size()) expected[d] = x.shape()[d];
    INK_CHECK(x.shape() == expected, "cat: expected shapes that differ in dimension ", d,
              " alone, got ", wanted, " and ", x.shape());
    shape[d] += x.shape()[d];
  }
  Tensor y = empty(shape, {dtype, tensors[0].device()});
  int64_t end = 0;
  std::vector<std::pair<int64_t, DType>> sizes;  // -1: skipped
  for (const Tensor& x : tensors) {
    sizes.emplace_back(skipped(x) ? -1 : x.shape()[d], x.dtype());
    if (skipped(x)) continue;
    Array place = part_along(y, d, end, x.shape()[d]);
    kernel::copy(place, x);
    end += x.shape()[d];
  }
  return record("cat", tensors, y, [d, sizes](const Tensor& dy, VjpContext& g) -> Grads {
    Grads dxs(sizes.size());
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = std::max<int64_t>(sizes[i].first, 0);
      if (g.needs(i)) {
        const Tensor piece = narrow(dy, d, start, size);
        dxs[i] = to(sizes[i].first < 0 ? view(piece, {0}) : piece, sizes[i].second);
      }
      start += size;
    }
    return dxs;
  });
}

// The same along a new dimension.   dx_i = dy's layer i, a view of it
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim) {
  INK_CHECK(!tensors.empty(), "stack: expected at least one tensor");
  check_all("stack", tensors);
  check_dims("stack", tensors[0].dim() + 1);
  const int64_t d = wrap_dim("stack", dim, Shape::filled(tensors[0].dim() + 1, 1));
  std::vector<Tensor> layers;
  std::vector<DType> dtypes;
  Tensor y;
  {
    const NoGrad no_grad;
    for (const Tensor& x : tensors) {
      INK_CHECK(x.shape() == tensors[0].shape(), "stack: expected tensors of one shape, got ",
                tensors[0].shape(), " and ", x.shape());
      layers.push_back(unsqueeze(x, d));
      dtypes.push_back(x.dtype());
    }
    y = cat(layers, d);
  }
  return record("stack", tensors, y, [d, dtypes](const Tensor& dy, VjpContext& g) -> Grads {
    Grads dxs(dtypes.size());
    for (size_t i = 0; i < dtypes.size(); ++i) {
      if (g.needs(i)) dxs[i] = to(select(dy, d, static_cast<int64_t>(i)), dtypes[i]);
    }
    return dxs;
  });
}

// y = times[d] copies of x along each dimension d (new dimensions in front).
// dx = dy summed over the copies
Tensor repeat(const Tensor& x, const Shape& times) {
  check_defined("repeat", x);
  INK_CHECK(times.size() >= x.dim(), "repeat: expected a count for each dimension of ", x.shape(),
            ", got ", times);
  for (int64_t n : times) INK_CHECK(n >= 0, "repeat: expected counts of 0 or more, got ", times);
  // Three dimensions at a time, the last ones first: (outer, 1, n, 1, n, 1, n) is expanded to
  // (outer, times, n, times, n, times, n), as a tensor has at most 8 dimensions. An n takes in the
  // dimensions after it.
  Shape sizes = x.shape();
  while (sizes.size() < times.size()) sizes.insert(0, 1);
  Tensor y = reshape(x, sizes);
  for (int64_t d = sizes.size(); d > 0;) {
    Shape from, to;
    int64_t n = 1;
    for (int64_t i = d; i < sizes.size(); ++i) n *= sizes[i];
    while (d > 0 && from.size() < 6) {
      n *= sizes[--d];
      if (times[d] == 1) continue;
      from.insert(0, n);
      from.insert(0, 1);
      to.insert(0, n);
      to.insert(0, times[d]);
      sizes[d] *= times[d];
      n = 1;
    }
    for (int64_t i = 0; i < d; ++i) n *= sizes[i];
    from.insert(0, n);
    to.insert(0, n);
    if (from.size() > 1) y = reshape(expand(reshape(y, from), to), sizes);
  }
  return shown_as("repeat", y.storage() == x.storage() ? clone(y) : y);
}

Tensor concat(const std::vector<Tensor>& tensors, int64_t dim) { return cat(tensors, dim); }

Tensor repeat_interleave(const Tensor& x, int64_t times, std::optional<int64_t> dim) {
  check_defined("repeat_interleave", x);
  INK_CHECK(times >= 0, "repeat_interleave: expected a count of 0 or more, got ", times);
  if (!dim) return repeat_interleave(reshape(x, {x.numel()}), times, 0);
  INK_CHECK(x.dim() > 0, "repeat_interleave: a scalar has no dimension ", *dim);
  const int64_t d = wrap_dim("repeat_interleave", *dim, x.shape());
  Shape copies = x.shape(), shape = x.shape();
  copies.insert(d + 1, times);
  shape[d] *= times;
  return shown_as("view", reshape(expand(unsqueeze(x, d + 1), copies), shape));
}

// Chooses elements by ids; each id occurs as often as its element.
Tensor repeat_interleave(const Tensor& x, const Tensor& times, std::optional<int64_t> dim) {
  check_defined("repeat_interleave", x, times);
  INK_CHECK(times.dtype() == i64 && times.dim() <= 1,
            "repeat_interleave: expected i64 counts of at most one dimension, got ", times.dtype(),
            " ", times.shape());
  const Tensor from = dim ? x : reshape(x, {x.numel()});
  const int64_t d = wrap_dim("repeat_interleave", dim.value_or(0), from.shape());
  const int64_t n = from.dim() > 0 ? from.size(d) : 1;
  const auto counts = times.tolist<int64_t>();
  INK_CHECK(times.numel() == 1 || times.numel() == n, "repeat_interleave: expected ", n,
            " counts, got ", times.numel());
  const auto count_of = [&](int64_t i) {
    return counts[times.numel() == 1 ? 0 : static_cast<size_t>(i)];
  };
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    INK_CHECK(count_of(i) >= 0, "repeat_interleave: expected counts of 0 or more, got ",
              count_of(i));
    INK_CHECK(!__builtin_add_overflow(total, count_of(i), &total),
              "repeat_interleave: the sum of the counts overflows 64 bits");
  }
  Tensor ids = empty({total}, {i64, cpu_device});
  for (int64_t i = 0, *id = ids.mutable_data<int64_t>(); i < n; ++i)
    id = std::fill_n(id, count_of(i), i);
  return index_select(from, d, ids.to(x.device()));
}

// pads: before and after the last dimension, before and after the one before it, ...
Tensor pad(const Tensor& x, const Shape& pads, const Scalar& value) {
  check_defined("pad", x);
  INK_CHECK(pads.size() % 2 == 0 && pads.size() / 2 <= x.dim(),
            "pad: expected two numbers for each of the last dimensions of ", x.shape(), ", got ",
            pads);
  Shape shape = x.shape(), first = Shape::filled(x.dim(), 0), length = x.shape();
  for (int64_t i = 0; i < pads.size() / 2; ++i) {
    const int64_t d = x.dim() - 1 - i, before = pads[2 * i], after = pads[2 * i + 1];
    shape[d] += before + after;
    length[d] += std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    INK_CHECK(length[d] >= 0, "pad: ", pads, " takes more from dimension ", d, " of ", x.shape(),
              " than it has");
    first[d] = before;
  }
  Tensor y = full(shape, value, x.options()), target = y, source = x;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const int64_t from = std::min(std::max<int64_t>(-first[d], 0), x.shape()[d]);
    source = narrow(source, d, from, length[d]);
    target = narrow(target, d, std::min(std::max<int64_t>(first[d], 0), shape[d] - length[d]),
                    length[d]);
  }
  target.copy_(source);
  return shown_as("constant_pad_nd", y);
}

}  // namespace ink
