// gather, scatter, scatter_add, index_select, index, one_hot: elements chosen by i64 ids.
//
// All use one pair of kernels: gather, and scatter, its gradient. index_select and index are
// gathers whose ids are repeated, without a copy, over the dimensions that they do not index. A run
// of elements under one id is copied or added as a whole.
#include <algorithm>
#include <utility>

#include "autograd/kernels/copy.h"
#include "autograd/kernels/lines.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/check_ids.h"

namespace ink {

namespace cpu {

void gather(Array& y, const Array& x, const Array& ids, int64_t dim, const char* /*op*/) {
  const Array base = constant_along(x, dim, ids.shape());
  const StridedLoop<3> loop(ids.shape(), {&y, &base, &ids});
  const int64_t sy = loop.inner_stride(0), sx = loop.inner_stride(1), si = loop.inner_stride(2);
  const int64_t step = x.strides()[dim];
  const int64_t* places = ids.data<int64_t>();
  for_bits(size_of(x.dtype()), [&]<class T>(T) {
    const T* in = reinterpret_cast<const T*>(address_of(x));
    T* out = reinterpret_cast<T*>(writable_address_of(y));
    loop.for_each_row([=](auto offset, int64_t n) {
      const T* from = in + offset[1];
      T* to = out + offset[0];
      const int64_t* id = places + offset[2];
      if (si == 0 && sx == 1 && sy == 1) {  // one id for the whole run, as in index_select
        std::copy_n(from + *id * step, n, to);
      } else if (si == 1 && sx == 0 && sy == 1 && step == 1) {  // an id each, into one line of x
#pragma GCC unroll 8  // no vectors: the processor would split a gathered one into single loads
        for (int64_t i = 0; i < n; ++i) to[i] = from[id[i]];
      } else {
        for (int64_t i = 0; i < n; ++i) to[i * sy] = from[i * sx + id[i * si] * step];
      }
    });
  });
}

// put(to, from) for n elements, at places `step` apart that their ids name. A function of its own:
// within its two callers there are too few registers.
template <class T, class Put>
[[gnu::noinline]] static void put_each(Put put, T* to, const T* from, const int64_t* id,
                                       int64_t step, int64_t n, int64_t next_to, int64_t next_from,
                                       int64_t next_id) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; ++i, to += next_to, from += next_from, id += next_id)
    put(to[*id * step], *from);
}

// Elements that differ in another dimension than `dim` go to different places. So threads share the
// other dimensions, and each takes the ids along `dim` in order. If the other dimensions are small
// and share their ids, each thread reads all ids and serves only its own places along `dim`. Either
// way every place has one owner and one order. put(place, value) adds or writes.
template <class T, class Put>
static void scatter_by(Put put, Array& y, const Array& source, const Array& ids, int64_t dim) {
  Shape lines = ids.shape();
  const int64_t count = std::exchange(lines[dim], 1), step = y.strides()[dim];
  const int64_t next_source = source.strides()[dim], next_id = ids.strides()[dim];
  const Array to0 = constant_along(y, dim, lines), from0 = constant_along(source, dim, lines);
  const Array ids0 = constant_along(ids, dim, lines);
  const StridedLoop<3> loop(lines, {&to0, &from0, &ids0});
  const int64_t sy = loop.inner_stride(0), ss = loop.inner_stride(1), si = loop.inner_stride(2);
  const int64_t* places = ids.data<int64_t>();
  const T* in = reinterpret_cast<const T*>(address_of(source));
  T* out = reinterpret_cast<T*>(writable_address_of(y));
  const auto put_rows = [&](int64_t low, int64_t high) {
    const auto rows_of_ids = [=](auto offset, int64_t n) {
      const T* from = in + offset[1];
      const int64_t* id = places + offset[2];
      for (int64_t j = 0; j < count; ++j, from += next_source, id += next_id) {
        if (*id < low || *id >= high) continue;
        T* to = out + offset[0] + *id * step;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) put(to[i], from[i]);
      }
    };
    loop.for_each_row(rows_of_ids, kGrain / std::max<int64_t>(count, 1));
  };
  if (si == 0 && sy == 1 && ss == 1) {
    const bool few_lines = lines.numel() < 16 * max_threads() && ids.numel() > kGrain;
    if (few_lines) return parallel_for(y.shape()[dim], 1, put_rows);
    return put_rows(0, y.shape()[dim]);
  }
  const auto row = [=](auto offset, int64_t n) {
    T* to = out + offset[0];
    const T* from = in + offset[1];
    const int64_t* id = places + offset[2];
    // Line by line, if its ids are closer in memory than those of others.
    if (next_id <= si && count > 1) {
      for (int64_t i = 0; i < n; ++i)
        put_each(put, to + i * sy, from + i * ss, id + i * si, step, count, 0, next_source,
                 next_id);
    } else {
      for (int64_t j = 0; j < count; ++j)
        put_each(put, to, from + j * next_source, id + j * next_id, step, n, sy, ss, si);
    }
  };
  loop.for_each_row(row, kGrain / std::max<int64_t>(count, 1));
}

