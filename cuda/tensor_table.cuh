// Kernels over many tensors at once. Their addresses and sizes are arguments of the launch.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "autograd/loops/optimizer.h"
#include "cuda/pack.cuh"

namespace ink::cuda {

/// Bytes of a table. A kernel's arguments may have 4 KB, and since CUDA 12.1 32,764 bytes.
inline constexpr int kSmallTable = 3968;
#if defined(CUDART_VERSION) && CUDART_VERSION < 12010
inline constexpr int kLargeTable = kSmallTable;
#else
inline constexpr int kLargeTable = 32000;
#endif

/// Some of the tensors of kLists parallel lists, cut into chunks; a block takes a chunk.
template <class T, int kLists, int kBytes>
struct TensorTable {
  static constexpr int kThreads = 256;
  static constexpr int64_t kChunk = 4096;  // elements
  struct Item {
    T* lists[kLists];
    bfloat16* rounded;  // a copy of the first, or null
    int64_t n;          // elements of each
    int first_chunk;    // in the table
    int index;          // in the lists
  };
  static constexpr int kMost = kBytes / sizeof(Item);
  int count = 0, chunks = 0;
  Item items[kMost];

  /// Empty tensors have a chunk, too.
  void add(Item item) {
    item.first_chunk = chunks;
    items[count++] = item;
    chunks += static_cast<int>(std::max<int64_t>((item.n + kChunk - 1) / kChunk, 1));
  }

  /// The tensors that the calling block works on.
  __device__ const Item& item() const {
    const int chunk = static_cast<int>(blockIdx.x);
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (items[middle].first_chunk <= chunk ? low : high) = middle;
    }
    return items[low];
  }

  /// Calls f(size, at) for each of the calling thread's packs in the block's chunk: `size` elements
  /// (a std::integral_constant), from the one numbered `at` on.
  template <class F>
  __device__ __forceinline__ void each(const Item& item, const F& f) const {
    constexpr int N = 16 / sizeof(T);
    const int64_t begin = (static_cast<int>(blockIdx.x) - item.first_chunk) * kChunk;
    const int64_t end = begin + kChunk < item.n ? begin + kChunk : item.n;
    auto addresses = reinterpret_cast<uintptr_t>(item.rounded);
    for (T* list : item.lists) addresses |= reinterpret_cast<uintptr_t>(list);
    const int64_t whole = addresses % 16 == 0 ? end - (end - begin) % N : begin;
    for (int64_t at = begin + threadIdx.x * N; at < whole; at += kThreads * N)
      f(std::integral_constant<int, N>(), at);
    for (int64_t at = whole + threadIdx.x; at < end; at += kThreads)
      f(std::integral_constant<int, 1>(), at);
  }
};

/// Calls f(table) with tables of all i whose tensor in `of` has elements of type T: one table if
/// they fit. pointers(i) gives the addresses of its tensors. rounded: undefined where there is no
/// copy, or an empty list.
template <class T, int kLists, class Pointers, class F>
void for_tables(const Arrays& of, Arrays& rounded, const Pointers& pointers, const F& f) {
  const auto fill = [&]<class Table>(Table table) {
    for (size_t i = 0; i < of.size(); ++i) {
      if (!of[i].defined() || of[i].dtype() != dtype_of<T>()) continue;
      typename Table::Item item{};
      const std::array<T*, kLists> addresses = pointers(i);
      std::copy(addresses.begin(), addresses.end(), item.lists);
      if (!rounded.empty() && rounded[i].defined())
        item.rounded = rounded[i].mutable_data<bfloat16>();
      item.n = of[i].numel();
      item.index = static_cast<int>(i);
      table.add(item);
      if (table.count == Table::kMost) f(std::exchange(table, Table()));
    }
    if (table.count > 0) f(table);
  };
  using Small = TensorTable<T, kLists, kSmallTable>;
  if (of.size() <= Small::kMost) {
    fill(Small());
  } else {
    fill(TensorTable<T, kLists, kLargeTable>());
  }
}

}  // namespace ink::cuda
