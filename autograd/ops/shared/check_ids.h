// Checks of ids that choose rows, classes or places, before a kernel uses them.
#pragma once

#include <optional>
#include <string>

#include "autograd/tensor.h"

namespace ink {

/// Throws "op: target 70 at position 3 is out of range for 65 classes" unless every id is in
/// [0, count) or is `ignored`. On a GPU the kernels that use the ids check them instead. Returns
/// whether it knows that none is outside [0, count).
bool check_ids(const char* op, const char* id_name, const Tensor& ids, int64_t count,
               const char* count_name, std::optional<int64_t> ignored = {});

/// Throws "op: index 7 is out of range for dimension 1 of (2, 3)" unless every id names a place of
/// that dimension: in [0, size), or with `negative` in [-size, size).
void check_ids(const char* op, const Tensor& ids, int64_t dim, const Shape& shape,
               bool negative = false);

/// What an error adds if targets fit logits (N, V, ...): PyTorch takes classes from dimension 1.
std::string classes_hint(const Shape& logits, const Shape& targets);

}  // namespace ink
