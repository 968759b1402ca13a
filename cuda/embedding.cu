// Rows of a table (V, C) by ids (...): the twin of autograd/ops/embedding.cpp.
//   y[i]          = weight[ids[i]]
//   dweight[v]    = sum of dy[i] over all i with ids[i] = v
// An id that is out of range gives zeros and no gradient, until the host throws the fault.
#include <algorithm>

#include "cuda/ids.cuh"
#include "cuda/rows.cuh"
#include "cuda/sort.cuh"

namespace ink::cuda {
namespace {

// A warp takes an id.
template <class T, int N>
struct Embedding {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp;
  static constexpr int kAhead = 4, kStep = kWarp * N;
  T* y;
  const int64_t* ids;
  const T* weight;
  int64_t count, n;
  IdCheck in_range;

  __device__ void operator()() const {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
    if (i >= count) return;
    const int64_t id = ids[i];
    const bool found = in_range(id, i);
    const T* from = weight + (found ? id : 0) * n;
    for (int64_t begin = lane_id() * N; begin < n; begin += kAhead * kStep) {
      Pack<compute_t<T>, N> row[kAhead] = {};
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (found && begin + k * kStep < n) row[k] = load<N>(from + begin + k * kStep);
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (begin + k * kStep < n) store(y + i * n + begin + k * kStep, row[k]);
    }
  }
};

// The gradient. The ids are sorted, so equal ids are neighbours. A warp takes a chunk of 32 ids and
// some columns, N in each lane, and adds up dy for each row of the table among its ids. If a row's
// ids begin in the chunk, the warp writes the sum to the table, and no other warp writes there.
// Otherwise the sum, which is that of the warp's first row, goes to `partial`, and the last block
// of the columns adds it to the table.
template <class T, int N>
struct EmbeddingBackward {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp, kAhead = 8;
  using C = compute_t<T>;
  struct Shared {
    bool last;
  };
  C* table;    // (V, n)
  C* partial;  // (chunks, n)
  const T* dy;
  const int64_t *ids, *positions;  // in order, and where in dy each comes from
  int64_t count, n, rows, chunks;
  unsigned* arrived = block_counts();  // blocks, for each that takes the same columns

  __device__ void operator()(Shared& shared) const {
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
    if (chunk < chunks) for_columns([&](int64_t column) { sum_chunk(chunk, column); });
    if (!is_last_block(arrived + blockIdx.y, gridDim.x, shared.last)) return;
    for (int64_t first = warp_id(); first < chunks; first += kWarps * kWarp) {
      unsigned runs = __ballot_sync(kAllLanes, begins_run(first + lane_id() * kWarps));
      for (; runs != 0; runs &= runs - 1) {
        const int64_t begin = first + (__ffs(static_cast<int>(runs)) - 1) * kWarps;
        for_columns([&](int64_t column) { add_partial(begin, column); });
      }
    }
  }

 private:
  template <class F>
  __device__ void for_columns(const F& f) const {
    constexpr int64_t kStep = kWarp * N;
    for (int64_t first = blockIdx.y * kStep; first < n; first += gridDim.y * kStep)
      f(first + lane_id() * N);
  }
  /// Do the ids of a chunk's first row begin in an earlier chunk?
  __device__ bool continues(int64_t chunk) const {
    return chunk > 0 && ids[chunk * kWarp] == ids[chunk * kWarp - 1];
  }
  /// Do they, and in the chunk just before it?
  __device__ bool begins_run(int64_t chunk) const {
    return chunk < chunks && continues(chunk) &&
           !(continues(chunk - 1) && ids[chunk * kWarp] == ids[(chunk - 1) * kWarp]);
  }
  __device__ void add(int64_t id, int64_t column, const Pack<C, N>& sum) const {
    if (id < 0 || id >= rows || column >= n) return;
    C* to = table + id * n + column;
    store(to, load<N>(to) + sum);
  }

