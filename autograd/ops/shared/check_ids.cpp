#include "autograd/ops/shared/check_ids.h"

#include "autograd/kernels/copy.h"
#include "autograd/kernels/reduce.h"

namespace ink {
namespace {

// Calls refuse(id, position) for the first id that is neither in [low, high) nor `ignored`.
// Positions count in row-major order.
template <class Refuse>
void check(const Array& ids, int64_t low, int64_t high, std::optional<int64_t> ignored,
           const Refuse& refuse) {
  if (!ids.device().is_cpu() || ids.numel() == 0) return;
  // Nearly always all are in range. Then their least and their largest show it without a copy.
  Array extreme = Array::empty(Shape::filled(ids.dim(), 1), i64);
  kernel::reduce(extreme, ids, ReduceOp::min);
  const int64_t least = *extreme.data<int64_t>();
  kernel::reduce(extreme, ids, ReduceOp::max);
  if (least >= low && *extreme.data<int64_t>() < high) return;
  const Array flat = contiguous(ids);
  const int64_t* id = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const bool fits = (id[i] >= low && id[i] < high) || id[i] == ignored;
    if (!fits) refuse(id[i], i);
  }
}

}  // namespace

void check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
               const char* count_name, std::optional<int64_t> ignored) {
  INK_CHECK(ids.dtype() == i64, op, ": expected ", id_name, "s of dtype int64, got ", ids.dtype());
  check(ids, 0, count, ignored, [&](int64_t id, int64_t position) {
    detail::fail({op, ": ", id_name, " ", id, " at position ", position, " is out of range for ",
                  count, " ", count_name});
  });
}

void check_ids(const char* op, const Tensor& ids, int64_t dim, const Shape& shape, bool negative) {
  INK_CHECK(ids.dtype() == i64, op, ": expected int64 ids, got ", ids.dtype());
  check(ids, negative ? -shape[dim] : 0, shape[dim], {}, [&](int64_t id, int64_t) {
    detail::fail({op, ": index ", id, " is out of range for dimension ", dim, " of ", shape});
  });
}

}  // namespace ink
