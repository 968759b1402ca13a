// What this machine can do at best, measured: the roof that kernels are held against.
#pragma once

#include <string>

namespace ink {

/// Of all threads that parallel_for uses, together.
struct Machine {
  double flops_per_second = 0;  // f32 fused multiply-adds from registers, two FLOPs each
  double bytes_per_second = 0;  // a[i] += s b[i] on arrays that no cache holds
};

/// The best of a few short runs: 0.3 s or so.
Machine measure_machine();

/// The processor's name as the system tells it; "unknown" if it does not.
std::string processor_name();

}  // namespace ink
