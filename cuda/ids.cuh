// Faults: invalid input that a kernel meets. The kernel skips it and records a fault. The host
// throws the first fault when it next waits for the device. Here are those of ids: the twin of
// autograd/ops/shared/check_ids.cpp.
#pragma once

#include "autograd/base/check.h"
#include "autograd/base/shape.h"
#include "cuda/launch.cuh"

namespace ink::cuda {

/// Records a fault, unless there is one already. to: fault_cell().
__device__ inline void note(Fault* to, Fault fault) {
  if (atomicAdd(&to->found, 1) != 0) return;
  fault.found = 1;
  *to = fault;
}

/// Records a fault for the first id outside [0, count).
class IdCheck {
 public:
  /// "embedding: id 7 at position 2 is out of range for 5 rows".
  IdCheck(const char* op, const char* id_name, int64_t count, const char* count_name)
      : to_(fault_cell()), count_(count) {
    fault_ = {.op = op, .name = id_name, .of = count_name, .sizes = {count}};
    fault_.words = [](const Fault& f) {
      return ink::detail::joined({f.op, ": ", f.name, ' ', f.value, " at position ", f.position,
                                  " is out of range for ", f.sizes[0], ' ', f.of});
    };
  }
  /// "gather: index 7 is out of range for dimension 1 of (2, 3)".
  IdCheck(const char* op, int64_t dim, const Shape& sizes) : to_(fault_cell()), count_(sizes[dim]) {
    fault_ = {.op = op, .dim = dim, .sizes = sizes};
    fault_.words = [](const Fault& f) {
      return ink::detail::joined(
          {f.op, ": index ", f.value, " is out of range for dimension ", f.dim, " of ", f.sizes});
    };
  }

  /// May the kernel use this id? Positions count in row-major order.
  __device__ bool operator()(int64_t id, int64_t position = 0) const {
    if (id >= 0 && id < count_) return true;
    Fault fault = fault_;
    fault.value = id;
    fault.position = position;
    note(to_, fault);
    return false;
  }

 private:
  Fault* to_;
  int64_t count_;
  Fault fault_;
};

}  // namespace ink::cuda