void scatter(Array& y, const Array& source, const Array& ids, int64_t dim, bool add,
             const char* /*op*/) {
  if (add) {
    const auto add_as = [&]<class T>(T) {
      scatter_by<T>([](T& sum, T x) { sum = static_cast<T>(sum + x); }, y, source, ids, dim);
    };
    return y.dtype() == f32   ? add_as(float{})
           : y.dtype() == f64 ? add_as(double{})
           : y.dtype() == i64 ? add_as(int64_t{})
                              : add_as(bool{});  // sums of bf16 are in f32
  }
  for_bits(size_of(y.dtype()), [&]<class T>(T) {
    scatter_by<T>([](T& place, T x) { place = x; }, y, source, ids, dim);
  });
}

}  // namespace cpu

namespace {

bool fits(const Shape& small, const Shape& large, int64_t except) {
  if (small.size() != large.size()) return false;
  for (int64_t d = 0; d < small.size(); ++d) {
    if (d != except && small[d] > large[d]) return false;
  }
  return true;
}

// As in PyTorch, ids without elements may have any shape, also one that does not fit.
bool fits_nowhere(const Tensor& ids, const Tensor& x, int64_t dim) {
  return ids.numel() == 0 && !fits(ids.shape(), x.shape(), dim);
}

// A scalar is indexed as a line of one element.
Tensor as_line(const Tensor& x) { return x.dim() == 0 ? view(x, {1}) : x; }
// The result in the shape of `like`.
Tensor as_scalar(const Tensor& line, const char* op, const Tensor& like) {
  return like.dim() == 0 ? shown_as(op, view(line, {})) : line;
}

// zeros of a shape, with dy added at ids
Tensor added_at(const Shape& shape, int64_t dim, const Tensor& ids, const Tensor& dy) {
  return scatter_add(zeros(shape, dy.options()), dim, ids, dy);
}

// The elements of x that ids of the result's shape choose.   dx = zeros, dy added at ids
Tensor gathered(const char* op, const Tensor& x, int64_t dim, const Tensor& ids) {
  Tensor y = empty(ids.shape(), x.options());
  kernel::gather(y, x, ids, dim, op);
  return record(op, {x}, y,
                [dim, from = x.shape(), ids = Saved::input(ids)](const Tensor& dy) -> Grads {
                  return {added_at(from, dim, *ids, dy)};
                });
}

// x in the first corner of zeros of a larger shape.
Tensor padded(Tensor x, const Shape& shape) {
  for (int64_t d = 0; d < shape.size(); ++d) {
    if (x.shape()[d] == shape[d]) continue;
    Shape larger = x.shape();
    const int64_t n = std::exchange(larger[d], shape[d]);
    x = slice_backward(x, larger, d, 0, n, 1);
  }
  return x;
}

// ids (n,) for a gather along `dim`, the same in all other dimensions: shape with n at dim.
Tensor spread(const Tensor& ids, int64_t dim, Shape shape) {
  Shape one_dim = Shape::filled(shape.size(), 1);
  shape[dim] = one_dim[dim] = ids.numel();
  return expand(reshape(ids, one_dim), shape);
}

void check_rank(const char* op, const Tensor& ids, const Tensor& x) {
  INK_CHECK(ids.dim() == x.dim(), op, ": expected ids of as many dimensions as the tensor ",
            x.shape(), ", got ", ids.shape());
}

}  // namespace

