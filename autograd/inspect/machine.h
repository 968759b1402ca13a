// The peak of this machine, measured: kernels are compared with it (roofline).
#pragma once

#include <string>
#include <vector>

#include "autograd/base/device.h"
#include "autograd/base/dtype.h"

namespace ink {

/// A cache of all threads, or memory.
struct MemoryLevel {
  double size;                   ///< bytes; infinite for memory
  double read_rate, write_rate;  ///< bytes a second
};

/// The peak of all threads that parallel_for uses, together; or of a GPU.
struct Machine {
  /// CPU: of the unit that multiplies matrices of the dtype, from registers alone.
  /// GPU: a large matrix product, in the dtype given.
  double flops_per_second = 0;
  /// Of the unit that attention uses: in f32 that is the processor's vectors.
  double attention_flops_per_second = 0;
  /// CPU: a[i] += s b[i] on arrays larger than the caches.
  /// GPU: a copy.
  double bytes_per_second = 0;
  /// The caches, from the first on, and memory. Empty for a GPU, whose level is bytes_per_second.
  std::vector<MemoryLevel> levels = {};

  /// The least time in which this many bytes can be read and written, in seconds. What fits in a
  /// cache may lie there: only the rest must come from the next level.
  double seconds_to_move(double read, double written) const;
};

/// The best of a few short runs; takes about 0.5 s.
Machine measure_machine(Device device = cpu_device, DType dtype = f32);

/// FLOP/s of dense bf16 products by the data sheet of the GPU of this name; 0 if the GPU is not
/// known here. MFU (model FLOPs utilisation, Chowdhery et al. 2022) is a fraction of it.
double datasheet_flops(const std::string& name);

/// A GPU's name; or the processor's name, the number of threads and the library of its products.
std::string describe_machine(Device device);

/// What the CPU's row kernels were compiled for, and by which compiler: "x86-64-v3, g++ 12.2". In a
/// portable build it is the level that the loader picked. Their last bits depend on it.
std::string built_for();

/// The number of processor cores that this process may use, at least 1 and at most the processor
/// time of its control group. The hardware threads of a core count as one, because they share the
/// units that matrix products use.
int physical_cores();

/// Bytes that this process may use: the machine's memory, or the limit of its control group or of
/// its address space (ulimit -v), whichever is least.
int64_t usable_memory();

/// Bytes of this process that are in the machine's memory now; 0 if the system does not say.
int64_t resident_memory();

/// The processor's name by the system; "unknown" if the system does not say.
std::string processor_name();

}  // namespace ink
