// sort, topk: along one dimension, line by line.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/gemm/small_product.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/lines.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/more_ops.h"

namespace ink {

namespace cpu {
namespace {

// Unsigned integers in the order of the values; NaN is the largest, -0 equals 0.
template <class T>
auto ordered(T v) {
  using Bits = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  using Key = std::make_unsigned_t<Bits>;
  constexpr int kSign = 8 * sizeof(T) - 1;
  const auto bits = std::bit_cast<Bits>(v + T(0));                       // -0 becomes 0
  const Key turned = static_cast<Key>(bits >> kSign) | Key{1} << kSign;  // all, or the sign
  return v != v ? static_cast<Key>(~Key{0}) : static_cast<Key>(bits) ^ turned;
}
uint64_t ordered(int64_t v) { return static_cast<uint64_t>(v) ^ 1ull << 63; }

// key[i] = that of element i, `step` elements apart: the elements' keys in their order, or, turned,
// the other way round.
template <class Key>
using MakeKeys = void (*)(Key* key, const std::byte* x, int64_t step, int64_t n, Key turned);

template <class T, class Key>
void make_keys(Key* key, const std::byte* elements, int64_t step, int64_t n, Key turned) {
  const T* x = reinterpret_cast<const T*>(elements);
  const auto make = [=](auto apart) {  // 1 at compile time makes vector code
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) key[i] = ordered(x[i * apart]) ^ turned;
  };
  step == 1 ? make(std::integral_constant<int64_t, 1>()) : make(step);
}

// An element's key and place in its line. Equal keys stay in their order.
struct Keyed {
  using Key = uint64_t;
  Key first;
  int64_t second;
  Keyed(Key key, int64_t index) : first(key), second(index) {}
  Key key() const { return first; }
  int64_t index() const { return second; }
  bool operator<(const Keyed& other) const {
    return first != other.first ? first < other.first : second < other.second;
  }
};
// The same in one number, for keys of 32 bits and lines of fewer than 2^32 elements.
struct Packed {
  using Key = uint32_t;
  uint64_t both;
  Packed(Key key, int64_t index)
      : both(static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(index)) {}
  Key key() const { return static_cast<Key>(both >> 32); }
  int64_t index() const { return both & 0xffffffff; }
  bool operator<(const Packed& other) const { return both < other.both; }
};

// Keys in a vector of the processor. Whole vectors are read, so memory for one follows the last
// key.
template <class Key>
constexpr int64_t kKeys = kVectorBytes / static_cast<int64_t>(sizeof(Key));

// Calls f(i, rank) for all n keys: the rank of key i is the number of keys that come before it.
template <class Key, class F>
void for_ranks(const Key* key, int64_t n, const F& f) {
  constexpr int64_t kLanes = kKeys<Key>;
  typedef Key Lanes __attribute__((vector_size(kVectorBytes)));
  constexpr auto kNumbers = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<Key, kLanes>{I...};
  }
  (std::make_index_sequence<kLanes>());
  for (int64_t begin = 0; begin < n; begin += kLanes) {
    const int64_t end = std::min(begin + kLanes, n);
    Lanes own, place, rank{};
    std::memcpy(&own, key + begin, sizeof own);
    std::memcpy(&place, kNumbers.data(), sizeof place);
    place += static_cast<Key>(begin);
    const auto count = [&rank](auto holds) { rank -= reinterpret_cast<Lanes>(holds); };  // -1 if so
    int64_t j = 0;
    for (; j < begin; ++j) count(key[j] <= own);
    for (; j < end; ++j) count((key[j] < own) | ((key[j] == own) & (static_cast<Key>(j) < place)));
    for (; j < n; ++j) count(key[j] < own);
    for (int64_t i = begin; i < end; ++i) f(i, static_cast<int64_t>(rank[i - begin]));
  }
}

// Vectors that hold fewer keys find no ranks: comparing is faster.
template <class Key>
constexpr bool kByRank = kKeys<Key> >= 4;
// So many items for each byte of their keys are few.
template <class Key>
constexpr int64_t kRadixSize = std::max<int64_t>(16, 2 * kKeys<Key>);

// Sorts by key, and keeps equal keys in their order. Few items are placed by rank, or compared.
// Others take a radix sort, from the lowest byte up; keys count from the smallest one, so that few
// bytes differ. key: those of all items.
template <class Item, class Key>
void sort_items(std::vector<Item>& items, std::vector<Item>& other, const Key* key) {
  const int64_t n = std::ssize(items);
  Key first = key[0], last = key[0];
#pragma omp simd reduction(min : first) reduction(max : last)
  for (int64_t i = 0; i < n; ++i) {
    first = key[i] < first ? key[i] : first;
    last = key[i] > last ? key[i] : last;
  }
  const int bytes = (64 - std::countl_zero(uint64_t{last} - first) + 7) / 8;
  const bool few = n <= kRadixSize<Key> * bytes;
  if (few && !kByRank<Key>) return std::sort(items.begin(), items.end());
  other.resize(items.size(), items[0]);
  if (few) {
    for_ranks(key, n, [&](int64_t i, int64_t rank) {
      other[static_cast<size_t>(rank)] = items[static_cast<size_t>(i)];
    });
    return items.swap(other);
  }
  for (int byte = 0; byte < bytes; ++byte) {
    const auto digit = [=](Item item) {
      return static_cast<uint8_t>((item.key() - first) >> (8 * byte));
    };
    std::array<size_t, 257> starts{};
    for (const Item& item : items) ++starts[digit(item) + 1u];
    if (starts[digit(items[0]) + 1u] == items.size()) continue;  // equal in all keys
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const Item& item : items) other[starts[digit(item)]++] = item;
    items.swap(other);
  }
}

