// The one kernel behind every reduction: any dimensions of a tensor of any strides, without a copy.
// A type R says what is computed. Its functions run in one thread:
//   Acc                       the state after the elements seen so far
//   none()                    the state after no elements
//   take(acc, x, at, step)    adds x[k], element number at + k step of its line; k = 0 ...
//   merge(acc, other)         adds another state to acc
//   repeat(acc, times)        the state if each element had come `times` times
//
// A line is the elements of one output. Some lanes of a block share it. Long lines have parts, a
// block each, and the last of these blocks merges their results in the order of the parts. If a
// line's elements are contiguous, its lanes are neighbouring threads. If the elements of
// neighbouring outputs are contiguous ("columns"), then threads of neighbouring outputs are
// neighbours.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "autograd/kernels/reduce.h"
#include "autograd/loops/folds.h"
#include "autograd/loops/reduce_plan.h"
#include "cuda/elementwise.cuh"

namespace ink::cuda {

/// V elements are read at once, either of one line or of kAccs = V lines.
template <class R, class T, class Write, int V, int kAccs>
struct Reduce {
  static constexpr int kThreads = 256, kUnroll = 4;
  using Acc = typename R::Acc;
  struct Shared {
    Acc accs[kAccs][kThreads];
    bool last;
  };
  const T* x;
  Write write;                   // (offset in y, acc) of each output
  Acc* partial;                  // the results of parts: parts x outputs; null: there is one
  unsigned* arrived;             // blocks, for each group of outputs
  Places<2, uint64_t> outputs;   // in y and x, kAccs at a time
  Places<1, uint64_t> items;     // of a line, in x: V elements each, or one
  int64_t output_count, next_y;  // outputs; from one to the next of a pack, in y
  int64_t item_count, part_items, line, repeats;  // line: elements
  int lanes;
  bool columns;

  __device__ void operator()(Shared& shared) const {
    const auto thread = static_cast<int>(threadIdx.x);
    const int width = kThreads / lanes;
    const int lane = columns ? thread / width : thread % lanes;
    const int64_t own = columns ? thread % width : thread / lanes;
    const int64_t first = (blockIdx.x * int64_t{width} + own) * kAccs;
    Acc acc[kAccs];
#pragma unroll
    for (int c = 0; c < kAccs; ++c) acc[c] = R::none();
    if (first < output_count) absorb(acc, x + outputs.find(first / kAccs)[1], lane);
    combine(acc, shared, lane, columns ? width : 1);
    if (partial != nullptr) {
      if (!merge_parts(acc, shared, first, lane)) return;
      combine(acc, shared, lane, columns ? width : 1);
    }
    if (lane == 0 && first < output_count) finish(acc, first);
  }

  // In the last block of these outputs: each lane merges its share of the parts.
  __device__ bool merge_parts(Acc (&acc)[kAccs], Shared& shared, int64_t first, int lane) const {
    Acc* const results = partial + first;
    for (int c = 0; c < kAccs && lane == 0 && first < output_count; ++c)
      results[blockIdx.y * output_count + c] = acc[c];
    if (!is_last_block(arrived + blockIdx.x, gridDim.y, shared.last)) return false;
#pragma unroll
    for (int c = 0; c < kAccs; ++c) {
      acc[c] = R::none();
#pragma unroll 4
      for (int64_t part = lane; part < gridDim.y && first < output_count; part += lanes)
        R::merge(acc[c], results[part * output_count + c]);
    }
    return true;
  }

