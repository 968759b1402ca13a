// cumsum, cumprod: the twin of autograd/ops/cumsum.cpp. Comments call products sums, too.
//
// Lines are cut into chunks, so that few long lines also keep the GPU busy. The first launch
// computes the sum of each chunk, the second the running sums of these, the third those of the
// elements. Sums are in double, or int64.
#include <algorithm>

#include "autograd/kernels/lines.h"
#include "cuda/reduce.cuh"

namespace ink::cuda {
namespace {

template <class F, class T>
struct Scan {
  using Sum = typename F::Far;
  T* y;
  const T* x;
  Places<2, uint64_t> heads;  // of a line, in both operands
  int64_t next_y, next_x, line_count, count, chunk, chunks;
  // lines x chunks: the sum of each chunk, written if only_sums; later, of all chunks up to it.
  // Null if lines have one chunk.
  Sum* sums;
  bool only_sums;

  __device__ Sum before(int64_t line, int64_t number) const {
    return number == 0 ? F::none() : sums[line * chunks + number - 1];
  }
};

constexpr int kEach = 8;  // elements a thread holds

// kWarps warps take a chunk. Each takes a part of it, 32 elements at a time.
template <class F, class T, int kWarps>
struct ScanRows {
  static constexpr int kThreads = 256, kChunk = kWarps * kWarp * kEach;
  using Sum = typename F::Far;
  struct Shared {
    Sum warps[kThreads / kWarp];
  };
  Scan<F, T> scan;

  __device__ void operator()(Shared& shared) const {
    const int64_t unit = (blockIdx.x * int64_t{kThreads / kWarp} + warp_id()) / kWarps;
    const int64_t line = unit / scan.chunks, number = unit - line * scan.chunks;
    const int64_t begin = number * kChunk + warp_id() % kWarps * kWarp * kEach + lane_id();
    const int64_t end = line < scan.line_count ? scan.count : 0;
    const auto head = scan.heads.find(line < scan.line_count ? line : 0);
    Sum values[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int64_t i = begin + e * kWarp;
      values[e] = i < end ? static_cast<Sum>(scan.x[head[1] + i * scan.next_x]) : F::none();
    }
    Sum sums[kEach], total = F::none();
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      sums[e] = F::join(total, warp_running<F>(values[e]));
      total = warp_from(sums[e], kWarp - 1);
    }
    if constexpr (kWarps > 1) {
      if (lane_id() == 0) shared.warps[warp_id()] = total;
      __syncthreads();
      total = F::none();
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp == warp_id()) add(sums, total);
        total = F::join(total, shared.warps[warp]);
      }
    }
    if (end == 0) return;
    if (scan.only_sums) {
      if (lane_id() == 0) scan.sums[line * scan.chunks + number] = total;
      return;
    }
    add(sums, scan.before(line, number));
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int64_t i = begin + e * kWarp;
      if (i < end) scan.y[head[0] + i * scan.next_y] = static_cast<T>(sums[e]);
    }
  }
  __device__ static void add(Sum (&sums)[kEach], Sum before) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) sums[e] = F::join(sums[e], before);
  }
};

// A thread takes a chunk, and its neighbours the chunks of neighbouring lines.
template <class F, class T>
struct ScanColumns {
  static constexpr int kThreads = 128;
  Scan<F, T> scan;
  Divider<uint64_t> lines;

  __device__ void operator()() const {
    const int64_t i = global_thread();
    const auto number = static_cast<int64_t>(lines.quotient(i)),
               line = i - number * scan.line_count;
    if (number >= scan.chunks) return;
    const auto head = scan.heads.find(line);
    using Sum = typename F::Far;
    Sum sum = scan.only_sums ? F::none() : scan.before(line, number);
    const int64_t begin = number * scan.chunk, end = std::min(begin + scan.chunk, scan.count);
    const T* from = scan.x + head[1] + begin * scan.next_x;
    T* to = scan.y + head[0] + begin * scan.next_y;
    for (int64_t left = end - begin; left > 0; left -= kEach) {
      Sum values[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e, from += scan.next_x)
        values[e] = e < left ? static_cast<Sum>(*from) : F::none();
#pragma unroll
      for (int e = 0; e < kEach; ++e, to += scan.next_y) {
        sum = F::join(sum, values[e]);
        if (e < left && !scan.only_sums) *to = static_cast<T>(sum);
      }
    }
    if (scan.only_sums) scan.sums[line * scan.chunks + number] = sum;
  }
};

template <class F, class T>
void launch_scan(const Scan<F, T>& scan, bool columns) {
  const int64_t units = scan.line_count * scan.chunks;
  if (columns) {
    launch("scan", blocks_for(units, ScanColumns<F, T>::kThreads),
           ScanColumns<F, T>{scan, Divider<uint64_t>(scan.line_count)});
  } else if (scan.chunk == ScanRows<F, T, 1>::kChunk) {
    launch("scan", blocks_for(units, ScanRows<F, T, 1>::kThreads / kWarp), ScanRows<F, T, 1>{scan});
  } else {
    launch("scan", units, ScanRows<F, T, 8>{scan});
  }
}

// How many elements a chunk has.
template <class F, class T>
int64_t chunk_size(int64_t lines, int64_t count, bool columns) {
  if (!columns)
    return count <= ScanRows<F, T, 1>::kChunk ? ScanRows<F, T, 1>::kChunk
                                              : ScanRows<F, T, 8>::kChunk;
  const int64_t threads = multiprocessors() * int64_t{1024};
  return std::clamp(lines * count / threads, std::min<int64_t>(count, 64), count);
}

template <class F, class T>
void scan_by(Array& y, const Array& x, int64_t dim, bool product) {
  using Sum = typename F::Far;
  const Array to = first_of_lines(y, dim), from = first_of_lines(x, dim);
  const StridedLoop<2> loop(to.shape(), {&to, &from});
  const int64_t lines = to.numel(), count = x.shape()[dim], next = x.strides()[dim];
  const bool columns = lines > 1 && loop.inner_stride(1) < next;
  const int64_t chunk = chunk_size<F, T>(lines, count, columns),
                chunks = blocks_for(count, 1, chunk);
  Scan<F, T> all{y.mutable_data<T>(),
                 x.data<T>(),
                 loop,
                 y.strides()[dim],
                 next,
                 lines,
                 count,
                 chunk,
                 chunks,
                 nullptr,
                 true};
  Array sums;
  if (chunks > 1) {
    sums = Array::empty(Shape{lines, chunks}, dtype_of<Sum>(), x.device());
    all.sums = sums.template mutable_data<Sum>();
    launch_scan(all, columns);
    scan(sums, sums, 1, product);
  }
  all.only_sums = false;
  launch_scan(all, columns);
}

}  // namespace

void scan(Array& y, const Array& x, int64_t dim, bool product) {
  if (x.numel() == 0) return;
  for_any(x.dtype(), [&]<class T>(T) {
    product ? scan_by<Prod<T>, T>(y, x, dim, true) : scan_by<Sum<T>, T>(y, x, dim, false);
  });
}

}  // namespace ink::cuda