// The first items in order of n, of which few are kept: a heap whose front is the last one to keep.
template <class Item, class Key>
void keep_first(std::vector<Item>& heap, int64_t kept, int64_t n, const Key* key) {
  constexpr int64_t kRun = 32;
  heap.clear();
  for (int64_t i = 0; i < kept; ++i) heap.emplace_back(key[i], i);
  std::make_heap(heap.begin(), heap.end());
  for (int64_t begin = kept; begin < n; begin += kRun) {
    const int64_t end = std::min(n, begin + kRun);
    const Key bound = heap.front().key();
    int better = 0;  // nearly always none of a run is
#pragma omp simd reduction(| : better)
    for (int64_t i = begin; i < end; ++i) better |= key[i] < bound;
    for (int64_t i = better ? begin : end; i < end; ++i) {
      if (key[i] >= heap.front().key()) continue;
      std::pop_heap(heap.begin(), heap.end());
      heap.back() = Item(key[i], i);
      std::push_heap(heap.begin(), heap.end());
    }
  }
}

// Up to these parts of a line, a heap is faster than selecting, which is faster than sorting all.
constexpr int64_t kFew = 32, kSome = 8;

// For all dtypes whose elements have as many bits as an Item's key, or fewer.
template <class Item>
void sort_by(MakeKeys<typename Item::Key> make, Array& values, Array& indices, const Array& x,
             int64_t dim, bool descending) {
  using Key = typename Item::Key;
  const Array values0 = first_of_lines(values, dim), indices0 = first_of_lines(indices, dim),
              x0 = first_of_lines(x, dim);
  const StridedLoop<3> loop(x0.shape(), {&values0, &indices0, &x0});
  const int64_t count = x.shape()[dim], kept = values.shape()[dim], size = size_of(x.dtype());
  const int64_t step = x.strides()[dim], out_step = values.strides()[dim];
  const std::byte* in = address_of(x);
  std::byte* out = writable_address_of(values);
  int64_t* places = indices.mutable_data<int64_t>();
  const Key turned = descending ? static_cast<Key>(~Key{0}) : 0;
  const auto lines = [&](auto offset, int64_t n) {
    std::vector<Key> keys(static_cast<size_t>(count + kKeys<Key>));
    std::vector<Item> items, other;
    // Writes the places of one line in their order.
    const auto find_places = [&](int64_t* place) {
      const Key* key = keys.data();
      if (kByRank<Key> && count <= kRadixSize<Key>) {
        return for_ranks(key, count, [&](int64_t i, int64_t rank) {
          if (rank < kept) place[rank * out_step] = i;
        });
      }
      if (kept <= count / kFew) {
        keep_first(items, kept, count, key);
      } else {
        items.clear();
        items.reserve(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) items.emplace_back(key[i], i);
      }
      if (kept > count / kSome) {
        sort_items(items, other, key);
      } else {  // of a heap, all are kept: nth_element has nothing to do
        std::nth_element(items.begin(), items.begin() + kept, items.end());
        std::sort(items.begin(), items.begin() + kept);
      }
      for (int64_t i = 0; i < kept; ++i)
        place[i * out_step] = items[static_cast<size_t>(i)].index();
    };
    for (int64_t line = 0; line < n; ++line) {
      const std::byte* from = in + (offset[2] + line * loop.inner_stride(2)) * size;
      std::byte* to = out + (offset[0] + line * loop.inner_stride(0)) * size;
      int64_t* place = places + offset[1] + line * loop.inner_stride(1);
      make(keys.data(), from, step, count, turned);
      find_places(place);
      for_bits(size, [&]<class Bits>(Bits) {
        const auto* element = reinterpret_cast<const Bits*>(from);
        auto* value = reinterpret_cast<Bits*>(to);
        for (int64_t i = 0; i < kept; ++i)
          value[i * out_step] = element[place[i * out_step] * step];
      });
    }
  };
  const int64_t work = kept <= count / kFew ? 1 : 8;  // an element, beside adding one
  loop.for_each_row(lines, kGrain / work / count);
}

}  // namespace

