// Rows of a table (V, C) by ids (...): the twin of autograd/ops/embedding.cpp.
//   y[i]          = weight[ids[i]]
//   dweight[v]    = sum of dy[i] over all i with ids[i] = v
// An id that is out of range gives zeros and no gradient, until the host throws the fault.
#include <initializer_list>
#include <type_traits>

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

// The gradient. The ids are sorted, so equal ids are neighbours. A warp takes 32 consecutive ids
// and some columns, N in each lane, and adds up dy for each row of the table among its ids. If a
// row's ids begin among the 32, the warp writes the sum to the table, and no other warp writes
// there. Otherwise the sum, which is that of the warp's first row, goes to `partial`, and a second
// launch adds it to the table.
template <class T, int N>
struct RowSums {
  using C = compute_t<T>;
  C* table;    // (V, n)
  C* partial;  // (chunks, n)
  const T* dy;
  const int64_t *ids, *positions;  // in order, and where in dy each comes from
  int64_t count, n, rows;

  __host__ __device__ int64_t chunks() const { return (count + kWarp - 1) / kWarp; }
  /// Do the ids of a chunk's first row begin in an earlier chunk?
  __device__ bool continues(int64_t chunk) const {
    return chunk > 0 && ids[chunk * kWarp] == ids[chunk * kWarp - 1];
  }
  __device__ void add(int64_t id, int64_t column, const Pack<C, N>& sum) const {
    if (id < 0 || id >= rows || column >= n) return;
    C* to = table + id * n + column;
    store(to, load<N>(to) + sum);
  }
};

template <class T, int N>
struct SumChunk {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp, kAhead = 8;
  using C = compute_t<T>;
  RowSums<T, N> of;

  __device__ void operator()() const {
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
    if (chunk >= of.chunks()) return;
    const int64_t column = (static_cast<int64_t>(blockIdx.y) * kWarp + lane_id()) * N;
    const int64_t first = chunk * kWarp, left = of.count - first;
    const int size = left < kWarp ? static_cast<int>(left) : kWarp;
    const int64_t mine = first + (lane_id() < size ? lane_id() : 0);
    const int64_t my_id = of.ids[mine], my_position = of.positions[mine];
    bool is_partial = of.continues(chunk);
    Pack<C, N> sum{};
    for (int begin = 0; begin < size; begin += kAhead) {
      Pack<C, N> dy[kAhead] = {};
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t row = warp_from(my_position, begin + k);
        if (begin + k < size && column < of.n) dy[k] = load<N>(of.dy + row * of.n + column);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t id = warp_from(my_id, begin + k), next = warp_from(my_id, begin + k + 1);
        sum = sum + dy[k];
        if (begin + k + 1 < size ? id == next : begin + k >= size) continue;
        if (!is_partial) {
          of.add(id, column, sum);
        } else if (column < of.n) {
          store(of.partial + chunk * of.n + column, sum);
        }
        is_partial = false;
        sum = {};
      }
    }
  }
};

// A warp for each chunk. If a row's ids began in the chunk before, the warp adds the row's sums of
// this chunk and of all further ones to the table.
template <class T, int N>
struct AddPartial {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp;
  using C = compute_t<T>;
  RowSums<T, N> of;

  __device__ void operator()() const {
    int64_t chunk = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
    const int64_t chunks = of.chunks();
    if (chunk >= chunks || !of.continues(chunk)) return;
    const int64_t id = of.ids[chunk * kWarp];
    if (of.continues(chunk - 1) && of.ids[(chunk - 1) * kWarp] == id) return;
    const int64_t column = (static_cast<int64_t>(blockIdx.y) * kWarp + lane_id()) * N;
    Pack<C, N> sum{};
    for (int run = kWarp; run == kWarp; chunk += run) {
      const int64_t other = chunk + lane_id();
      run = warp_run(other < chunks && of.ids[other * kWarp] == id);
#pragma unroll 8
      for (int k = 0; k < run; ++k)
        if (column < of.n) sum = sum + load<N>(of.partial + (chunk + k) * of.n + column);
    }
    of.add(id, column, sum);
  }
};

// Calls f(N) with the number of elements to move at once.
template <class T, class F>
void for_width(int64_t n, std::initializer_list<const void*> pointers, const F& f) {
  constexpr int N = kPacked<T>;
  if (n % N == 0 && are_aligned(pointers)) {
    f(std::integral_constant<int, N>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

}  // namespace

void embedding(Array& y, const Array& ids, const Array& weight) {
  for_float("embedding", weight.dtype(), [&]<class T>(T) {
    const int64_t n = weight.size(-1), count = n ? ids.numel() : 0;
    T* out = y.mutable_data<T>();
    const T* table = weight.data<T>();
    const IdCheck in_range("embedding", "id", weight.size(0), "rows");
    for_width<T>(n, {out, table}, [&]<int N>(std::integral_constant<int, N>) {
      using Kernel = Embedding<T, N>;
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
    for_width<C>(n, {table, upstream}, [&]<int N>(std::integral_constant<int, N>) {
      RowSums<T, N> sums{
          table, nullptr, upstream,       sorted.data<int64_t>(), positions.data<int64_t>(),
          count, n,       dweight.size(0)};
      Array partial = Array::empty(Shape{sums.chunks(), n}, dweight.dtype(), dweight.device());
      sums.partial = partial.mutable_data<C>();
      const Blocks blocks(blocks_for(sums.chunks(), SumChunk<T, N>::kWarps),
                          blocks_for(n, kWarp, N));
      launch("embedding_backward", blocks, SumChunk<T, N>{sums});
      launch("embedding_backward", blocks, AddPartial<T, N>{sums});
    });
  });
}

}  // namespace ink::cuda
