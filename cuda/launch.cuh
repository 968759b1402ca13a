// How kernels are written and started, on a GPU and under the emulator of cuda/emulator.
//
// A kernel is a struct of its arguments, passed by value, with
//   static constexpr int kThreads    threads of a block, a multiple of 32
//   static constexpr int kResident   blocks for which a multiprocessor must have registers (may be
//                                    left out)
//   struct Shared                    what the block shares (may be left out)
//   __device__ void operator()() const, or operator()(Shared& shared) const
// and launch("op", blocks, kernel) runs it once in every thread. Inside, threadIdx, blockIdx and
// __syncthreads() are CUDA's own. Shuffles and block reductions go through this header.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "autograd/base/check.h"
#include "cuda/runtime.h"

namespace ink::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Blocks along x, y and z.
struct Blocks {
  int64_t x = 1, y = 1, z = 1;
  Blocks(int64_t along_x, int64_t along_y = 1, int64_t along_z = 1)
      : x(along_x), y(along_y), z(along_z) {}
};

template <class Kernel>
concept SharesMemory = requires {
  typename Kernel::Shared;
};

namespace detail {
template <class Kernel>
constexpr int resident_blocks() {
  if constexpr (requires { Kernel::kResident; }) return Kernel::kResident;
  return 1;
}
template <class Kernel>
constexpr size_t shared_bytes() {
  if constexpr (SharesMemory<Kernel>) return sizeof(typename Kernel::Shared);
  return 0;
}
}  // namespace detail

#ifndef INKLING_EMULATED
/// The kernel's arguments are read in place: no thread copies them. The next launch may start while
/// this one runs, and waits for its end before it does anything (overlaps_launches).
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, detail::resident_blocks<Kernel>())
    run(const __grid_constant__ Kernel kernel) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory");
#endif
  if constexpr (SharesMemory<Kernel>) {
    extern __shared__ __align__(1024) unsigned char memory[];
    static_assert(alignof(typename Kernel::Shared) <= 1024);
    kernel(*reinterpret_cast<typename Kernel::Shared*>(memory));
  } else {
    kernel();
  }
}
#endif

/// Runs a kernel on the current device's stream; op names it in errors. 0 blocks do nothing.
template <class Kernel>
void launch(const char* op, Blocks blocks, const Kernel& kernel) {
  static_assert(Kernel::kThreads % kWarp == 0 && Kernel::kThreads <= 1024);
  static_assert(std::is_trivially_copyable_v<Kernel>, "a kernel's arguments are copied as bytes");
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  INK_CHECK(blocks.x <= 0x7fffffff && blocks.y <= 65535 && blocks.z <= 65535, op,
            ": too large for one launch: ", blocks.x, " x ", blocks.y, " x ", blocks.z, " blocks");
  const dim3 grid(static_cast<unsigned>(blocks.x), static_cast<unsigned>(blocks.y),
                  static_cast<unsigned>(blocks.z));
  constexpr size_t bytes = detail::shared_bytes<Kernel>();
#ifdef INKLING_EMULATED
  emulator::launch(op, grid, Kernel::kThreads, bytes, stream(), [kernel](void* memory) {
    if constexpr (SharesMemory<Kernel>) {
      kernel(*static_cast<typename Kernel::Shared*>(memory));
    } else {
      static_cast<void>(memory);
      kernel();
    }
  });
#else
  if constexpr (bytes > 48 * 1024) {  // more than cards give by default
    INKLING_CUDA(op, cudaFuncSetAttribute, run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                 static_cast<int>(bytes));
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = Kernel::kThreads;
  config.dynamicSmemBytes = bytes;
  config.stream = stream();
  config.attrs = &overlap;
  config.numAttrs = overlaps_launches() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, run<Kernel>, kernel), op, "launch");
#endif
}

/// The number of a kernel's blocks that the current device can run at once.
template <class Kernel>
int64_t resident_blocks() {
#ifdef INKLING_EMULATED
  return 2 * multiprocessors();
#else
  static std::array<std::atomic<int>, kMostDevices> known;  // by device; 0: not known yet
  std::atomic<int>& each = known[static_cast<size_t>(current_device())];
  if (each == 0) {
    int blocks = 0;
    INKLING_CUDA("cuda", cudaOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, run<Kernel>,
                 Kernel::kThreads, detail::shared_bytes<Kernel>());
    each = blocks;
  }
  return int64_t{each.load()} * multiprocessors();
#endif
}

/// Calls f(std::true_type()) or f(std::false_type()), so that kernels are compiled for both.
template <class F>
void for_bool(bool value, const F& f) {
  value ? f(std::true_type()) : f(std::false_type());
}

/// The number of blocks of `threads` for n elements, if each thread takes `each` of them.
inline int64_t blocks_for(int64_t n, int threads, int64_t each = 1) {
  return (n + threads * each - 1) / (threads * each);
}

/// The number of this thread in the whole launch, along x.
__device__ inline int64_t global_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int lane_id() { return static_cast<int>(threadIdx.x % kWarp); }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x / kWarp); }

// ---- operations of a warp: all 32 lanes must take part