// y[i][j] = x[ids[i][j]][j] for dim 0, and so on.   dx = zeros, dy added at ids
Tensor gather(const Tensor& x, int64_t dim, const Tensor& ids) {
  check_defined("gather", x, ids);
  if (x.dim() == 0 || (x.dim() == 1 && ids.dim() == 0))
    return as_scalar(gather(as_line(x), dim, as_line(ids)), "gather", ids);
  const int64_t d = wrap_dim("gather", dim, x.shape());
  if (fits_nowhere(ids, x, d))
    return shown_as("gather", view(narrow(reshape(x, {x.numel()}), 0, 0, 0), ids.shape()));
  check_rank("gather", ids, x);
  INK_CHECK(fits(ids.shape(), x.shape(), d), "gather: expected ids no larger than ", x.shape(),
            " outside dimension ", d, ", got ", ids.shape());
  check_ids("gather", ids, d, x.shape());
  return gathered("gather", x, d, ids);
}

// The dimension. Throws unless ids choose elements of x and the source has one for each of them.
static int64_t check_scatter(const char* op, const Tensor& x, int64_t dim, const Tensor& ids,
                             const Shape& source) {
  const int64_t d = wrap_dim(op, dim, x.shape());
  check_rank(op, ids, x);
  INK_CHECK(fits(ids.shape(), x.shape(), d), op, ": expected ids no larger than ", x.shape(),
            " outside dimension ", d, ", got ", ids.shape());
  INK_CHECK(fits(ids.shape(), source, -1), op, ": expected a source no smaller than the ids, ",
            ids.shape(), ", got ", source);
  check_ids(op, ids, d, x.shape());
  return d;
}

// The values of x with the source added (in f32 for bf16) or written at ids.
static Tensor scattered(const char* op, const Tensor& x, int64_t dim, const Tensor& ids,
                        const Tensor& source, bool add) {
  INK_CHECK(source.dtype() == x.dtype(), op, ": expected a source of dtype ", x.dtype(), ", got ",
            source.dtype());
  const DType dtype = add && x.dtype() == bf16 ? f32 : x.dtype();
  const Tensor from = source.detach().to(dtype);
  Tensor y = empty(x.shape(), {dtype, x.device()});
  kernel::copy(y, x);
  kernel::scatter(y, from.array().seen_as({ids.shape(), from.strides(), from.layout().offset}), ids,
                  dim, add, op);
  return y.to(x.dtype());
}

// y = x, then y[ids[i][j]][j] += source[i][j] for dim 0, and so on.
// dx = dy, dsource = dy gathered at ids
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source) {
  check_defined("scatter_add", x, ids, source);
  if (x.dim() == 0 || (x.dim() == 1 && ids.dim() == 0))
    return as_scalar(scatter_add(as_line(x), dim, as_line(ids), as_line(source)), "scatter_add", x);
  if (fits_nowhere(ids, x, wrap_dim("scatter_add", dim, x.shape())))
    return shown_as("scatter_add", clone(x));
  const int64_t d = check_scatter("scatter_add", x, dim, ids, source.shape());
  return record("scatter_add", {x, source}, scattered("scatter_add", x, d, ids, source, true),
                [d, ids = Saved::input(ids), from = source.shape()](const Tensor& dy,
                                                                    VjpContext& g) -> Grads {
                  return {dy, g.needs(1) ? padded(gather(dy, d, *ids), from) : Tensor()};
                });
}

// Which of the ids, that choose elements of a tensor of this shape, come last among equal ones.
static Tensor last_of_equals(Tensor ids, int64_t dim, Shape shape) {
  for (int64_t i = 0; i < ids.dim(); ++i) {
    const bool repeated = i != dim && ids.strides()[i] == 0;  // then one of them tells
    if (repeated) ids = narrow(ids, i, 0, std::min<int64_t>(ids.shape()[i], 1));
    if (i != dim) shape[i] = ids.shape()[i];
  }
  Shape line = Shape::filled(ids.dim(), 1);
  line[dim] = ids.shape()[dim];
  const Tensor place = expand(view(arange(line[dim]).to(ids.device()), line), ids.shape());
  return gather(scatter(zeros(shape, place.options()), dim, ids, place), dim, ids) == place;
}

