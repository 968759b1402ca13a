// gather and scatter: the twins of autograd/ops/index.cpp. For an id that is out of range, gather
// gives zeros and scatter skips the element, until the host throws the fault.
#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "cuda/ids.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sort.cuh"

namespace ink::cuda {
namespace {

// y[i] = x[base of i + step ids[i]], V neighbours of one id at a time.
template <class T, int V>
struct Gather {
  static constexpr int kThreads = 256, kEach = 4;
  T* y;
  const T* x;
  const int64_t* ids;
  Places<3> places;  // of each V elements in y, base and ids
  int64_t step;
  uint32_t n;  // of V elements
  IdCheck in_range;

  __device__ void operator()() const {
    const uint32_t first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
    Pack<T, V> packs[kEach];
    int64_t to[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const uint32_t i = first + e * kThreads;
      if (i >= n) break;
      const auto at = places.find(i);
      to[e] = at[0];
      const int64_t id = ids[at[2]];
      packs[e] =
          in_range(id) ? *reinterpret_cast<const Pack<T, V>*>(x + at[1] + id * step) : Pack<T, V>{};
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (first + e * kThreads < n) *reinterpret_cast<Pack<T, V>*>(y + to[e]) = packs[e];
    }
  }
};

template <class T, int V>
void launch_gather(T* y, const T* x, const int64_t* ids, int64_t step, StridedLoop<3> all,
                   const IdCheck& in_range) {
  using Kernel = Gather<T, V>;
  if (V > 1) {
    all.sizes.back() /= V;
    for (Shape& strides : all.strides) strides.back() *= V;
  }
  for_each_piece<3>(all, [&](const StridedLoop<3>& loop, const std::array<int64_t, 3>& first) {
    const int64_t n = loop.sizes.numel();
    launch("gather", blocks_for(n, Kernel::kThreads, Kernel::kEach),
           Kernel{y, x, ids, {loop, first}, step, static_cast<uint32_t>(n), in_range});
  });
}

// ---- scatter: every sum has one owner and one order; without sums, the last of equal ids counts

// All dimensions but `dim` of the operands, joined, and the steps along it.
template <class T>
struct Scatter {
  using C = compute_t<T>;
  T* y;
  const T* source;
  const int64_t *ids, *positions;  // positions: null where ids are in the source's order
  Places<4, uint64_t> lines;       // first elements of y, source, ids, positions
  int64_t step, next_source, next_id, next_position;
  int64_t line_count, count;
  bool adds;
  IdCheck in_range;

  struct Line {
    T* y;
    const T* source;
    const int64_t *ids, *positions;
  };
  __device__ Line line(int64_t number) const {
    const auto at = lines.find(number);
    return {y + at[0], source + at[1], ids + at[2], positions + at[3]};
  }
  __device__ int64_t id(const Line& l, int64_t i) const { return l.ids[i * next_id]; }
  __device__ C sorted(const Line& l, int64_t i) const {
    return static_cast<C>(l.source[l.positions[i * next_position] * next_source]);
  }
  __device__ C join(C before, C value) const {
    return adds ? static_cast<C>(before + value) : value;
  }
  __device__ void put(const Line& l, int64_t id, C value) const {
    if (!in_range(id)) return;
    T& place = l.y[id * step];
    place = static_cast<T>(join(static_cast<C>(place), value));
  }
};

// A thread takes a line and its ids in order. For short lines, or very many.
template <class T>
struct ScatterLines {
  static constexpr int kThreads = 128;
  Scatter<T> all;

  __device__ void operator()() const {
    const int64_t number = global_thread();
    if (number >= all.line_count) return;
    const auto line = all.line(number);
    for (int64_t i = 0; i < all.count; ++i)
      all.put(line, all.id(line, i),
              static_cast<typename Scatter<T>::C>(line.source[i * all.next_source]));
  }
};

// A warp takes a line, keeps the line of y in shared memory, and takes 32 ids at a time. Equal ids
// among them take turns, in their order. What bounds it is reading ids and source once, and y once
// each way.
template <class T, int kBytes>
struct ScatterInPlace {
  static constexpr int kThreads = kWarp, kAhead = 8;
  using C = typename Scatter<T>::C;
  struct Shared {
    C places[kBytes / sizeof(C)];
  };
  Scatter<T> all;
  int rows;  // of a line of y

