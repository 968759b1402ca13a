// INK_DEVICE marks a scalar function that kernels of both devices call.
#pragma once

#ifdef __CUDACC__
#define INK_DEVICE __host__ __device__
#else
#define INK_DEVICE [[gnu::always_inline]]  // otherwise the loop around it may stay scalar
#endif
