#include "autograd/ops/shared/check_ids.h"

#include <atomic>
#include <type_traits>

#include "autograd/kernels/copy.h"
#include "autograd/loops/strided_loop.h"

namespace ink {

// Calls refuse(id, position) for the first id that is neither in [low, high) nor `ignored`.
// Positions count in row-major order. Returns whether it knows that all are in [low, high).
template <class Refuse>
static bool check(const Array& ids, int64_t low, int64_t high, std::optional<int64_t> ignored,
                  const Refuse& refuse) {
  if (!ids.device().is_cpu() || ids.numel() == 0) return ids.numel() == 0;
  std::atomic<bool> all = true;  // nearly always they are, and one pass without a copy shows it
  const StridedLoop<1> loop(ids.shape(), {&ids});
  const auto first = static_cast<uint64_t>(low), count = static_cast<uint64_t>(high) - first;
  const auto check_row = [&](const int64_t* id, int64_t n, auto step) {
    int64_t outside = 0;
    for (int64_t i = 0; i < n; ++i) outside += static_cast<uint64_t>(id[i * step]) - first >= count;
    if (outside > 0) all = false;
  };
  loop.for_each_row(
      [&, data = ids.data<int64_t>(), step = loop.inner_stride(0)](auto at, int64_t n) {
        if (step == 1) return check_row(data + at[0], n, std::integral_constant<int64_t, 1>());
        check_row(data + at[0], n, step);
      });
  if (all) return true;
  const Array flat = contiguous(ids);
  const int64_t* id = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const bool fits = (id[i] >= low && id[i] < high) || id[i] == ignored;
    if (!fits) refuse(id[i], i);
  }
  return false;
}

bool check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
               const char* count_name, std::optional<int64_t> ignored) {
  INK_CHECK(ids.dtype() == i64, op, ": expected ", id_name, "s of dtype int64, got ", ids.dtype());
  return check(ids, 0, count, ignored, [&](int64_t id, int64_t position) {
    detail::fail({op, ": ", id_name, " ", id, " at position ", position, " is out of range for ",
                  count, " ", count_name});
  });
}

std::string classes_hint(const Shape& logits, const Shape& targets) {
  if (targets == logits) return "; for probabilities, take -sum(p * log_softmax(x), {-1})";
  if (logits.size() < 3) return "";
  Shape others = logits;
  others.erase(1);
  return targets == others ? "; if the classes are in dimension 1, pass {.dim = 1}" : "";
}

void check_ids(const char* op, const Tensor& ids, int64_t dim, const Shape& shape, bool negative) {
  INK_CHECK(ids.dtype() == i64, op, ": expected int64 ids, got ", ids.dtype());
  check(ids, negative ? -shape[dim] : 0, shape[dim], {}, [&](int64_t id, int64_t) {
    detail::fail({op, ": index ", id, " is out of range for dimension ", dim, " of ", shape});
  });
}

}  // namespace ink
