#include "autograd/ops/check_ids.h"

#include "autograd/kernels.h"

namespace ink {

namespace cpu {

// Where all are in range, as nearly always, their least and largest say so without a copy.
void check_ids(const Array& ids, const IdRange& range) {
  if (ids.numel() == 0) return;
  Array extreme = Array::empty(Shape::filled(ids.dim(), 1), ids.dtype(), ids.device());
  reduce(extreme, ids, ReduceOp::min);
  const int64_t least = *extreme.data<int64_t>();
  reduce(extreme, ids, ReduceOp::max);
  if (least >= range.low && *extreme.data<int64_t>() < range.high) return;
  const Array flat = contiguous(ids);
  const int64_t* id = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const bool fits = (id[i] >= range.low && id[i] < range.high) || id[i] == range.ignored;
    if (!fits) range.refuse(id[i], i);
  }
}

}  // namespace cpu

void check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
               const char* count_name, std::optional<int64_t> ignored) {
  INK_CHECK(ids.dtype() == i64, op, ": expected ", id_name, "s of dtype int64, got ", ids.dtype());
  const auto refuse = [=](int64_t id, int64_t position) {
    detail::fail({op, ": ", id_name, " ", id, " at position ", position, " is out of range for ",
                  count, " ", count_name});
  };
  kernel::check_ids(ids, IdRange{0, count, ignored, refuse});
}

void check_ids(const char* op, const Tensor& ids, int64_t dim, const Shape& shape, bool negative) {
  INK_CHECK(ids.dtype() == i64, op, ": expected int64 ids, got ", ids.dtype());
  const auto refuse = [=](int64_t id, int64_t) {
    detail::fail({op, ": index ", id, " is out of range for dimension ", dim, " of ", shape});
  };
  kernel::check_ids(ids, IdRange{negative ? -shape[dim] : 0, shape[dim], {}, refuse});
}

}  // namespace ink