  __device__ void sum_chunk(int64_t chunk, int64_t column) const {
    const int64_t first = chunk * kWarp, left = count - first;
    const int size = left < kWarp ? static_cast<int>(left) : kWarp;
    const int64_t mine = first + (lane_id() < size ? lane_id() : 0);
    const int64_t my_id = ids[mine], my_position = positions[mine];
    bool is_partial = continues(chunk);
    Pack<C, N> sum{};
    for (int begin = 0; begin < size; begin += kAhead) {
      Pack<C, N> some[kAhead] = {};
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t row = warp_from(my_position, begin + k);
        if (begin + k < size && column < n) some[k] = load<N>(dy + row * n + column);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t id = warp_from(my_id, begin + k), next = warp_from(my_id, begin + k + 1);
        sum = sum + some[k];
        if (begin + k + 1 < size ? id == next : begin + k >= size) continue;
        if (!is_partial) {
          add(id, column, sum);
        } else if (column < n) {
          store(partial + chunk * n + column, sum);
        }
        is_partial = false;
        sum = {};
      }
    }
  }
  // Adds what this chunk and all further ones have left of the chunk's first row.
  __device__ void add_partial(int64_t chunk, int64_t column) const {
    const int64_t id = ids[chunk * kWarp];
    Pack<C, N> sum{};
    for (int run = kWarp; run == kWarp; chunk += run) {
      const int64_t other = chunk + lane_id();
      run = warp_run(other < chunks && ids[other * kWarp] == id);
#pragma unroll 8
      for (int k = 0; k < run; ++k)
        if (column < n) sum = sum + load<N>(partial + (chunk + k) * n + column);
    }
    add(id, column, sum);
  }
};

}  // namespace

void embedding(Array& y, const Array& ids, const Array& weight) {
  for_float("embedding", weight.dtype(), [&]<class T>(T) {
    const int64_t n = weight.size(-1), count = n ? ids.numel() : 0;
    T* out = y.mutable_data<T>();
    const T* table = weight.data<T>();
    const IdCheck in_range("embedding", "id", weight.size(0), "rows");
    for_bool(n % kPacked<T> == 0 && are_aligned({out, table}), [&](auto packs) {
      using Kernel = Embedding<T, packs() ? kPacked<T> : 1>;
      launch("embedding", blocks_for(count, Kernel::kWarps),
             Kernel{out, ids.data<int64_t>(), table, count, n, in_range});
    });
  });
}

void embedding_backward(Array& dweight, const Array& dy, const Array& ids) {
  const int64_t count = ids.numel(), n = dy.size(-1);
  if (count == 0 || n == 0) return;
  Array sorted = Array::empty(Shape{count}, i64, ids.device()),
        positions = Array::empty(Shape{count}, i64, ids.device());
  sort_ids(sorted, positions, *contiguous(ids).reshaped({count}), 0, dweight.size(0));
  for_float("embedding_backward", dy.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    C* table = dweight.mutable_data<C>();
    const T* upstream = dy.data<T>();
    for_bool(n % kPacked<C> == 0 && are_aligned({table, upstream}), [&](auto packs) {
      constexpr int N = packs() ? kPacked<C> : 1;
      using Kernel = EmbeddingBackward<T, N>;
      const int64_t chunks = blocks_for(count, kWarp);
      Array partial = Array::empty(Shape{chunks, n}, dweight.dtype(), dweight.device());
      C* parts = partial.mutable_data<C>();
      const int64_t *id = sorted.data<int64_t>(), *place = positions.data<int64_t>();
      launch("embedding_backward",
             {blocks_for(chunks, Kernel::kWarps),
              std::min<int64_t>(blocks_for(n, kWarp, N), kBlockCounts)},
             Kernel{table, parts, upstream, id, place, count, n, dweight.size(0), chunks});
    });
  });
}

}  // namespace ink::cuda