  // Adds the lane's share of the part's items.
  __device__ void absorb(Acc (&acc)[kAccs], const T* start, int lane) const {
    const int64_t begin = blockIdx.y * part_items, end = std::min(begin + part_items, item_count);
    int64_t i = begin + lane;
    for (; i + (kUnroll - 1) * lanes < end; i += kUnroll * lanes) {
      Pack<T, V> packs[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) packs[u] = load(start, i + u * lanes);
      take(acc, packs, i);
    }
    for (; i < end; i += lanes) take(acc, {load(start, i)}, i);
    if constexpr (kAccs < V) {  // the last elements may not fill a pack
      i = end < item_count ? line : item_count * V + lane;
      for (; i < line; i += lanes) R::take(acc[0], {start[i]}, i, 1);
    }
  }
  __device__ Pack<T, V> load(const T* start, int64_t item) const {
    const T* from = start + items.find(item)[0];
    if constexpr (V == 1) return {*from};
    return *reinterpret_cast<const Pack<T, V>*>(from);
  }
  template <int K>
  __device__ void take(Acc (&acc)[kAccs], const Pack<T, V> (&packs)[K], int64_t item) const {
    if constexpr (kAccs == V) {
#pragma unroll
      for (int c = 0; c < V; ++c) {
        T values[K];
        for (int u = 0; u < K; ++u) values[u] = packs[u].at[c];
        R::take(acc[c], values, item, lanes);
      }
    } else {
#pragma unroll
      for (int u = 0; u < K; ++u) R::take(acc[0], packs[u].at, (item + u * lanes) * V, 1);
    }
  }

  // Merges the accs of all lanes into lane 0, in a fixed order.
  __device__ void combine(Acc (&acc)[kAccs], Shared& shared, int lane, int next_lane) const {
    const auto thread = static_cast<int>(threadIdx.x);
    for (int c = 0; c < kAccs; ++c) shared.accs[c][thread] = acc[c];
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane >= half) continue;
      for (int c = 0; c < kAccs; ++c) {
        R::merge(acc[c], shared.accs[c][thread + half * next_lane]);
        shared.accs[c][thread] = acc[c];
      }
    }
  }

  __device__ void finish(Acc (&acc)[kAccs], int64_t first) const {
    const int64_t to = outputs.find(first / kAccs)[0];
#pragma unroll
    for (int c = 0; c < kAccs; ++c) {
      if (repeats != 1) R::repeat(acc[c], repeats);
      write(to + c * next_y, acc[c]);
    }
  }
};

/// Device memory for n of T, as long as the tensor lives.
template <class T>
std::pair<Array, T*> scratch(int64_t n, Device device) {
  Array memory = Array::empty(Shape{(n * static_cast<int64_t>(sizeof(T)) + 7) / 8}, i64, device);
  return {memory, reinterpret_cast<T*>(memory.mutable_data<int64_t>())};
}

/// The axes of a reduction's outputs and of its lines.
struct ReduceSizes {
  Shape outputs, items;
  std::array<Shape, 2> output_steps;  // in y and x
  std::array<Shape, 1> item_steps;
  int64_t repeats, line;
  bool columns;

  explicit ReduceSizes(const ReducePlan& plan)
      : outputs(plan.outer.sizes),
        items(plan.outer_rows.sizes),
        output_steps{plan.outer.out_steps, plan.outer.steps},
        item_steps{plan.outer_rows.steps},
        repeats(plan.repeats),
        line(plan.total_rows),
        columns(plan.columns.size > 1) {
    outputs.push_back(plan.columns.size);
    output_steps[0].push_back(plan.columns.out_step);
    output_steps[1].push_back(columns ? plan.columns.step : 0);  // rows are then read in packs
    items.push_back(plan.rows.size);
    item_steps[0].push_back(plan.rows.step);
  }

  /// Can V elements be read at once? They must be contiguous, and all other steps multiples of V.
  template <class T>
  bool in_packs(const T* x, int64_t V) const {
    const Shape &inner = columns ? output_steps[1] : item_steps[0],
                &other = columns ? item_steps[0] : output_steps[1];
    bool even = inner.back() == 1 && reinterpret_cast<uintptr_t>(x) % (V * sizeof(T)) == 0;
    for (int64_t d = 0; d + 1 < inner.size(); ++d) even &= inner[d] % V == 0;
    for (int64_t d = 0; d < other.size(); ++d) even &= other[d] % V == 0;
    const Shape& sizes = columns ? outputs : items;
    return even && (sizes.back() % V == 0 || (!columns && sizes.size() == 1));
  }
};

