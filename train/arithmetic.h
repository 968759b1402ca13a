// Arithmetic: what decides the last bits of a run, besides its settings and data. A checkpoint
// records it, and a resumed run keeps it where this machine can.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autograd/base/device.h"
#include "autograd/base/dtype.h"

namespace ink {

class Fields;  // autograd/io/foreign.h
struct GemmUnit;

/// What decides the last bits of a run. On a GPU, products, threads and what the CPU's kernels were
/// built for decide nothing.
struct Arithmetic {
  static constexpr std::array kDtypes{f32, bf16, f64};

  std::string device;                   // "cpu", or the GPU's name
  std::array<std::string, 3> products;  // for kDtypes: the unit, and that for small products
  std::string built_for;                // row kernels: processor and compiler
  int64_t kernels = 0;                  // kKernelVersion
  int64_t threads = 0;                  // parts into which an op is cut (Context::threads)
  int64_t batch_parts = 0;
  int64_t part_threads = 1;  // likewise for an op of a part, where there are several parts

  /// What this build and machine have, with the context's first unit and these numbers.
  static Arithmetic here(Device device, int64_t threads, int64_t batch_parts,
                         int64_t part_threads = 1);
  /// From a field of a checkpoint's state; checked like the arguments of a command.
  static Arithmetic from_json(const Fields& fields);
  nlohmann::json to_json() const;
  /// For people: "float32 products by avx512, bfloat16 by avx512_bf16, ..., 2 threads".
  std::string text() const;

  /// The unit to begin with (Context::first_unit) so that products are as recorded, first of all
  /// those of `dtype`; null if no unit of this machine gives them.
  const GemmUnit* first_unit(DType dtype) const;
};

/// In words, what gives a run with products of `dtypes` other bits than before: "3 threads (before:
/// 2)"; empty if nothing does.
std::string changed_bits(const Arithmetic& before, const Arithmetic& now,
                         const std::vector<DType>& dtypes);

}  // namespace ink
