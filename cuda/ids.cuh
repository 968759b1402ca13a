// Ids that choose rows or classes, checked by the kernels that follow them: the twin of
// autograd/ops/check_ids.h. The host hears of a bad one when it next waits for the device.
#pragma once

#include "cuda/launch.cuh"

namespace ink::cuda {

/// Notes the first id outside [0, count). The words are those of the error, and the host's alone.
struct IdCheck {
  BadId* bad;
  const char *op, *id_name;
  int64_t count;
  const char* count_name;

  IdCheck(const char* op_, const char* id_name_, int64_t count_, const char* count_name_)
      : bad(bad_id()), op(op_), id_name(id_name_), count(count_), count_name(count_name_) {}

  /// May the kernel follow it? Positions count in row-major order.
  __device__ bool operator()(int64_t id, int64_t position) const {
    if (id >= 0 && id < count) return true;
    if (atomicAdd(&bad->found, 1) == 0) {
      bad->op = op;
      bad->id_name = id_name;
      bad->count_name = count_name;
      bad->id = id;
      bad->position = position;
      bad->count = count;
    }
    return false;
  }
};

}  // namespace ink::cuda
