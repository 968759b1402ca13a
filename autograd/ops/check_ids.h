// Ids that choose rows, classes or places: checked before a kernel follows them (check_ids.cpp).
#pragma once

#include <functional>
#include <optional>

#include "autograd/tensor.h"

namespace ink {

/// What ids may be, low <= id < high or `ignored`. refuse throws, and is called for the first one
/// that is something else; positions count in row-major order.
struct IdRange {
  int64_t low, high;
  std::optional<int64_t> ignored;
  std::function<void(int64_t id, int64_t position)> refuse;
};

/// Throws "op: target 70 at position 3 is out of range for 65 classes" unless every id is in
/// [0, count) or is `ignored`.
void check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
               const char* count_name, std::optional<int64_t> ignored = {});

/// Throws "op: index 7 is out of range for dimension 1 of (2, 3)" unless every id names a place of
/// that dimension, from 0 or, with `negative`, from -(its size) on.
void check_ids(const char* op, const Tensor& ids, int64_t dim, const Shape& shape,
               bool negative = false);

}  // namespace ink
