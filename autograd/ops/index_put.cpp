// index_put, index, masked_select, nonzero: places that ids or masks name. They are made of other
// ops.
#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/kernels/lines.h"
#include "autograd/more_ops.h"
#include "autograd/ops/shared/check_ids.h"

namespace ink {
namespace {

// Where a mask is true: ids for each of its dimensions. A stable sort moves the places to the
// front.
std::vector<Tensor> places_on_gpu(const Tensor& mask) {
  const int64_t n = mask.numel(), count = sum(mask).item<int64_t>();
  const Tensor places = narrow(argsort(reshape(mask, {n}), 0, true), 0, 0, count);
  if (mask.dim() == 1) return {places};
  std::vector<Tensor> ids;
  for (int64_t d = 0; d < mask.dim(); ++d) {
    Shape line = Shape::filled(mask.dim(), 1);
    line[d] = mask.shape()[d];
    const Tensor id = view(arange(line[d], {i64, mask.device()}), line);
    ids.push_back(index_select(reshape(expand(id, mask.shape()), {n}), 0, places));
  }
  return ids;
}

// The same on any device. The CPU walks over the mask, which takes less time than a sort.
std::vector<Tensor> places_of(const Tensor& mask) {
  if (!mask.device().is_cpu() && mask.numel() > 0) return places_on_gpu(mask);
  const Tensor host = mask.contiguous();
  const int64_t dims = host.dim(), n = host.shape().back(), count = sum(host).item<int64_t>();
  std::vector<Tensor> ids;
  std::vector<int64_t*> out;
  for (int64_t d = 0; d < dims; ++d) {
    ids.push_back(empty({count + 1}, {i64, cpu_device}));  // the loop below writes one too many
    out.push_back(ids.back().mutable_data<int64_t>());
  }
  Shape at = Shape::filled(dims, 0);
  const bool* set = host.data<bool>();
  for (int64_t left = host.numel(); left > 0; left -= n, set += n) {
    int64_t* last = out.back();
    for (int64_t i = 0; i < n; ++i) {  // without branches, which could not be predicted
      *last = i;
      last += set[i];
    }
    const int64_t found = last - std::exchange(out.back(), last);
    for (int64_t d = 0; d + 1 < dims; ++d)
      out[static_cast<size_t>(d)] = std::fill_n(out[static_cast<size_t>(d)], found, at[d]);
    for (int64_t d = dims - 2; d >= 0 && ++at[d] == host.shape()[d]; --d) at[d] = 0;
  }
  for (Tensor& one : ids) one = narrow(one, 0, 0, count);
  return ids;
}

// Ids of dimension d. On a GPU a kernel looks them up in a table of all, which notes one that is
// out of range: seen as one number, the ids of several dimensions may name another row.
Tensor checked_ids(const char* op, const Tensor& given, int64_t d, const Shape& shape) {
  check_ids(op, given, d, shape, true);
  const int64_t n = shape[d];  // ids below -n stay as they are
  const Tensor ids = where((given < 0) & (given >= -n), given + n, given);
  if (ids.device().is_cpu() || shape.numel() == 0 || ids.numel() == 0) return ids;
  Shape line = Shape::filled(shape.size(), 1);
  line[d] = n;
  const Tensor all = expand(view(arange(n, {i64, ids.device()}), line), shape);
  line[d] = ids.numel();
  Tensor found = empty(line, ids.options());
  kernel::gather(found, all, reshape(ids, line), d, op);
  return reshape(found, ids.shape());
}

bool is_mask(const Tensor& one) { return one.defined() && one.dtype() == boolean; }

bool has_scalar_mask(const std::vector<Tensor>& given) {
  return std::any_of(given.begin(), given.end(),
                     [](const Tensor& one) { return is_mask(one) && one.dim() == 0; });
}

// As in PyTorch, a mask without dimensions is one of a new dimension of size 1.
std::pair<Tensor, std::vector<Tensor>> with_lines(Tensor x, std::vector<Tensor> given) {
  int64_t d = 0;
  for (Tensor& one : given) {
    if (is_mask(one) && one.dim() == 0)
      x = unsqueeze(x, std::min(d, x.dim())), one = reshape(one, {1});
    d += is_mask(one) ? one.dim() : 1;
  }
  return {x, given};
}

// The ids for each dimension of x, undefined for one that is not indexed. All ids have one shape.
std::vector<Tensor> all_ids(const char* op, const Tensor& x, const std::vector<Tensor>& given) {
  std::vector<Tensor> ids;
  Shape shape;
  for (const Tensor& one : given) {
    const int64_t d = std::ssize(ids);
    const int64_t dims = is_mask(one) ? one.dim() : 1;
    INK_CHECK(d + dims <= x.dim(), op, ": more ids than the dimensions of ", x.shape());
    if (!one.defined()) {
      ids.emplace_back();
    } else if (!is_mask(one)) {
      ids.push_back(checked_ids(op, one, d, x.shape()));
    } else {
      for (int64_t i = 0; i < dims; ++i)
        INK_CHECK(one.shape()[i] == x.shape()[d + i], op,
                  ": expected a mask whose sizes are those of ", x.shape(), " from dimension ", d,
                  " on, got ", one.shape());
      for (const Tensor& place : places_of(one)) ids.push_back(place);
    }
  }
  for (const Tensor& one : ids)
    if (one.defined()) shape = broadcast_shapes(op, shape, one.shape());
  for (Tensor& one : ids)
    if (one.defined()) one = expand(one, shape);
  return ids;
}

Shape inverse(const Shape& order) {
  Shape back = order;
  for (int64_t d = 0; d < order.size(); ++d) back[order[d]] = d;
  return back;
}

// values expanded to a shape.
Tensor expand_to(const char* op, const Tensor& values, const Shape& shape) {
  INK_CHECK(broadcast_shapes(op, shape, values.shape()) == shape, op,
            ": expected values that broadcast to ", shape, ", got ", values.shape());
  return expand(values, shape);
}

// How ids index x; `all` has the ids of each dimension, undefined for one that is not indexed.
struct Chosen {
  std::vector<Tensor> ids;
  Shape order;         // x's dimensions, the indexed ones in front
  Shape sizes, rest;   // the sizes of the indexed ones, and of the others
  int64_t before = 0;  // how many of the others come before the ids' dimensions in x[ids]