  __device__ void operator()(Shared& shared) const {
    const auto line = all.line(blockIdx.x);
#pragma unroll 16
    for (int i = lane_id(); i < rows; i += kWarp)
      shared.places[i] = static_cast<C>(line.y[i * all.step]);
    __syncwarp();
    for (int64_t begin = lane_id(); begin - lane_id() < all.count; begin += kAhead * kWarp) {
      int64_t ids[kAhead] = {};
      C values[kAhead] = {};
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int64_t i = begin + k * kWarp;
        if (i >= all.count) continue;
        ids[k] = all.id(line, i);
        values[k] = static_cast<C>(line.source[i * all.next_source]);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const bool found = begin + k * kWarp < all.count && all.in_range(ids[k]);
        put(shared, found ? static_cast<int>(ids[k]) : -1, values[k]);
      }
    }
#pragma unroll 16
    for (int i = lane_id(); i < rows; i += kWarp)
      line.y[i * all.step] = static_cast<T>(shared.places[i]);
  }

  // id: -1 if there is none.
  __device__ void put(Shared& shared, int id, C value) const {
    const unsigned same = warp_match(id);
    if (!all.adds) {  // the last of equal ids counts
      if (id >= 0 && same >> lane_id() == 1) shared.places[id] = value;
      return __syncwarp();
    }
    const int before = id < 0 ? 0 : __popc(same & ((1u << lane_id()) - 1));
    int turn = 0;
    do {
      if (id >= 0 && before == turn) shared.places[id] = static_cast<C>(shared.places[id] + value);
      __syncwarp();
    } while (warp_run(before <= turn++) < kWarp);
  }
};

// The ids are sorted, so equal ids form a run, in their order. A thread takes a chunk of a line and
// adds up its runs. The sum of a run that reaches beyond the chunk is kept for the thread in whose
// chunk the run begins. Without sums, the last element of a run takes the place of its sum.
constexpr int kChunk = 32;

template <class T>
struct ScatterChunks {
  static constexpr int kThreads = 128;
  using C = typename Scatter<T>::C;
  Scatter<T> all;
  C *heads, *tails;  // chunks x lines: of the run that began before, and of that which goes on
  int64_t chunks;
  Divider<uint64_t> lines;
  bool join;  // the second time, when heads and tails are known

  __device__ void operator()() const {
    const int64_t unit = global_thread();
    const auto chunk = static_cast<int64_t>(lines.quotient(unit));
    if (chunk >= chunks) return;
    const auto line = all.line(unit - chunk * all.line_count);
    join ? add_parts(line, chunk, unit) : add_runs(line, chunk, unit);
  }

  // Does element i continue the run of the element before it?
  __device__ bool goes_on(const typename Scatter<T>::Line& line, int64_t i) const {
    return i > 0 && i < all.count && all.id(line, i) == all.id(line, i - 1);
  }

  __device__ void add_runs(const typename Scatter<T>::Line& line, int64_t chunk,
                           int64_t unit) const {
    const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, all.count);
    bool began_before = goes_on(line, begin);
    C sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      sum = all.join(sum, all.sorted(line, i));
      if (i + 1 < end && goes_on(line, i + 1)) continue;
      if (began_before) {
        heads[unit] = sum;
      } else if (goes_on(line, i + 1)) {
        tails[unit] = sum;
      } else {
        all.put(line, all.id(line, i), sum);
      }
      began_before = false;
      sum = 0;
    }
  }

  // The run that begins in this chunk and ends in a later one.
  __device__ void add_parts(const typename Scatter<T>::Line& line, int64_t chunk,
                            int64_t unit) const {
    const int64_t last = std::min((chunk + 1) * kChunk, all.count) - 1;
    const int64_t id = all.id(line, last), begin = chunk * kChunk;
    if (!goes_on(line, last + 1)) return;
    if (goes_on(line, begin) && all.id(line, begin) == id) return;  // the run began before
    C sum = tails[unit];
    int64_t next = chunk + 1;
    do {
      sum = all.join(sum, heads[unit + (next - chunk) * all.line_count]);
      ++next;
    } while (goes_on(line, next * kChunk) && all.id(line, next * kChunk) == id);
    all.put(line, id, sum);
  }
};

template <class T>
Scatter<T> describe(Array& y, const Array& source, const Array& ids, const Array& positions,
                    int64_t dim, bool add, const IdCheck& in_range) {
  Shape lines = ids.shape();
  const int64_t count = std::exchange(lines[dim], 1);
  const Array y0 = constant_along(y, dim, lines), source0 = constant_along(source, dim, lines),
              ids0 = constant_along(ids, dim, lines),
              positions0 = constant_along(positions, dim, lines);
  const StridedLoop<4> loop(lines, {&y0, &source0, &ids0, &positions0});
  return {y.mutable_data<T>(),
          source.data<T>(),
          ids.data<int64_t>(),
          positions.data<int64_t>(),
          loop,
          y.strides()[dim],
          source.strides()[dim],
          ids.strides()[dim],
          positions.strides()[dim],
          lines.numel(),
          count,
          add,
          in_range};
}

