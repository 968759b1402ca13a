// The version of the kernels' bits.
#pragma once

namespace ink {

/// A commit that changes the last bits of results on any processor raises it. A run that is resumed
/// with kernels of another version says so (train/arithmetic.h).
inline constexpr int kKernelVersion = 15;

}  // namespace ink
