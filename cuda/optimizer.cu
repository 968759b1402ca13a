// Kernels of optimizers, over all parameters at once: the twins of autograd/loops/optimizer.cpp.
// The learning rate, the counts and whether a step is skipped are read on the device.
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "autograd/kernels/optimizer.h"
#include "autograd/loops/optimizer.h"
#include "autograd/loops/strided_loop.h"
#include "cuda/pack.cuh"

namespace ink::cuda {
namespace {

// ---- tables of tensors, which are arguments of a launch

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
  using Element = T;
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

/// Calls f(table) for each dtype that parameters can have: with tables of all i whose tensor in
/// `of` has that dtype, one if they fit. pointers(T{}, i) gives the addresses of the tensors.
/// rounded: undefined where there is no copy, or an empty list.
template <int kLists, class Pointers, class F>
void for_tables(const Arrays& of, Arrays& rounded, const Pointers& pointers, const F& f) {
  const auto fill = [&]<class T, int kBytes>(TensorTable<T, kLists, kBytes> table) {
    using Table = decltype(table);
    for (size_t i = 0; i < of.size(); ++i) {
      if (!of[i].defined() || of[i].dtype() != dtype_of<T>()) continue;
      typename Table::Item item{};
      const std::array<T*, kLists> addresses = pointers(T{}, i);
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
  const auto of_type = [&]<class T>(T) {
    using Small = TensorTable<T, kLists, kSmallTable>;
    if (of.size() <= Small::kMost) return fill(Small());
    fill(TensorTable<T, kLists, kLargeTable>());
  };
  of_type(float{});
  of_type(bfloat16{});
  of_type(double{});
}

// ---- gradient_norm

// Writes the fields of a step, by one block.
struct FinishNorm {
  double* totals = nullptr;  // sums of squares, of each launch
  int launch = 0, launches = 0;
  const void* loss = nullptr;
  DType loss_dtype = f32;
  int64_t loss_size = 0;
  double max_norm;
  double *grad_norm, *clip;
  bool* finite;
  int64_t* skipped;
  float* loss_sum;  // or null

  __device__ double loss_at(int64_t i) const {
    if (loss_dtype == f64) return static_cast<const double*>(loss)[i];
    if (loss_dtype == f32) return static_cast<const float*>(loss)[i];
    return static_cast<float>(static_cast<const bfloat16*>(loss)[i]);
  }
  template <int kThreads>
  __device__ void run(double total, BlockScratch<double>& scratch) const {
    if (launch + 1 < launches) {
      if (threadIdx.x == 0) totals[launch] = total;
      return;
    }
    double of_loss = 0, losses = 0;
    for (int64_t i = threadIdx.x; i < loss_size; i += kThreads) {
      of_loss += loss_at(i) * loss_at(i);
      losses += loss_at(i);
    }
    of_loss = block_sum<kThreads>(of_loss, scratch);
    losses = block_sum<kThreads>(losses, scratch);
    if (threadIdx.x > 0) return;
    for (int i = 0; i < launch; ++i) total += totals[i];
    const double norm = std::sqrt(total);
    const bool good = std::isfinite(norm) && std::isfinite(of_loss);
    const double ratio = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
    *grad_norm = norm;
    *clip = ratio < 1 ? ratio : 1;
    *finite = good;
    skipped[0] += good ? 0 : 1;
    skipped[1] = good ? 0 : skipped[1] + 1;
    if (good && loss_sum != nullptr) *loss_sum += static_cast<float>(losses);
  }
};

// The sum of the squares of a table, in double, which holds the square of any float: of each chunk,
// of each group of chunks, of all.
template <class Table>
struct GradientNorm {
  static constexpr int kThreads = Table::kThreads;
  struct Shared {
    BlockScratch<double> scratch;
    bool last;
  };
  Table table;
  double *of_chunks, *of_groups;
  BlockGroups groups;
  FinishNorm finish;

  __device__ void operator()(Shared& shared) const {
    const double squares = block_sum<kThreads>(squares_of_chunk(), shared.scratch);
    if (threadIdx.x == 0) of_chunks[blockIdx.x] = squares;
    if (!groups.is_last_of_group(shared.last)) return;
    const double sum =
        block_sum_of<kThreads>(of_chunks + groups.first(), groups.blocks(), shared.scratch);
    if (threadIdx.x == 0) of_groups[groups.group()] = sum;
    if (!groups.is_last_group(shared.last)) return;
    finish.run<kThreads>(block_sum_of<kThreads>(of_groups, groups.count, shared.scratch),
                         shared.scratch);
  }
  __device__ double squares_of_chunk() const {
    double total = 0;
    if (table.count == 0) return total;
    const auto& item = table.item();
    const auto* x = item.lists[0];
    table.each(item, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
      const auto wide = zip([](auto v) { return static_cast<double>(v); }, load<N>(x + at));
      total += sum(wide * wide);
    });
    return total;
  }
};

// ---- updates

// What the updates of a table share. The last block counts them, after all blocks have read the
// counts.
template <class Table>
struct Updates {
  Table table;
  const bool* finite;
  const double *clip, *lr, *lr_scale, *decay;
  int64_t* counts;
  unsigned* arrived = block_counts();

  Updates(const Table& tensors, ParameterLists& p, const OptimizerStep& step)
      : table(tensors),
        finite(step.finite.data<bool>()),
        clip(step.clip.data<double>()),
        lr(step.lr.data<double>()),
        lr_scale(p.lr_scale.data<double>()),
        decay(p.decay.data<double>()),
        counts(p.counts.mutable_data<int64_t>()) {}
  __device__ double rate(int parameter) const { return *lr * lr_scale[parameter]; }
  __device__ void count(bool& last) const {
    if (!is_last_block(arrived, gridDim.x, last)) return;
    for (int i = static_cast<int>(threadIdx.x); i < table.count; i += Table::kThreads)
      ++counts[table.items[i].index];
  }
};

template <class Table>
struct AdamW {
  static constexpr int kThreads = Table::kThreads;
  using T = typename Table::Element;
  using C = compute_t<T>;
  struct Shared {
    C keep, size, root2;  // 1 - lr decay, lr / correction 1, 1 / sqrt(correction 2)
    bool last;
  };
  Updates<Table> all;  // p, m, v, gradient
  double beta1, beta2;
  C new1, old2, new2, eps;

  __device__ void operator()(Shared& shared) const {
    if (!*all.finite) return;
    const auto& item = all.table.item();
    if (threadIdx.x < 2) find_factors(shared, item.index);
    __syncthreads();
    const C scale = static_cast<C>(*all.clip), keep = shared.keep, size = shared.size,
            root2 = shared.root2;
    T *p = item.lists[0], *m = item.lists[1], *v = item.lists[2];
    const T* g = item.lists[3];
    all.table.each(item, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
      const auto value = load<N>(p + at), m_old = load<N>(m + at), v_old = load<N>(v + at);
      const auto gradient = zip([=](C d) { return d * scale; }, load<N>(g + at));
      const auto m_new = zip([&](C a, C d) { return a + new1 * (d - a); }, m_old, gradient);
      const auto v_new = zip([&](C a, C d) { return old2 * a + new2 * d * d; }, v_old, gradient);
      const auto moved = [&](C w, C first, C second) {
        return w * keep - size * first / (std::sqrt(second) * root2 + eps);
      };
      const auto updated = zip(moved, value, m_new, v_new);
      store(p + at, updated);
      if (item.rounded) store(item.rounded + at, updated);
      store(m + at, m_new);
      store(v + at, v_new);
    });
    all.count(shared.last);
  }
  // Of the first two threads, each computes a power.
  __device__ void find_factors(Shared& to, int parameter) const {
    const auto t = static_cast<double>(all.counts[parameter] + 1), rate = all.rate(parameter);
    const double correction = 1 - std::pow(threadIdx.x == 0 ? beta1 : beta2, t);
    if (threadIdx.x == 0) {
      to.keep = static_cast<C>(1 - rate * all.decay[parameter]);
      to.size = static_cast<C>(rate / correction);
    } else {
      to.root2 = static_cast<C>(1 / std::sqrt(correction));
    }
  }
};

template <class Table>
struct Sgd {
  static constexpr int kThreads = Table::kThreads;
  using T = typename Table::Element;
  using C = compute_t<T>;
  struct Shared {
    bool last;
  };
  Updates<Table> all;  // p, momentum buffer or null, gradient
  C mu;
  bool nesterov;

