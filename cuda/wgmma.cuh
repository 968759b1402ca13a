// Products of a warpgroup, and barriers between the warps of a block: PTX of sm_90a. The emulator
// computes PTX's definition (cuda/emulator/wgmma.h).
//
// A warpgroup is four warps, the first of which has a number divisible by four. It multiplies 64
// rows: its warp w holds rows 16 w ... 16 w + 15, whose elements of a and d are spread over the
// lanes as mma.cuh says. A matrix in shared memory is a stack of panels of 64 columns, whose rows
// of 128 bytes follow one another. Chunk c (16 bytes) of row r lies in the place of chunk c ^ r % 8
// ("128-byte swizzling"). A panel starts at a multiple of 1024 bytes. (PTX ISA, "Asynchronous
// warpgroup level matrix instructions".)
#pragma once

#include "cuda/mma.cuh"
#ifdef INKLING_EMULATED
#include "cuda/emulator/wgmma.h"
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define INKLING_SM90(...) asm volatile(__VA_ARGS__)
#else
#define INKLING_SM90(...)  // the host's pass: the kernels are compiled for 9.0a alone
#endif

namespace ink::cuda {

inline constexpr int kWarpgroup = 128;

#ifndef INKLING_EMULATED
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

/// A matrix in shared memory, as products find it: PTX's matrix descriptor.
struct SharedMatrix {
  uint64_t bits;

  /// By rows: the product's inner dimension runs along rows; the next 16 columns are 32 bytes on.
  /// By columns: it runs from row to row; the next 16 rows are 2048 bytes on. panel: the bytes from
  /// one panel to the next.
  __device__ SharedMatrix(const bfloat16* at, int panel = 0)
      : bits((shared_address(at) & 0x3ffff) >> 4 | static_cast<uint64_t>(panel / 16) << 16 |
             uint64_t{1024 / 16} << 32 | uint64_t{1} << 62) {}
  __device__ SharedMatrix operator+(int bytes) const {
    SharedMatrix moved = *this;
    moved.bits += static_cast<uint64_t>(bytes / 16);
    return moved;
  }
};

#ifndef INKLING_EMULATED
// The operands of the instructions, of 64 and of 128 columns.
#define INKLING_SUMS_64                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
  "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},"
#define INKLING_SUMS_128                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
  "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "  \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "  \
  "%62, %63},"
#define INKLING_FOUR(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define INKLING_16(i) INKLING_FOUR(i), INKLING_FOUR(i + 1), INKLING_FOUR(i + 2), INKLING_FOUR(i + 3)
#define INKLING_WGMMA_64(a, keep, ...)                                                       \
  INKLING_SM90("{\n.reg .pred p;\nsetp.ne.b32 p, " keep                                      \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " INKLING_SUMS_64 a "}" \
               : INKLING_16(0), INKLING_16(4)                                                \
               : __VA_ARGS__)
#define INKLING_WGMMA_128(a, keep, ...)                                                        \
  INKLING_SM90("{\n.reg .pred p;\nsetp.ne.b32 p, " keep                                        \
               ", 0;\n"                                                                        \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " INKLING_SUMS_128 a "}" \
               : INKLING_16(0), INKLING_16(4), INKLING_16(8), INKLING_16(12)                   \
               : __VA_ARGS__)

/// d (64 x kN) = keep d + a b, of an inner dimension of 16. a: registers of each warp, or by rows
/// in shared memory. b: the transpose of a matrix in shared memory by rows, or (kColumns) the
/// matrix by columns. It happens later: d may not be touched, and a and b may not change, before
/// wait_for_products().
template <int kN, bool kColumns>
__device__ inline void start_product(float (&d)[kN / 8][4], const uint32_t (&a)[4], SharedMatrix b,
                                     bool keep) {
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 64) {
    INKLING_WGMMA_64("{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n", "%37", "r"(a[0]), "r"(a[1]),
                     "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(int{keep}), "n"(int{kColumns}));
  } else {
    INKLING_WGMMA_128("{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n", "%69", "r"(a[0]), "r"(a[1]),
                      "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(int{keep}), "n"(int{kColumns}));
  }
}
template <int kN, bool kColumns>
__device__ inline void start_product(float (&d)[kN / 8][4], SharedMatrix a, SharedMatrix b,
                                     bool keep) {
  static_assert(kN == 64 || kN == 128);
  if constexpr (kN == 64) {
    INKLING_WGMMA_64("%32, %33, p, 1, 1, 0, %35;\n", "%34", "l"(a.bits), "l"(b.bits),
                     "r"(int{keep}), "n"(int{kColumns}));
  } else {
    INKLING_WGMMA_128("%64, %65, p, 1, 1, 0, %67;\n", "%66", "l"(a.bits), "l"(b.bits),
                      "r"(int{keep}), "n"(int{kColumns}));
  }
}

/// Tells the compiler that d changed here.
template <int kWide>
__device__ inline void settle(float (&d)[kWide][4]) {
#pragma unroll
  for (int n = 0; n < kWide; ++n)
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}

/// Comes between the warp's own use of registers and the first product that uses them. d: the sums
/// that products will add to.
template <class... Sums>
__device__ inline void before_products(Sums&... d) {
  (settle(d), ...);
  INKLING_SM90("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Makes a group of the products that were started.
__device__ inline void end_products() {
  INKLING_SM90("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all groups but the kLeft latest. settle() must name their sums before they are used.
template <int kLeft>
__device__ inline void wait_for_products() {
  INKLING_SM90("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// Gives each thread of the warpgroup so many registers; kMore: more than it had.
template <int kCount, bool kMore>
__device__ inline void set_registers() {
  if constexpr (kMore) {
    INKLING_SM90("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
  } else {
    INKLING_SM90("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
  }
}

// ---- barriers

/// Makes what this thread wrote to shared memory, copies that it waited for included, visible to
/// products that start after a barrier.
__device__ inline void publish_to_products() {
  INKLING_SM90("fence.proxy.async.shared::cta;" ::: "memory");
}

/// In shared memory: a phase ends when `arrivals` threads have arrived, and the next begins. The
/// first phase has parity 0.
class PhaseBarrier {
 public:
  /// By one thread, before a __syncthreads().
  __device__ void start(unsigned arrivals) {
    INKLING_SM90("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&state_)), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    INKLING_SM90("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&state_)) : "memory");
  }
  /// Has the phase of this parity ended?
  __device__ bool ended(unsigned parity) {
    uint32_t ended = 0;
    INKLING_SM90(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(ended)
        : "r"(shared_address(&state_)), "r"(parity)
        : "memory");
    return ended != 0;
  }
  /// Waits until the phase of this parity has ended.
  __device__ void wait(unsigned parity) {
    INKLING_SM90(
        "{\n.reg .pred p;\nagain:\n"
        "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
        "@!p bra again;\n}" ::"r"(shared_address(&state_)),
        "r"(parity)
        : "memory");
  }

 private:
  uint64_t state_;
};

/// Barrier `number` (1 ... 15) of `threads` threads of the block: waits for all of them, or only
/// counts this one.
__device__ inline void meet(int number, int threads) {
  INKLING_SM90("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ inline void report(int number, int threads) {
  INKLING_SM90("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
#endif

}  // namespace ink::cuda