template <class T>
void scatter_sorted(const Scatter<T>& all, Device device) {
  using C = typename Scatter<T>::C;
  const Divider<uint64_t> lines(all.line_count);
  const int64_t chunks = blocks_for(all.count, 1, kChunk), units = chunks * all.line_count;
  const auto [memory, parts] = scratch<C>(chunks > 1 ? 2 * units : 0, device);
  ScatterChunks<T> kernel{all, parts, parts + units, chunks, lines, false};
  launch("scatter", blocks_for(units, kernel.kThreads), kernel);
  if (chunks == 1) return;
  kernel.join = true;
  launch("scatter", blocks_for(units, kernel.kThreads), kernel);
}

// Calls f(bytes) with the shared memory for a line of y, if ScatterInPlace suits: neighbouring
// lanes must find neighbours, and lines be enough to fill a GPU or short enough to be soon done.
template <class C, class F>
bool in_place(const Array& y, const Array& source, const Array& ids, int64_t dim, const F& f) {
  const int64_t count = ids.shape()[dim], lines = ids.numel() / count, rows = y.shape()[dim];
  const int64_t bytes = rows * static_cast<int64_t>(sizeof(C));
  if (y.strides()[dim] != 1 || source.strides()[dim] > 1 || ids.strides()[dim] > 1) return false;
  if (count <= 64 || rows > 16 * count || count > std::max<int64_t>(4096, 512 * lines))
    return false;
  constexpr int kSmall = 8 << 10, kMiddle = 32 << 10, kLarge = 96 << 10;
  if (bytes > kLarge) return false;
  if (bytes <= kSmall) {
    f(std::integral_constant<int, kSmall>());
  } else if (bytes <= kMiddle) {
    f(std::integral_constant<int, kMiddle>());
  } else {
    f(std::integral_constant<int, kLarge>());
  }
  return true;
}

}  // namespace

void gather(Array& y, const Array& x, const Array& ids, int64_t dim, const char* op) {
  const IdCheck in_range(op, dim, x.shape());
  const Array base = constant_along(x, dim, ids.shape());
  const StridedLoop<3> loop(ids.shape(), {&y, &base, &ids});
  const int64_t step = x.strides()[dim];
  for_any(x.dtype(), [&]<class T>(T) {
    constexpr int V = kPacked<T>;
    T* out = y.mutable_data<T>();
    const T* in = x.data<T>();
    const bool rows = loop.inner_stride(1) == 1 && loop.inner_stride(2) == 0;
    const bool packs = rows && loop.sizes.back() % V == 0 && step % V == 0 &&
                       in_packs(loop, 0, out, sizeof(T) * V, V) &&
                       in_packs(loop, 1, in, sizeof(T) * V, V);
    packs ? launch_gather<T, V>(out, in, ids.data<int64_t>(), step, loop, in_range)
          : launch_gather<T, 1>(out, in, ids.data<int64_t>(), step, loop, in_range);
  });
}

void scatter(Array& y, const Array& source, const Array& ids, int64_t dim, bool add,
             const char* op) {
  if (ids.numel() == 0) return;
  const IdCheck in_range(op, dim, y.shape());
  const int64_t count = ids.shape()[dim], lines = ids.numel() / count;
  bool done = false;
  for_any(y.dtype(), [&]<class T>(T) {
    done = in_place<compute_t<T>>(y, source, ids, dim, [&]<int N>(std::integral_constant<int, N>) {
      launch("scatter", lines,
             ScatterInPlace<T, N>{describe<T>(y, source, ids, ids, dim, add, in_range),
                                  static_cast<int>(y.shape()[dim])});
    });
  });
  if (done) return;
  if (count <= 64 || lines >= 65536) {
    return for_any(y.dtype(), [&]<class T>(T) {
      launch("scatter", blocks_for(lines, ScatterLines<T>::kThreads),
             ScatterLines<T>{describe<T>(y, source, ids, ids, dim, add, in_range)});
    });
  }
  Layout once = ids.layout();  // without repeated dimensions
  for (int64_t d = 0; d < ids.dim(); ++d) {
    if (d != dim && once.strides[d] == 0) once.sizes[d] = 1;
  }
  Array sorted = Array::empty(once.sizes, i64, ids.device()),
        positions = Array::empty(once.sizes, i64, ids.device());
  sort_ids(sorted, positions, ids.seen_as(once), dim, y.shape()[dim]);
  for_any(y.dtype(), [&]<class T>(T) {
    scatter_sorted(describe<T>(y, source, sorted.expanded(ids.shape()),
                               positions.expanded(ids.shape()), dim, add, in_range),
                   y.device());
  });
}

}  // namespace ink::cuda
