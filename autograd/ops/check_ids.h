// Ids that choose rows or classes: checked before a kernel follows them.
#pragma once

#include <optional>

#include "autograd/tensor.h"

namespace ink {

/// Throws "op: target 70 at position 3 is out of range for 65 classes" unless every id is in
/// [0, count) or is `ignored`. Positions count in row-major order. Ids on a GPU are its kernel's to
/// check.
inline void check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
                      const char* count_name, std::optional<int64_t> ignored = {}) {
  INK_CHECK(ids.dtype() == i64, op, ": expected ", id_name, "s of dtype int64, got ", ids.dtype());
  if (!ids.device().is_cpu()) return;
  const Tensor flat = ids.detach().contiguous();
  const int64_t* id = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    INK_CHECK((id[i] >= 0 && id[i] < count) || id[i] == ignored, op, ": ", id_name, " ", id[i],
              " at position ", i, " is out of range for ", count, " ", count_name);
  }
}

}  // namespace ink
