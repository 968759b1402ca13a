// index_put: values at places that ids or masks name, made of other ops. Ids that come twice, and
// where a mask is true, are found on the host.
#include <algorithm>
#include <unordered_map>
#include <vector>

#include "autograd/ops.h"
#include "autograd/ops/shared/check_ids.h"

namespace ink {
namespace {

// Where a mask is true: ids for each of its dimensions.
std::vector<Tensor> places_of(const Tensor& mask) {
  const auto values = mask.tolist<bool>();
  std::vector<std::vector<int64_t>> places(static_cast<size_t>(mask.dim()));
  for (int64_t i = 0; i < mask.numel(); ++i) {
    if (!values[static_cast<size_t>(i)]) continue;
    int64_t left = i;
    for (int64_t d = mask.dim() - 1; d >= 0; --d) {
      places[static_cast<size_t>(d)].push_back(left % mask.shape()[d]);
      left /= mask.shape()[d];
    }
  }
  std::vector<Tensor> ids;
  for (const auto& list : places) ids.push_back(from_vector(list).to(mask.device()));
  return ids;
}

// One tensor of ids for each of x's first dimensions, all of one shape.
std::vector<Tensor> all_ids(const Tensor& x, const std::vector<Tensor>& given) {
  std::vector<Tensor> ids;
  for (const Tensor& one : given) {
    check_defined("index_put", one);
    const int64_t d = std::ssize(ids);
    const int64_t dims = one.dtype() == boolean ? one.dim() : 1;
    INK_CHECK(dims > 0 && d + dims <= x.dim(), "index_put: more ids than the dimensions of ",
              x.shape());
    if (one.dtype() != boolean) {
      check_ids("index_put", one, d, x.shape(), true);
      const int64_t n = x.shape()[d];
      ids.push_back(where(one < 0, one + n, one));
      continue;
    }
    for (int64_t i = 0; i < dims; ++i)
      INK_CHECK(one.shape()[i] == x.shape()[d + i],
                "index_put: expected a mask whose sizes are those of ", x.shape(),
                " from dimension ", d, " on, got ", one.shape());
    for (const Tensor& place : places_of(one)) ids.push_back(place);
  }
  INK_CHECK(!ids.empty(), "index_put: expected ids or a mask, got none");
  Shape shape = ids[0].shape();
  for (const Tensor& one : ids) shape = broadcast_shapes("index_put", shape, one.shape());
  for (Tensor& one : ids) one = expand(one, shape);
  return ids;
}

// The places among rows at which each id comes for the last time.
Tensor last_ones(const Tensor& rows) {
  std::unordered_map<int64_t, int64_t> last;
  const auto values = rows.tolist<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) last[values[i]] = static_cast<int64_t>(i);
  std::vector<int64_t> places;
  for (const auto& entry : last) places.push_back(entry.second);
  std::sort(places.begin(), places.end());
  return from_vector(places).to(rows.device());
}

}  // namespace

// With x's first dimensions as one, of rows: the row at each id is the value, or has it added.
Tensor index_put(const Tensor& x, const std::vector<Tensor>& given, const Tensor& values,
                 bool accumulate) {
  check_defined("index_put", x, values);
  const std::vector<Tensor> ids = all_ids(x, given);
  Shape shape = ids[0].shape();
  Tensor row = zeros({}, {i64, x.device()});
  int64_t rows = 1;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d >= std::ssize(ids)) {
      shape.push_back(x.shape()[d]);
      continue;
    }
    rows *= x.shape()[d];
    row = row * x.shape()[d] + ids[static_cast<size_t>(d)];
  }
  row = reshape(row, {row.numel()});
  const int64_t width = rows == 0 ? 0 : x.numel() / rows;
  INK_CHECK(broadcast_shapes("index_put", shape, values.shape()) == shape,
            "index_put: expected values that broadcast to ", shape, ", got ", values.shape());
  Tensor v = reshape(expand(to(values, x.dtype()), shape), {row.numel(), width});
  const Tensor table = reshape(x, {rows, width});
  if (!accumulate) {
    const Tensor last = last_ones(row);
    row = index_select(row, 0, last);
    v = index_select(v, 0, last);
  }
  const Tensor places = expand(unsqueeze(row, 1), v.shape());
  if (accumulate)
    return shown_as("index_put", reshape(scatter_add(table, 0, places, v), x.shape()));
  const Tensor written = scatter_add(zeros_like(table), 0, places, v);
  const Tensor hit = scatter_add(zeros({rows, width}, {i64, x.device()}), 0, places,
                                 ones(v.shape(), {i64, x.device()})) != 0.0;
  return shown_as("index_put", reshape(where(hit, written, table), x.shape()));
}

}  // namespace ink
