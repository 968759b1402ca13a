// sort, topk: the twin of autograd/ops/sort.cpp, and sort_ids.
//
// Values become unsigned integers of the same order, the keys. Equal keys keep their order. A block
// sorts short lines in shared memory, several at once (Batcher's bitonic sort, by key and place).
// Long lines are sorted by a radix sort, digit by digit from the lowest:
//   1. count how many keys of a tile have each digit
//   2. compute from that where the tile's keys of each digit go
//   3. move all keys
#include <algorithm>
#include <bit>
#include <optional>
#include <type_traits>
#include <utility>

#include "cuda/sort.cuh"

#include "cuda/reduce.cuh"

namespace ink::cuda {
namespace {

// Unsigned integers in the order of the values; NaN is the largest, -0 equals 0.
__device__ uint32_t ordered(float v) {
  const auto bits = std::bit_cast<uint32_t>(v == 0 ? 0.0f : v);
  return v != v ? ~0u : bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ uint64_t ordered(double v) {
  const auto bits = std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);
  return v != v ? ~0ull : bits >> 63 ? ~bits : bits | 1ull << 63;
}
__device__ uint64_t ordered(int64_t v) { return static_cast<uint64_t>(v) ^ 1ull << 63; }
__device__ uint32_t ordered(bool v) { return v; }

// The lines of x along the sorted dimension, and the places for the first `kept` of each.
template <class T>
struct Lines {
  using Key = std::conditional_t<(sizeof(T) < 8), uint32_t, uint64_t>;
  T* values;
  int64_t* indices;
  const T* x;
  Places<3, uint64_t> heads;             // of a line in the three
  int64_t next_value, next_index, next;  // from an element of a line to the next
  int64_t line_count, count, kept;
  bool descending;

  __device__ T value(int64_t line, int64_t i) const { return x[heads.find(line)[2] + i * next]; }
  __device__ Key key(int64_t line, int64_t i) const {
    const Key key = ordered(static_cast<compute_t<T>>(value(line, i)));
    return descending ? ~key : key;
  }
  __device__ void put(int64_t line, int64_t rank, int64_t i) const {
    put_value(line, rank, i, value(line, i));
  }
  __device__ void put_value(int64_t line, int64_t rank, int64_t i, T value) const {
    const auto at = heads.find(line);
    values[at[0] + rank * next_value] = value;
    indices[at[1] + rank * next_index] = i;
  }
};

// ---- short lines

constexpr int kShort = 2048;

template <class T>
struct BlockSort {
  static constexpr int kThreads = 256;
  struct Shared {
    typename Lines<T>::Key keys[kShort];
    int places[kShort];
  };
  Lines<T> lines;
  int line_bits, bits;  // 2^line_bits slots of a line, 2^bits of the block
  bool neighbours;      // are lines closer than the elements of one?

  __device__ void operator()(Shared& shared) const {
    const int slots = 1 << bits, size = 1 << line_bits;
    for_slots([&](int slot, int64_t line, int i) {
      const bool real = line < lines.line_count && i < lines.count;
      shared.keys[slot] = real ? lines.key(line, i) : ~typename Lines<T>::Key{0};
      shared.places[slot] = real ? i : kShort;
    });
    for (int run = 2; run <= size; run *= 2) {
      for (int half = run / 2; half > 0; half /= 2) {
        __syncthreads();
        for (int i = threadIdx.x; i < slots / 2; i += kThreads) {
          const int a = 2 * i - (i & (half - 1)), b = a + half;
          const bool ascending = (a & (size - 1) & run) == 0;
          if (before(shared, b, a) != ascending) continue;
          std::swap(shared.keys[a], shared.keys[b]);
          std::swap(shared.places[a], shared.places[b]);
        }
      }
    }
    __syncthreads();
    for_slots([&](int slot, int64_t line, int rank) {
      if (line < lines.line_count && rank < lines.kept) lines.put(line, rank, shared.places[slot]);
    });
  }