  __device__ void operator()(Shared& shared) const {
    if (!*all.finite) return;
    const auto& item = all.table.item();
    const auto scale = static_cast<C>(*all.clip), shrink = static_cast<C>(all.decay[item.index]);
    const auto rate = static_cast<C>(all.rate(item.index));
    T *p = item.lists[0], *b = item.lists[1];
    const T* g = item.lists[2];
    all.table.each(item, [&]<int N>(std::integral_constant<int, N>, int64_t at) {
      const auto value = load<N>(p + at);
      auto change = zip([=](C d, C w) { return d * scale + shrink * w; }, load<N>(g + at), value);
      if (b != nullptr) {
        const auto moving = zip([&](C a, C d) { return mu * a + d; }, load<N>(b + at), change);
        store(b + at, moving);
        change = nesterov ? zip([&](C d, C a) { return d + mu * a; }, change, moving) : moving;
      }
      const auto updated = zip([&](C w, C d) { return w - rate * d; }, value, change);
      store(p + at, updated);
      if (item.rounded) store(item.rounded + at, updated);
    });
    all.count(shared.last);
  }
};

}  // namespace

void gradient_norm(OptimizerStep step, const Arrays& grads, const Array& loss, double max_norm) {
  Arrays none;
  const auto for_each_table = [&](const auto& f) {
    for_tables<1>(
        grads, none,
        [&]<class T>(T, size_t i) { return std::array{const_cast<T*>(grads[i].data<T>())}; }, f);
  };
  FinishNorm finish{
      .max_norm = max_norm,
      .grad_norm = step.grad_norm.mutable_data<double>(),
      .clip = step.clip.mutable_data<double>(),
      .finite = step.finite.mutable_data<bool>(),
      .skipped = step.skipped.mutable_data<int64_t>(),
      .loss_sum = step.loss_sum.defined() ? step.loss_sum.mutable_data<float>() : nullptr};
  if (loss.defined()) {
    finish.loss = address_of(loss);
    finish.loss_dtype = loss.dtype();
    finish.loss_size = loss.numel();
  }
  for_each_table([&](const auto&) { ++finish.launches; });
  const auto doubles = [&](int64_t n) {
    return Array::empty(Shape{n}, f64, step.grad_norm.device());
  };
  Array totals = doubles(std::max(finish.launches, 1));
  finish.totals = totals.mutable_data<double>();
  const auto start = [&]<class Table>(const Table& table) {
    const int64_t blocks = std::max(table.chunks, 1);
    const BlockGroups groups(blocks);
    Array sums = doubles(blocks + groups.count);
    double* of_chunks = sums.mutable_data<double>();
    launch("gradient_norm", blocks,
           GradientNorm<Table>{table, of_chunks, of_chunks + blocks, groups, finish});
    ++finish.launch;
  };
  for_each_table(start);
  if (finish.launches == 0) start(TensorTable<float, 1, kSmallTable>());
}

void adamw(ParameterLists& p, Arrays& m, Arrays& v, const OptimizerStep& step, double beta1,
           double beta2, double eps) {
  const auto addresses = [&]<class T>(T, size_t i) {
    return std::array{p.values[i].mutable_data<T>(), m[i].mutable_data<T>(), v[i].mutable_data<T>(),
                      const_cast<T*>(p.grads[i].data<T>())};
  };
  for_tables<4>(p.grads, p.rounded, addresses, [&]<class Table>(const Table& table) {
    using C = typename AdamW<Table>::C;
    launch("adamw", table.chunks,
           AdamW<Table>{Updates(table, p, step), beta1, beta2, static_cast<C>(1 - beta1),
                        static_cast<C>(beta2), static_cast<C>(1 - beta2), static_cast<C>(eps)});
  });
}

void sgd(ParameterLists& p, Arrays& buffers, const OptimizerStep& step, double momentum,
         bool nesterov) {
  const auto addresses = [&]<class T>(T, size_t i) {
    return std::array{p.values[i].mutable_data<T>(),
                      buffers.empty() ? nullptr : buffers[i].mutable_data<T>(),
                      const_cast<T*>(p.grads[i].data<T>())};
  };
  for_tables<3>(p.grads, p.rounded, addresses, [&]<class Table>(const Table& table) {
    launch("sgd", table.chunks,
           Sgd<Table>{Updates(table, p, step), static_cast<typename Sgd<Table>::C>(momentum),
                      nesterov});
  });
}

}  // namespace ink::cuda
