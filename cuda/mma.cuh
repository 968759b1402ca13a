// Products of tiles on tensor cores, and asynchronous copies to shared memory: PTX of sm_80 and
// later. The emulator computes PTX's definition (cuda/emulator/mma.h).
//
// A warp's tiles are spread over its lanes. With g = lane / 4 and t = lane % 4, a lane holds
//   of a (16 x 16)  a[0]: columns 2t, 2t + 1 of row g;    a[1]: of row g + 8;
//                   a[2], a[3]: the same rows, columns 2t + 8, 2t + 9
//   of b (16 x 8)   b[0]: rows 2t, 2t + 1 of column g;    b[1]: rows 2t + 8, 2t + 9
//   of d (16 x 8)   d[0], d[1]: columns 2t, 2t + 1 of row g;    d[2], d[3]: of row g + 8
// Two bf16 share 32 bits, the first in the lower half. (PTX ISA, "Matrix fragments for mma.m16n8k16
// with floating point type".)
#pragma once

#include <bit>

#include "autograd/base/dtype.h"
#include "cuda/launch.cuh"
#ifdef INKLING_EMULATED
#include "cuda/emulator/mma.h"
#endif

namespace ink::cuda {

/// The two bf16 of a pair.
__device__ inline float first_of(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
__device__ inline float second_of(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}

#ifndef INKLING_EMULATED
/// d += a b.
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four 8 x 8 matrices from shared memory: lane 8 m + i names row i of matrix m, 16 bytes that are
/// aligned to 16. r[m]: elements 2t, 2t + 1 of row g of matrix m.
__device__ inline void load_matrices(uint32_t (&r)[4], const bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
}
/// The same with each matrix transposed: r[m]: elements 2t, 2t + 1 of column g of matrix m.
__device__ inline void load_transposed(uint32_t (&r)[4], const bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
}

/// Starts a copy of 8 or 16 bytes from global to shared memory, both aligned to the size; copies
/// zeros if the source is not `there`. end_copies() makes a group of the copies that this thread
/// started.
template <int kBytes>
__device__ inline void start_copy(void* to, const void* from, bool there) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = there ? kBytes : 0;
  if constexpr (kBytes == 16) {  // past the L1 cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from),
                 "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(from),
                 "n"(kBytes), "r"(bytes));
  }
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all groups of this thread but the kLeft latest. Other threads see the copies after a
/// barrier.
template <int kLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

/// Two floats as bf16, rounded to nearest even.
__device__ inline uint32_t pack_bf16(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// 2^x within 2 ulp; results below 2^-126 are 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

}  // namespace ink::cuda