void sort(Array& values, Array& indices, const Array& x, int64_t dim, bool descending) {
  if (values.numel() == 0) return;
  const auto wide = [&]<class T>(T) {
    sort_by<Keyed>(make_keys<T, uint64_t>, values, indices, x, dim, descending);
  };
  if (x.dtype() == i64) return wide(int64_t{});
  if (x.dtype() == f64) return wide(double{});
  if (x.dtype() != f32) {  // bf16 and bool are floats
    Array sorted = Array::empty(values.shape(), f32);
    sort(sorted, indices, copied(x, f32), dim, descending);
    return copy(values, sorted);
  }
  if (x.shape()[dim] >> 32 != 0) return wide(float{});
  sort_by<Packed>(make_keys<float, uint32_t>, values, indices, x, dim, descending);
}

}  // namespace cpu

// values = the first k in order, indices = their places.   dx = dy at those places
static ValuesIndices sorted(const char* op, const Tensor& x, int64_t d, int64_t k,
                            bool descending) {
  Shape shape = x.shape();
  shape[d] = k;
  Tensor values = empty(shape, x.options()), indices = empty(shape, {i64, x.device()});
  kernel::sort(values, indices, x, d, descending);
  const auto vjp = [d, from = x.shape(), ids = Saved::input(indices)](const Tensor& dy) -> Grads {
    return {scatter_add(zeros(from, dy.options()), d, *ids, dy)};
  };
  return {record(op, {x}, values, vjp), indices};
}

// Treats a scalar as a line of one element.
template <class Op>
static ValuesIndices as_line(const char* name, const Tensor& x, Op op) {
  const auto [values, indices] = op(reshape(x, {1}));
  return {shown_as(name, reshape(values, {})), reshape(indices, {})};
}

ValuesIndices sort(const Tensor& x, NumberOf<int64_t> dim, bool descending) {
  check_defined("sort", x);
  const int64_t d = wrap_dim("sort", dim, x.shape());
  if (x.dim() == 0) return as_line("sort", x, [](const Tensor& line) { return sort(line); });
  return sorted("sort", x, d, x.shape()[d], descending);
}

ValuesIndices topk(const Tensor& x, int64_t k, NumberOf<int64_t> dim, bool largest) {
  check_defined("topk", x);
  const int64_t d = wrap_dim("topk", dim, x.shape()), n = x.dim() == 0 ? 1 : x.shape()[d];
  INK_CHECK(k >= 0 && k <= n, "topk: expected k between 0 and ", n, ", the size of dimension ", d,
            " of ", x.shape(), ", got ", k);
  if (x.dim() == 0)  // k says if its one element stays
    return as_line("topk", x, [](const Tensor& line) { return topk(line, 1); });
  return sorted("topk", x, d, k, largest);
}

Tensor argsort(const Tensor& x, NumberOf<int64_t> dim, bool descending) {
  check_defined("argsort", x);
  const NoGrad no_grad;
  wrap_dim("argsort", dim, x.shape());
  return sort(x, dim, descending).indices;
}

}  // namespace ink