template <class R, class T, int V, int kAccs, class Write>
void launch_reduce(const char* op, ReduceSizes sizes, const T* x, const Write& write,
                   Device device) {
  using Kernel = Reduce<R, T, Write, V, kAccs>;
  using Acc = typename R::Acc;
  const int64_t outputs = sizes.outputs.numel(), next_y = sizes.output_steps[0].back();
  (kAccs > 1 ? sizes.outputs : sizes.items).back() /= V;
  for (Shape& steps : sizes.output_steps) steps.back() *= kAccs;
  sizes.item_steps[0].back() *= V / kAccs;
  const int64_t packs = outputs / kAccs, items = sizes.items.numel();
  const auto power = [](int64_t n) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
  };
  const int64_t most = std::min<int64_t>(Kernel::kThreads, power(items));
  const int64_t lanes =
      sizes.columns
          ? std::min(most, Kernel::kThreads / std::min<int64_t>(power(packs), 32))
          : std::clamp(power(blocks_for(items, Kernel::kUnroll)), std::min<int64_t>(most, 8), most);
  const int64_t blocks = blocks_for(packs * lanes, Kernel::kThreads);  // at least 1
  const int64_t wanted = std::min(multiprocessors(), kBlockCounts / 8) * int64_t{8} / blocks;
  const int64_t most_parts = std::max<int64_t>(1, items / (8 * lanes));
  const int64_t part_items =
      std::max<int64_t>(1, blocks_for(items, 1, std::clamp<int64_t>(wanted, 1, most_parts)));
  const int64_t parts = std::max<int64_t>(1, blocks_for(items, 1, part_items));
  Kernel kernel{x,
                write,
                nullptr,
                block_counts(),
                {sizes.outputs, sizes.output_steps},
                {sizes.items, sizes.item_steps},
                outputs,
                next_y,
                items,
                part_items,
                sizes.line,
                sizes.repeats,
                static_cast<int>(lanes),
                sizes.columns};
  Array memory;
  if (parts > 1) std::tie(memory, kernel.partial) = scratch<Acc>(parts * outputs, device);
  launch(op, {blocks, parts}, kernel);
}

/// Reduces x (elements of T) into the shape of y, which has x's dimensions with the reduced ones of
/// size 1. write(offset in y, acc) runs on the device for each output.
template <class R, class T, class Write>
void reduce_loop(const char* op, const Array& y, const Array& x, const Write& write) {
  if (y.numel() == 0) return;
  const ReduceSizes sizes{ReducePlan(y, x)};
  const T* in = x.data<T>();
  constexpr int kWide = kPacked<T>, kColumns = std::min(kWide, 4);
  if (sizes.columns && sizes.in_packs(in, kColumns))
    return launch_reduce<R, T, kColumns, kColumns>(op, sizes, in, write, x.device());
  if (!sizes.columns && sizes.in_packs(in, kWide))
    return launch_reduce<R, T, kWide, 1>(op, sizes, in, write, x.device());
  launch_reduce<R, T, 1, 1>(op, sizes, in, write, x.device());
}

/// A reduction by one operation, F::join. Elements that are read together are joined as F::Near,
/// and the results as F::Far. Far is double for sums of floats, so that the error does not grow
/// with the length.
template <class F, class T>
struct Fold {
  using Acc = typename F::Far;
  __device__ static Acc none() { return F::none(); }
  template <int K>
  __device__ static void take(Acc& acc, const T (&x)[K], int64_t, int64_t) {
    typename F::Near values[K];
#pragma unroll
    for (int k = 0; k < K; ++k) values[k] = F::load(x[k]);
#pragma unroll
    for (int half = K / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) values[k] = F::join(values[k], values[k + half]);
    }
    merge(acc, static_cast<Acc>(values[0]));
  }
  __device__ static void merge(Acc& acc, const Acc& other) { acc = F::join(acc, other); }
  __device__ static void repeat(Acc& acc, int64_t times) { acc = F::repeated(acc, times); }
};

}  // namespace ink::cuda