// The same with = instead of +=; of equal ids the last counts.
// dx = dy, 0 at ids;  dsource = dy gathered at ids, where they count
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& ids, const Tensor& source) {
  check_defined("scatter", x, ids, source);
  if (x.dim() == 0 || (x.dim() == 1 && ids.dim() == 0))
    return as_scalar(scatter(as_line(x), dim, as_line(ids), as_line(source)), "scatter", x);
  if (fits_nowhere(ids, x, wrap_dim("scatter", dim, x.shape())))
    return shown_as("scatter", clone(x));
  const int64_t d = check_scatter("scatter", x, dim, ids, source.shape());
  const auto vjp = [d, ids = Saved::input(ids), from = source.shape()](const Tensor& dy,
                                                                       VjpContext& g) -> Grads {
    const auto of_source = [&] {
      const Tensor last = last_of_equals(*ids, d, dy.shape());
      return padded(masked_fill(gather(dy, d, *ids), ~last, 0), from);
    };
    return {g.needs(0) ? scatter(dy, d, *ids, 0) : Tensor(), g.needs(1) ? of_source() : Tensor()};
  };
  return record("scatter", {x, source}, scattered("scatter", x, d, ids, source, false), vjp);
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& ids, const Scalar& value) {
  check_defined("scatter", x, ids);
  const Scalar number = ids.numel() > 0 ? value : 0;  // without ids nothing is written
  check_in_range("scatter", number, x.dtype());
  const Tensor source = expand(full({}, number, x.options()), ids.shape());
  return shown_as("scatter.1", scatter(x, dim, ids, source));
}

// y[i] = x[ids[i]] along a dimension.   dx = zeros, dy added at ids
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& ids) {
  check_defined("index_select", x, ids);
  INK_CHECK(ids.dim() <= 1, "index_select: expected ids of one dimension, got ", ids.shape());
  if (x.dim() == 0) {
    INK_CHECK(ids.numel() == 1, "index_select: expected one id for a scalar, got ", ids.shape());
    return as_scalar(index_select(as_line(x), dim, ids), "index_select", x);
  }
  const int64_t d = wrap_dim("index_select", dim, x.shape());
  check_ids("index_select", ids, d, x.shape());
  return gathered("index_select", x, d, spread(contiguous(ids), d, x.shape()));
}

// y[i...] = x[ids[i...]], ids below 0 counted from the end.   dx = zeros, dy added at ids
Tensor index(const Tensor& x, const Tensor& indices) {
  check_defined("index", x, indices);
  if (indices.dtype() == boolean) return index(x, std::vector<Tensor>{indices});
  INK_CHECK(x.dim() > 0, "index: a scalar has no dimension to choose from");
  check_ids("index", indices, 0, x.shape(), true);
  // n is added to ids in [-n, 0). Those below -n stay, so that the kernel reports them as they are.
  const int64_t n = x.shape()[0];
  const Tensor ids = where((indices < 0) & (indices >= -n), indices + n, indices);
  const Tensor all_ids = spread(ids, 0, x.shape());
  Shape shape = ids.shape();
  check_dims("index", ids.dim() + x.dim() - 1);
  for (int64_t d = 1; d < x.dim(); ++d) shape.push_back(x.shape()[d]);
  Tensor y = empty(all_ids.shape(), x.options());
  kernel::gather(y, x, all_ids, 0, "index");
  return record("index", {x}, Tensor(*y.array().reshaped(shape)),
                [from = x.shape(), ids = Saved::input(all_ids)](const Tensor& dy) -> Grads {
                  const Tensor rows = reshape(dy, (*ids).shape());
                  return {added_at(from, 0, *ids, rows)};
                });
}

// y[i...][c] = 1 where c = ids[i...], else 0
Tensor one_hot(const Tensor& ids, int64_t num_classes) {
  check_defined("one_hot", ids);
  if (num_classes == -1) {
    INK_CHECK(ids.numel() > 0, "one_hot: expected a number of classes, because there are no ids");
    num_classes = std::max<int64_t>(max(ids).item<int64_t>() + 1, 1);
  }
  INK_CHECK(num_classes > 0,
            "one_hot: expected a positive number of classes, or -1 for one more "
            "than the largest id, got ",
            num_classes);
  Shape shape = ids.shape();
  check_dims("one_hot", ids.dim() + 1);
  shape.push_back(num_classes);
  check_ids("one_hot", ids, ids.dim(), shape);
  Tensor y = zeros(shape, {i64, ids.device()});
  const Tensor last = unsqueeze(ids, -1);
  kernel::scatter(y, expand(ones({}, y.options()), last.shape()), last, ids.dim(), true, "one_hot");
  return y;
}

}  // namespace ink