  template <class F>
  __device__ void for_slots(const F& f) const {
    const int line_count_bits = bits - line_bits;
    for (int i = threadIdx.x; i < 1 << bits; i += kThreads) {
      const int line = neighbours ? i & ((1 << line_count_bits) - 1) : i >> line_bits;
      const int place = neighbours ? i >> line_count_bits : i & ((1 << line_bits) - 1);
      f((line << line_bits) + place, (static_cast<int64_t>(blockIdx.x) << line_count_bits) + line,
        place);
    }
  }
  __device__ static bool before(const Shared& shared, int a, int b) {
    return shared.keys[a] != shared.keys[b] ? shared.keys[a] < shared.keys[b]
                                            : shared.places[a] < shared.places[b];
  }
};

// ---- long lines

// Keys of lines of n elements, one line after the other, and their original places in the line.
template <class Key>
struct Keyed {
  Key* keys;
  int* places;
};

// A block takes a tile of a line, and a thread a digit.
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits, kItems = 8, kTile = kItems * kDigits;

// A step of the sort by one digit.
template <class Key>
struct RadixStep {
  Keyed<Key> from, to;
  int* counts;  // lines x digits x tiles: of a digit in a tile; then, in all tiles before
  int* totals;  // lines x digits
  int64_t n, tiles;
  int shift;

  __device__ int digit(Key key) const { return static_cast<int>(key >> shift) & (kDigits - 1); }
};

template <class Key>
struct CountDigits {
  static constexpr int kThreads = kDigits;
  struct Shared {
    int counts[kDigits];
  };
  RadixStep<Key> step;

  __device__ void operator()(Shared& shared) const {
    const int64_t line = blockIdx.x / step.tiles, tile = blockIdx.x % step.tiles;
    shared.counts[threadIdx.x] = 0;
    __syncthreads();
    for (int e = 0; e < kItems; ++e) {
      const int64_t i = tile * kTile + e * kThreads + threadIdx.x;
      if (i < step.n) atomicAdd(&shared.counts[step.digit(step.from.keys[line * step.n + i])], 1);
    }
    __syncthreads();
    step.counts[(line * kDigits + threadIdx.x) * step.tiles + tile] = shared.counts[threadIdx.x];
  }
};

// A warp takes a digit of a line.
template <class Key>
struct AddTiles {
  static constexpr int kThreads = kDigits;
  RadixStep<Key> step;

  __device__ void operator()() const {
    const int64_t row = global_thread() / kWarp;
    int* count = step.counts + row * step.tiles;
    int before = 0;
    for (int64_t begin = 0; begin < step.tiles; begin += kWarp) {
      const int64_t tile = begin + lane_id();
      const int own = tile < step.tiles ? count[tile] : 0, sum = warp_running<Plus>(own);
      if (tile < step.tiles) count[tile] = before + sum - own;
      before += warp_from(sum, kWarp - 1);
    }
    if (lane_id() == 0) step.totals[row] = before;
  }
};

template <class Key>
struct MoveKeys {
  static constexpr int kThreads = kDigits, kWarps = kThreads / kWarp;
  struct Shared {
    BlockScratch<int> scratch;
    int counts[kWarps][kDigits];  // of what a warp has seen; then where its keys go
  };
  RadixStep<Key> step;

  // Each warp takes a part of the tile, and its keys in order, 32 at a time.
  __device__ void operator()(Shared& shared) const {
    const int64_t line = blockIdx.x / step.tiles, tile = blockIdx.x % step.tiles;
    const int64_t begin = tile * kTile + warp_id() * kItems * kWarp + lane_id();
    const Keyed<Key> from = of_line(step.from, line), to = of_line(step.to, line);
    int* counts = shared.counts[warp_id()];
    for (int d = lane_id(); d < kDigits; d += kWarp) counts[d] = 0;
    __syncwarp();
    Key keys[kItems];
    int ranks[kItems];
#pragma unroll
    for (int e = 0; e < kItems; ++e) {
      const int64_t i = begin + e * kWarp;
      keys[e] = i < step.n ? from.keys[i] : Key{0};
    }
#pragma unroll
    for (int e = 0; e < kItems; ++e)
      ranks[e] = rank(counts, begin + e * kWarp < step.n ? step.digit(keys[e]) : -1);
    __syncthreads();
    find_starts(shared, line, tile);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kItems; ++e) {
      const int64_t i = begin + e * kWarp;
      if (i >= step.n) break;
      const int at = counts[step.digit(keys[e])] + ranks[e];
      to.keys[at] = keys[e];
      to.places[at] = from.places[i];
    }
  }

