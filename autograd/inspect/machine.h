// What this machine can do at best, measured: the roof that kernels are held against.
#pragma once

#include <string>

#include "autograd/base/device.h"
#include "autograd/base/dtype.h"

namespace ink {

/// Of all threads that parallel_for uses, together; or of a GPU.
struct Machine {
  /// CPU: f32 fused multiply-adds from registers, two FLOPs each.
  /// GPU: a large product of matrices, of the dtype that was asked for.
  double flops_per_second = 0;
  /// CPU: a[i] += s b[i] on arrays that no cache holds.
  /// GPU: a copy.
  double bytes_per_second = 0;
};

/// The best of a few short runs: 0.3 s or so.
Machine measure_machine(Device device = cpu_device, DType dtype = f32);

/// FLOP/s of dense bf16 products by the data sheet of the GPU of this name, which MFU (model FLOPs
/// utilisation, Chowdhery et al. 2022) is a fraction of; 0 where it is not known here.
double datasheet_flops(const std::string& name);

/// A GPU's name; or the processor's, how many threads use it, and what its products run on.
std::string describe_machine(Device device);

/// Processor cores that this process may run on, 1 or more: no more than the time that its control
/// group is given. The hardware threads of a core count as one, because they share the units that
/// products keep busy.
int physical_cores();

/// Bytes that this process may use: the machine's memory, or the limit of its control group or of
/// its address space (ulimit -v), whichever is least.
int64_t usable_memory();

/// The processor's name as the system tells it; "unknown" if it does not.
std::string processor_name();

}  // namespace ink
