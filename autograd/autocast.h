// Mixed precision: Autocast, and bf16 copies of weights, rounded once a step.
#pragma once

#include "autograd/base/context.h"
#include "autograd/memory/array.h"

namespace ink {

/// Mixed precision: while it lives, linear, gelu_linear, mlp and linear_cross_entropy round f32
/// operands to bf16, and layer_norm and rms_norm give bf16 for f32. Their sums are f32, and so are
/// gradients of f32 tensors. So weights, moments, losses and the residual stream stay f32, and
/// activations between two linear layers are bf16. Every other op computes in the dtypes it is
/// given (f32 + bf16 is f32). Only the forward needs the guard. Autocast(f32) switches an outer one
/// off. Micikevicius et al. 2018.
struct Autocast : FieldGuard<DType> {
  [[nodiscard]] explicit Autocast(DType dtype = DType::bf16)
      : FieldGuard(&Context::autocast, dtype) {
    INK_CHECK(dtype == DType::bf16 || dtype == DType::f32,
              "autocast: expected bfloat16 (or float32: none), got ", dtype);
  }
};

/// The dtype to which the ops that Autocast lists round an operand of this dtype.
inline DType autocast(DType dtype) { return dtype == DType::f32 ? context().autocast : dtype; }

/// x in the given dtype; x itself if it has that dtype. The bf16 copy of f32 memory is kept with
/// the memory and made again only after a write to it. So a weight that many micro-batches, threads
/// and tied layers read is rounded once, and from then on by the optimizer as it writes the weight.
/// The copy covers the whole memory, and all views share it; but a view of a part is converted
/// alone, each time, if there is no copy yet. A copy that was made in a capture (replay.h) is
/// current within that capture alone. Memory from from_blob gets no cached copy. After a later
/// write through a pointer that mutable_data() returned, call Tensor::bump_version().
Array cached_cast(const Array& x, DType dtype);

/// The cached copy of x, for a kernel that writes x and the copy together; undefined if there is
/// none or it is out of date. keep_cast(x) says that x and its copy agree.
Array current_cast(const Array& x);
void keep_cast(const Array& x);
/// The address of the cached copy, current or not; null if there is none.
const void* cast_address(const Array& x);

}  // namespace ink