  Chosen(const Tensor& x, const std::vector<Tensor>& all) {
    Shape others;
    for (int64_t d = 0; d < x.dim(); ++d) {
      const bool chosen = d < std::ssize(all) && all[static_cast<size_t>(d)].defined();
      if (chosen) ids.push_back(all[static_cast<size_t>(d)]);
      (chosen ? order : others).push_back(d);
      (chosen ? sizes : rest).push_back(x.shape()[d]);
    }
    if (!ids.empty() && order.back() - order[0] == order.size() - 1) before = order[0];
    for (int64_t d : others) order.push_back(d);
  }
  // For each dimension of x[ids], its place if those of the ids come first.
  Shape places() const {
    Shape list;
    const int64_t n = ids[0].dim();
    for (int64_t d = 0; d < n; ++d) list.push_back(before + d);
    for (int64_t d = 0; d < rest.size(); ++d) list.push_back(d < before ? d : n + d);
    return list;
  }
  // The shape of x[ids].
  Shape shape() const {
    Shape sizes_first = ids[0].shape(), result;
    for (int64_t n : rest) sizes_first.push_back(n);
    result = sizes_first;
    for (int64_t d = 0; d < result.size(); ++d) result[places()[d]] = sizes_first[d];
    return result;
  }
  Tensor ids_first(const Tensor& y) const { return permute(y, places()); }
};

// The row numbers that ids name, if dimensions of these sizes are seen as one.
Tensor rows_of(const std::vector<Tensor>& ids, const Shape& sizes) {
  Tensor row = ids[0];
  for (int64_t d = 1; d < sizes.size(); ++d) row = row * sizes[d] + ids[static_cast<size_t>(d)];
  return row;
}

}  // namespace

// Sees x's first dimensions as one dimension of rows. The row at each id is set to the value, or
// the value is added to it.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& given, const Tensor& values,
                 bool accumulate) {
  check_defined("index_put", x, values);
  INK_CHECK(values.dtype() == x.dtype(), "index_put: expected values of ", x.dtype(), ", got ",
            values.dtype());
  if (has_scalar_mask(given)) {
    const auto [y, ids] = with_lines(x, given);
    return shown_as("index_put", reshape(index_put(y, ids, values, accumulate), x.shape()));
  }
  const std::vector<Tensor> all = all_ids("index_put", x, given);
  const Chosen by(x, all);
  INK_CHECK(!by.ids.empty(), "index_put: expected ids or a mask, got none");
  if (by.ids.size() < all.size()) {  // moves the indexed dimensions to the front
    const Tensor put =
        index_put(permute(x, by.order), by.ids,
                  by.ids_first(expand_to("index_put", values, by.shape())), accumulate);
    return shown_as("index_put", permute(put, inverse(by.order)));
  }
  const std::vector<Tensor>& ids = by.ids;
  const int64_t rows = by.sizes.numel(), width = rows == 0 ? 0 : x.numel() / rows;
  const Shape chosen{ids[0].numel(), width};
  const Tensor row = expand(reshape(rows_of(ids, by.sizes), {chosen[0], 1}), chosen);
  const Tensor v = reshape(expand_to("index_put", values, by.shape()), chosen);
  const Tensor table = reshape(x, {rows, width});
  const Tensor y = accumulate ? scatter_add(table, 0, row, v) : scatter(table, 0, row, v);
  return shown_as("index_put", reshape(y, x.shape()));
}

// Moves the indexed dimensions to the front, sees them as one, and takes rows of that. If they are
// adjacent in x, the ids' dimensions move back to their place.
Tensor index(const Tensor& x, const std::vector<Tensor>& given) {
  check_defined("index", x);
  if (has_scalar_mask(given)) {
    const auto [y, ids] = with_lines(x, given);
    return index(y, ids);
  }
  const Chosen by(x, all_ids("index", x, given));
  INK_CHECK(!by.ids.empty(), "index: expected ids or a mask, got none");
  Shape table = by.rest, shape = by.ids[0].shape();
  table.insert(0, by.sizes.numel());
  check_dims("index", shape.size() + by.rest.size());
  for (int64_t n : by.rest) shape.push_back(n);
  const Tensor row = reshape(rows_of(by.ids, by.sizes), {by.ids[0].numel()});
  const Tensor y = reshape(index_select(reshape(permute(x, by.order), table), 0, row), shape);
  return shown_as("index", by.before > 0 ? permute(y, inverse(by.places())) : y);
}

Tensor nonzero(const Tensor& x) {
  check_defined("nonzero", x);
  const NoGrad no_grad;
  const Tensor mask = x != 0;
  if (x.dim() == 0) return zeros({mask.item<bool>() ? 1 : 0, 0}, {i64, x.device()});
  return stack(places_of(mask), 1);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_defined("masked_select", x, mask);
  INK_CHECK(mask.dtype() == boolean, "masked_select: expected a bool mask, got ", mask.dtype());
  const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  const int64_t n = shape.numel();
  const Tensor ids = places_of(reshape(expand(mask, shape), {n}))[0];
  return shown_as("masked_select", index_select(reshape(expand(x, shape), {n}), 0, ids));
}

}  // namespace ink
