// Ids that choose rows, classes or places: checked before a kernel follows them.
#pragma once

#include <optional>

#include "autograd/tensor.h"

namespace ink {

/// Throws "op: target 70 at position 3 is out of range for 65 classes" unless every id is in
/// [0, count) or is `ignored`. A GPU leaves that to the kernels that follow the ids.
void check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
               const char* count_name, std::optional<int64_t> ignored = {});

/// Throws "op: index 7 is out of range for dimension 1 of (2, 3)" unless every id names a place of
/// that dimension, from 0 or, with `negative`, from -(its size) on.
void check_ids(const char* op, const Tensor& ids, int64_t dim, const Shape& shape,
               bool negative = false);

}  // namespace ink
