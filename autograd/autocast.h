// What mixed precision (Autocast, base/context.h) adds to the library: weights rounded once a step.
#pragma once

#include "autograd/memory/array.h"

namespace ink {

/// x in the given dtype; x itself if it has it. The bf16 copy of f32 memory is kept with the memory
/// and made again only after a write to it. So a weight that many micro-batches, threads and tied
/// layers read is rounded once, and then by the optimizer as it writes the weight. A copy that was
/// only captured (replay.h) is current within that capture alone. Nothing is kept of somebody
/// else's memory (from_blob). Whoever writes through a pointer that mutable_data() gave before
/// calls Tensor::bump_version() afterwards.
Array cached_cast(const Array& x, DType dtype);

/// That copy of x as it is, for a kernel that writes x and its copy together; undefined if there is
/// none, or if it is not current. keep_cast(x) says that x and its copy agree.
Array current_cast(const Array& x);
void keep_cast(const Array& x);
/// Where that copy lies, current or not; null if there is none.
const void* cast_address(const Array& x);

}  // namespace ink