  __device__ Keyed<Key> of_line(const Keyed<Key>& all, int64_t line) const {
    return {all.keys + line * step.n, all.places + line * step.n};
  }
  // How many keys of this digit the warp has seen before; counts this one. No key: -1.
  __device__ static int rank(int* counts, int digit) {
    const unsigned same = warp_match(digit);
    const int before = __popc(same & ((1u << lane_id()) - 1));
    const int seen = digit < 0 ? 0 : counts[digit];
    __syncwarp();
    if (digit >= 0 && before == 0) counts[digit] = seen + __popc(same);
    __syncwarp();
    return seen + before;
  }
  __device__ void find_starts(Shared& shared, int64_t line, int64_t tile) const {
    const int64_t row = line * kDigits + threadIdx.x;
    int start =
        block_sum_before(step.totals[row], shared.scratch) + step.counts[row * step.tiles + tile];
    for (int warp = 0; warp < kWarps; ++warp) {
      const int count = shared.counts[warp][threadIdx.x];
      shared.counts[warp][threadIdx.x] = start;
      start += count;
    }
  }
};

// Sorts by the bits from first_bit to last_bit; returns where the result is, items or other.
template <class Key>
Keyed<Key> radix_sort(Keyed<Key> items, Keyed<Key> other, int64_t lines, int64_t n, int first_bit,
                      int last_bit, Device device) {
  RadixStep<Key> step{items, other, nullptr, nullptr, n, blocks_for(n, kTile), 0};
  const auto [counts, counts_data] = scratch<int>(lines * kDigits * step.tiles, device);
  const auto [totals, totals_data] = scratch<int>(lines * kDigits, device);
  step.counts = counts_data;
  step.totals = totals_data;
  for (step.shift = first_bit; step.shift < last_bit; step.shift += kDigitBits) {
    launch("sort", lines * step.tiles, CountDigits<Key>{step});
    launch("sort", blocks_for(lines * kDigits * kWarp, kDigits), AddTiles<Key>{step});
    launch("sort", lines * step.tiles, MoveKeys<Key>{step});
    std::swap(step.from, step.to);
  }
  return step.from;
}

// Ids below 2^32 - 1 have keys of half the size; those that have none, which are out of range, get
// the largest.
constexpr uint32_t kNoId = ~0u;
__device__ uint32_t id_key(int64_t id) {
  return id < 0 || id >= int64_t{kNoId} ? kNoId : static_cast<uint32_t>(id);
}

template <class T, class Key>
struct MakeKeys {
  static constexpr int kThreads = 256;
  Lines<T> lines;
  Keyed<Key> items;
  Divider<uint64_t> count;

  __device__ void operator()() const {
    const int64_t i = global_thread();
    const auto line = static_cast<int64_t>(count.quotient(i)), place = i - line * lines.count;
    if (line >= lines.line_count) return;
    if constexpr (std::is_same_v<Key, typename Lines<T>::Key>) {
      items.keys[i] = lines.key(line, place);
    } else {
      items.keys[i] = id_key(lines.value(line, place));
    }
    items.places[i] = static_cast<int>(place);
  }
};

template <class T, class Key>
struct PutSorted {
  static constexpr int kThreads = 256;
  Lines<T> lines;
  Keyed<Key> sorted;
  Divider<uint64_t> kept;

