// What mixed precision (Autocast, context.h) adds to the library: weights rounded once a step.
#pragma once

#include "autograd/tensor.h"

namespace ink {

/// x in the given dtype, outside any graph; x itself if it has it. The bf16 copy of f32 memory is
/// kept beside that memory and made again only after a write to it, whoever wrote: a weight that
/// many micro-batches, threads and tied layers read is rounded once, and then by the optimizer as
/// it writes the weight. A copy that was only recorded (replay.h) counts within that recording.
Tensor cached_cast(const Tensor& x, DType dtype);

/// That copy of x as it is, for a kernel that writes x and its copy together; undefined if there is
/// none, or if it is not current. keep_cast(x) says that such a kernel was called.
Tensor current_cast(const Tensor& x);
void keep_cast(const Tensor& x);

}  // namespace ink