/// The value of the lane whose number differs in the bits of `mask`; of lane `lane`.
template <class T>
__device__ inline T warp_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <class T>
__device__ inline T warp_from(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}

/// The value of the lane `delta` below, or the lane's own if there is none.
template <class T>
__device__ inline T warp_up(T value, int delta) {
  return __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(delta));
}
/// The lanes that hold the same value, a bit for each.
__device__ inline unsigned warp_match(int value) { return __match_any_sync(kAllLanes, value); }

/// The number of lanes, from lane 0 on, before the first one that votes no.
__device__ inline int warp_run(bool vote) {
  const unsigned no = ~__ballot_sync(kAllLanes, vote);
  return no == 0 ? kWarp : __ffs(static_cast<int>(no)) - 1;
}

struct Plus {
  template <class T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
};
struct Larger {  // NaN if either is
  template <class T>
  __device__ static T join(T a, T b) {
    return a != a || a > b ? a : b;
  }
};

/// Joins the values of all lanes in a fixed order; every lane gets the result. With kLanes, a power
/// of two, each group of kLanes neighbours joins its own.
template <class Op, int kLanes = kWarp, class T>
__device__ inline T warp_reduce(T value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = Op::join(value, warp_xor(value, mask));
  return value;
}

/// The values of this lane and all below, joined by Op.
template <class Op, class T>
__device__ inline T warp_running(T value) {
#pragma unroll
  for (int delta = 1; delta < kWarp; delta *= 2) {
    const T below = warp_up(value, delta);
    if (lane_id() >= delta) value = Op::join(value, below);
  }
  return value;
}

// ---- operations of a block

/// Shared memory for one reduction of a block; may be used again at once.
template <class T>
struct BlockScratch {
  T warps[kWarp];
};

/// Joins the values of all kThreads threads in a fixed order; every thread gets the result.
template <class Op, int kThreads, class T>
__device__ inline T block_reduce(T value, BlockScratch<T>& scratch) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert((kWarps & (kWarps - 1)) == 0, "a power of two");
  value = warp_reduce<Op>(value);
  if constexpr (kWarps == 1) return value;
  __syncthreads();  // the scratch may still be read
  if (lane_id() == 0) scratch.warps[warp_id()] = value;
  __syncthreads();
  return warp_reduce<Op, kWarps>(scratch.warps[lane_id() % kWarps]);
}
template <int kThreads, class T>
__device__ inline T block_sum(T value, BlockScratch<T>& scratch) {
  return block_reduce<Plus, kThreads>(value, scratch);
}
template <int kThreads, class T>
__device__ inline T block_max(T value, BlockScratch<T>& scratch) {
  return block_reduce<Larger, kThreads>(value, scratch);
}

/// Is this block the last of `count` that come here? It sees what the others wrote before. They
/// count themselves in `arrived`, one of block_counts(). All threads of a block must take part;
/// `last` is shared.
__device__ inline bool is_last_block(unsigned* arrived, unsigned count, bool& last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // after the barrier, so that it covers what the whole block wrote
    last = atomicAdd(arrived, 1u) == count - 1;
    if (last) *arrived = 0;
    __threadfence();  // before the next one, so that the whole block sees what others wrote
  }
  __syncthreads();
  return last;
}

/// The blocks of a launch in groups, about as many as each has blocks. The last block of a group
/// joins what those of the group have left, and the last of these what the groups have left.
struct BlockGroups {
  unsigned* arrived = block_counts();  // of all groups, and of each
  unsigned size;                       // of a group
  unsigned count;

  explicit BlockGroups(int64_t blocks)
      : size(static_cast<unsigned>(std::max(std::ceil(std::sqrt(blocks)),
                                            std::ceil(double(blocks) / (kBlockCounts - 1))))),
        count(static_cast<unsigned>((blocks + size - 1) / size)) {}

  /// The calling block's group, the first block of it, and how many it has.
  __device__ unsigned group() const { return blockIdx.x / size; }
  __device__ unsigned first() const { return group() * size; }
  __device__ unsigned blocks() const {
    return gridDim.x - first() < size ? gridDim.x - first() : size;
  }
  __device__ bool is_last_of_group(bool& last) const {
    return is_last_block(arrived + 1 + group(), blocks(), last);
  }
  __device__ bool is_last_group(bool& last) const { return is_last_block(arrived, count, last); }
};

/// The sum of `count` values, in double and in a fixed order.
template <int kThreads, class T>
__device__ inline double block_sum_of(const T* values, int64_t count,
                                      BlockScratch<double>& scratch) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) total += static_cast<double>(values[i]);
  return block_sum<kThreads>(total, scratch);
}

/// The sum of the values of all threads below this one.
template <class T>
__device__ inline T block_sum_before(T value, BlockScratch<T>& scratch) {
  const T sum = warp_running<Plus>(value), below = warp_up(sum, 1);
  __syncthreads();  // the scratch may still be read
  if (lane_id() == kWarp - 1) scratch.warps[warp_id()] = sum;
  __syncthreads();
  T before = 0;
  for (int warp = 0; warp < warp_id(); ++warp) before += scratch.warps[warp];
  return lane_id() == 0 ? before : before + below;
}

}  // namespace ink::cuda