  __device__ void operator()() const {
    const int64_t i = global_thread();
    const auto line = static_cast<int64_t>(kept.quotient(i)), rank = i - line * lines.kept;
    if (line >= lines.line_count) return;
    const int place = sorted.places[line * lines.count + rank];
    if constexpr (!std::is_same_v<Key, typename Lines<T>::Key>) {  // its key is the id
      const Key key = sorted.keys[line * lines.count + rank];
      if (key != kNoId) return lines.put_value(line, rank, place, static_cast<T>(key));
    }
    lines.put(line, rank, place);
  }
};

// The bits in which the keys of x may differ.
template <class T>
std::pair<int, int> key_bits() {
  if (std::is_same_v<T, bool>) return {0, 8};
  if (std::is_same_v<T, bfloat16>) return {16, 32};
  return {0, 8 * sizeof(T)};
}

// ---- both

int bits_for(int64_t n) {  // the least b with 2^b >= n
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
}

template <class T>
void sort_short(const Lines<T>& lines, bool neighbours) {
  const int line_bits = bits_for(lines.count);
  const int bits = std::max(line_bits, std::min(10, line_bits + bits_for(lines.line_count)));
  launch("sort", blocks_for(lines.line_count, 1 << (bits - line_bits)),
         BlockSort<T>{lines, line_bits, bits, neighbours});
}

template <class Key, class T>
void sort_long(const Lines<T>& lines, std::pair<int, int> bits, Device device) {
  INK_CHECK(lines.count <= std::numeric_limits<int>::max(),
            "sort: expected at most 2^31 - 1 elements along the dimension, got ", lines.count);
  const int64_t n = lines.line_count * lines.count;
  const auto [keys, keys_data] = scratch<Key>(2 * n, device);
  const auto [places, places_data] = scratch<int>(2 * n, device);
  const Keyed<Key> items{keys_data, places_data}, other{keys_data + n, places_data + n};
  launch("sort", blocks_for(n, 256),
         MakeKeys<T, Key>{lines, items, Divider<uint64_t>(lines.count)});
  const Keyed<Key> sorted =
      radix_sort(items, other, lines.line_count, lines.count, bits.first, bits.second, device);
  launch("sort", blocks_for(lines.line_count * lines.kept, 256),
         PutSorted<T, Key>{lines, sorted, Divider<uint64_t>(lines.kept)});
}

// limit: the values are below it, if they are ids.
void sort_along(Array& values, Array& indices, const Array& x, int64_t dim, bool descending,
                std::optional<int64_t> limit) {
  if (values.numel() == 0) return;
  const Array values0 = first_of_lines(values, dim), indices0 = first_of_lines(indices, dim),
              x0 = first_of_lines(x, dim);
  const StridedLoop<3> loop(x0.shape(), {&values0, &indices0, &x0});
  for_any(x.dtype(), [&]<class T>(T) {
    const Lines<T> lines{values.mutable_data<T>(),
                         indices.mutable_data<int64_t>(),
                         x.data<T>(),
                         loop,
                         values.strides()[dim],
                         indices.strides()[dim],
                         x.strides()[dim],
                         x0.numel(),
                         x.shape()[dim],
                         values.shape()[dim],
                         descending};
    if (lines.count <= kShort) return sort_short(lines, loop.inner_stride(2) < lines.next);
    auto bits = key_bits<T>();
    if (limit) bits.second = std::clamp(bits_for(*limit), 1, bits.second);
    if constexpr (std::is_same_v<T, int64_t>) {
      if (limit && bits.second <= 32) return sort_long<uint32_t>(lines, bits, x.device());
    }
    sort_long<typename Lines<T>::Key>(lines, bits, x.device());
  });
}

}  // namespace

void sort(Array& values, Array& indices, const Array& x, int64_t dim, bool descending) {
  sort_along(values, indices, x, dim, descending, {});
}

void sort_ids(Array& sorted_ids, Array& positions, const Array& ids, int64_t dim, int64_t limit) {
  sort_along(sorted_ids, positions, ids, dim, false, limit);
}

}  // namespace ink::cuda
