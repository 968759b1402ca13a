// Layer and root-mean-square normalisation: the twin of autograd/ops/layer_norm.cpp.
//   y  = xhat w + b,  xhat = (x - mean x) rstd,  rstd = 1 / sqrt(mean (x - mean x)^2 + eps)
//   dx = rstd (dxhat - mean dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat,  db = sum over rows of dy
// add_norm: s = x + dropout(branch), y = layer_norm(s) or rms_norm(s)
// The backward pass is one pass over x and dy, and the blocks' sums by the last of the blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "cuda/random.cuh"
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

/// Calls f(X{}, Y{}) with the C++ types of a norm's input and output. They are the same, or, under
/// Autocast, f32 and bf16.
template <class F>
void for_norm(const char* op, const Array& x, const Array& y, F&& f) {
  if (x.dtype() == f32 && y.dtype() == bf16) return f(float{}, bfloat16{});
  for_float(op, x.dtype(), [&]<class T>(T) { f(T{}, T{}); });
}

/// layer_norm or, not kCentred, rms_norm of x, or, with kAdds, of x + branch, which is written to
/// `sum`, too. With kDrops the branch is dropped first, and rounded as if it was written between.
template <class X, class Y, class Plan, bool kCentred, bool kAdds, bool kDrops>
struct Norm {
  static constexpr int kThreads = Plan::kThreads, N = Plan::N;
  using C = compute_t<X>;
  struct Shared {
    BlockScratch<C> scratch;
    BlockScratch<double> wide;
  };
  Y* y;
  C *mean, *rstd;
  const X* x;
  const C *weight, *bias;  // bias: null if there is none
  int64_t rows, n;
  C eps;
  const Y* branch;
  X* sum_of_both;
  DropoutFactors dropout;

  __device__ void operator()(Shared& shared) const {
    const int64_t row = Plan::row();
    if (row >= rows) return;
    BlockScratch<C>& scratch = shared.scratch;
    Row<X, Plan> a(x, row * n, n);
    if constexpr (kAdds) {
      const uint64_t key = kDrops ? dropout.draws.key() : 0;
      a.add(branch + row * n, sum_of_both + row * n, [&](RowPlace i, const Pack<C, N>& v) {
        if (!kDrops) return v;
        return zip([](C w) { return static_cast<C>(static_cast<Y>(w)); },
                   v * dropout.template factors<C, N>(key, row * n + i.at));
      });
    }
    C m = 0, r;
    if constexpr (kCentred)
      find_moments(m, r, a, shared);
    else
      r = rms_rstd(a, scratch);
    a.each([&](RowPlace i) {
      const auto scale = load<N>(weight + i.at);
      if constexpr (kCentred) {
        const auto scaled = [=](C v, C w, C b) { return (v - m) * r * w + b; };
        const auto offset = bias ? load<N>(bias + i.at) : Pack<C, N>{};
        store(y + row * n + i.at, zip(scaled, a[i], scale, offset));
      } else {
        store(y + row * n + i.at, zip([=](C v, C w) { return v * r * w; }, a[i], scale));
      }
    });
    if (Plan::rank() != 0) return;
    if (kCentred) mean[row] = m;
    rstd[row] = r;
  }

  __device__ __forceinline__ C rms_rstd(const Row<X, Plan>& a, BlockScratch<C>& scratch) const {
    const auto rstd_of = [&](C scale) {  // computed from scale x, a power of two
      C squares = 0;
      const auto square = [=](C v) { return (v * scale) * (v * scale); };
      a.each([&](RowPlace i) { squares += sum(zip(square, a[i])); });
      squares = Plan::template join<Plus>(squares, scratch);
      return scale / std::sqrt(squares / static_cast<C>(n) + eps * scale * scale);
    };
    const C r = rstd_of(1);
    return r != 0 ? r : rstd_of(std::is_same_v<C, double> ? C(0x1p-530) : C(0x1p-70));  // overflow
  }

  __device__ __forceinline__ void find_moments(C& m, C& r, const Row<X, Plan>& a,
                                               Shared& shared) const {
    BlockScratch<C>& scratch = shared.scratch;
    const C share = 1 / static_cast<C>(n);
    C total = 0;
    a.each([&](RowPlace i) { total += sum(a[i]); });
    const C near = Plan::template join<Plus>(total, scratch) * share;
    // Distances from a value near the mean, so that no digits are lost if mean >> std (Chan et al.
    // 1983).
    C drift = 0, squares = 0;
    a.each([&](RowPlace i) {
      const auto d = zip([=](C v) { return v - near; }, a[i]);
      drift += sum(d);
      squares += sum(d * d);
    });
    drift = Plan::template join<Plus>(drift, scratch);
    squares = Plan::template join<Plus>(squares, scratch);
    drift *= share;
    squares *= share;
    m = near + drift, r = 1 / std::sqrt(squares - drift * drift + eps);
    if (!(2 * drift * drift <= squares && squares <= std::numeric_limits<C>::max()))
      find_careful_moments(m, r, a, shared.wide);
  }

  // The same in double, for rows whose numbers are equal but for rounding, or so large that their
  // squares overflow. Distances from the first mean correct it.
  __device__ __forceinline__ void find_careful_moments(C& m, C& r, const Row<X, Plan>& a,
                                                       BlockScratch<double>& wide) const {
    const double count = static_cast<double>(n);
    const auto joined = [&](const auto& f) {
      double total = 0;
      a.each([&](RowPlace i) { total += sum(zip(f, a[i])); });
      return Plan::template join<Plus>(total, wide);
    };
    double exact = joined([](C v) { return static_cast<double>(v); }) / count;
    exact += joined([=](C v) { return v - exact; }) / count;
    const double squares = joined([=](C v) { return (v - exact) * (v - exact); });
    m = static_cast<C>(exact);
    r = static_cast<C>(1 / std::sqrt(squares / count + static_cast<double>(eps)));
  }
};

template <bool kCentred, bool kAdds>
void norm(const char* op, Array* sum, Array& y, Array& mean, Array& rstd, const Array& x,
          const Array* branch, const NormParameters& p) {
  for_norm(op, x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    Y* out = y.mutable_data<Y>();
    X* both = sum ? sum->mutable_data<X>() : nullptr;
    const X* in = x.data<X>();
    const Y* added = branch ? branch->data<Y>() : nullptr;
    const C *w = p.weight.data<C>(), *b = p.bias.defined() ? p.bias.data<C>() : nullptr;
    C* means = kCentred ? mean.mutable_data<C>() : nullptr;
    const int64_t rows = row_count(x), n = x.size(-1);
    const DropoutFactors factors(x, p.dropout.p, p.dropout.at);
    const auto start = [&]<bool kDrops>(std::bool_constant<kDrops>) {
      plan_rows<X, RowSize<kWarp, 32>, RowSize<256, 32>, RowSize<1024, 32>>(
          n, {out, in, w, b, added, both}, [&]<class Plan>(Plan) {
            launch(op, Plan::blocks(rows),
                   Norm<X, Y, Plan, kCentred, kAdds, kDrops>{out, means, rstd.mutable_data<C>(), in,
                                                             w, b, rows, n, static_cast<C>(p.eps),
                                                             added, both, factors});
          });
    };
    if (p.dropout.p > 0) return start(std::bool_constant<kAdds>());  // only a branch is dropped
    start(std::false_type());
  });
}

/// Computes dx, dw and db. Every warp (or block) takes rows gridDim.x * kRows apart. It keeps the
/// sums of its columns in registers; sums of columns without a register are in the block's row of
/// `partial`. The last block of each group adds up the group's rows, and the last of these blocks
/// the groups' sums, in double, as on the CPU.
template <class X, class Y, class Plan, bool kCentred, bool kDrops>
struct NormBackward {
  static constexpr int kThreads = Plan::kThreads, N = Plan::N, kHeld = Plan::kHeld;
  static constexpr bool kShared = Plan::kRows > 1;
  using C = compute_t<X>;
  using Values = Pack<C, N>;
  struct Shared {
    BlockScratch<C> scratch;
    alignas(16) C sums[kShared ? 2 * Plan::kSize * kHeld * N : 1];
    bool last;
  };
  X* dx;  // this and the next three: null if not wanted
  Y* dbranch;
  C *dweight, *dbias;  // (n)
  C* partial;          // (blocks, 2, n)
  double* of_groups;   // (groups, 2, n)
  BlockGroups groups;
  const Y* dy;
  const X* x;
  const C *mean, *rstd, *weight;
  int64_t rows, n;
  bool accumulate;
  DropoutFactors dropout;  // of dbranch

  struct Sums {
    Values weight[kHeld] = {}, bias[kHeld] = {};
  };

  __device__ void operator()(Shared& shared) const {
    Sums sums;
    const uint64_t key = kDrops ? dropout.draws.key() : 0;
    C* mine = partial + blockIdx.x * 2 * n;
    for (int64_t i = Plan::kSize * kHeld * N + threadIdx.x; i < n; i += kThreads)
      mine[i] = mine[n + i] = 0;
    if (Plan::kSize * kHeld * N < n) __syncthreads();
    const int64_t step = static_cast<int64_t>(gridDim.x) * Plan::kRows;
    for (int64_t row = Plan::row(); row < rows; row += step)
      one_row(row, sums, mine, key, shared.scratch);
    C* to = kShared ? shared.sums : mine;
    for (int turn = 0; turn < Plan::kRows; ++turn) {
      if (static_cast<int>(threadIdx.x) / Plan::kSize == turn) add_sums(to, sums, turn > 0);
      if (kShared) __syncthreads();
    }
    if constexpr (kShared)
      for (int64_t i = threadIdx.x; i < 2 * n; i += kThreads) mine[i] = shared.sums[i];
    if (dweight != nullptr || dbias != nullptr) add_blocks(shared.last);
  }

  __device__ __forceinline__ void add_blocks(bool& last) const {
    const int64_t columns = dbias != nullptr ? 2 * n : n;
    if (!groups.is_last_of_group(last)) return;
    for (int64_t i = threadIdx.x * N; i < columns; i += kThreads * N)
      store(of_groups + groups.group() * 2 * n + i,
            total_of(partial + groups.first() * 2 * n + i, groups.blocks()));
    if (!groups.is_last_group(last)) return;
    for (int64_t i = threadIdx.x * N; i < columns; i += kThreads * N) {
      C* to = i < n ? dweight : dbias;
      if (to != nullptr) store(to + (i < n ? i : i - n), total_of(of_groups + i, groups.count));
    }
  }
  template <class T>
  __device__ __forceinline__ Pack<double, N> total_of(const T* sums, unsigned count) const {
    Pack<double, N> total{};
#pragma unroll 8
    for (unsigned row = 0; row < count; ++row)
      total = total + zip([](T v) { return static_cast<double>(v); },
                          *reinterpret_cast<const Pack<T, N>*>(sums + row * 2 * n));
    return total;
  }

  __device__ __forceinline__ void one_row(int64_t row, Sums& sums, C* mine, uint64_t key,
                                          BlockScratch<C>& scratch) const {
    const Row<X, Plan> a(x, row * n, n);
    const Row<Y, Plan> g(dy, row * n, n);
    const C m = kCentred ? mean[row] : C(0), r = rstd[row], share = 1 / static_cast<C>(n);
    const auto xhat = [&](RowPlace i) { return zip([=](C v) { return (v - m) * r; }, a[i]); };
    const auto dxhat = [&](RowPlace i) { return g[i] * load<N>(weight + i.at); };
    C dot = 0, total = 0;
    a.each([&](RowPlace i) {
      const Values normal = xhat(i), d = dxhat(i);
      Values dw = g[i] * normal, db = g[i];
      if (i.slot < kHeld) {
        sums.weight[i.slot] = sums.weight[i.slot] + dw;
        if (kCentred) sums.bias[i.slot] = sums.bias[i.slot] + db;
      } else {
        store(mine + i.at, load<N>(mine + i.at) + dw);
        if (kCentred) store(mine + n + i.at, load<N>(mine + n + i.at) + db);
      }
      dot += sum(d * normal);
      total += sum(d);
    });
    dot = Plan::template join<Plus>(dot, scratch) * share;
    if (kCentred) total = Plan::template join<Plus>(total, scratch) * share;
    const C offset = kCentred ? total : C(0);
    if (dx == nullptr) return;
    a.each([&](RowPlace i) {
      X* to = dx + row * n + i.at;
      const auto slope = [=](C d, C normal) { return (d - (offset + normal * dot)) * r; };
      Values d = zip(slope, dxhat(i), xhat(i));
      if (accumulate) d = load<N>(to) + d;
      store(to, d);
      if (dbranch == nullptr) return;
      if (kDrops)  // what is dropped is rounded, as if it was written before
        d = zip([](C v) { return static_cast<C>(static_cast<Y>(v)); }, d) *
            dropout.template factors<C, N>(key, row * n + i.at);
      store(dbranch + row * n + i.at, d);
    });
  }

  // Writes this thread's sums, of the columns in registers, to `to` (2, n), or adds them.
  __device__ __forceinline__ void add_sums(C* to, const Sums& sums, bool add) const {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int64_t at = (Plan::rank() + k * Plan::kSize) * N;
      if (at >= n) break;
      store(to + at, add ? load<N>(to + at) + sums.weight[k] : sums.weight[k]);
      store(to + n + at, add ? load<N>(to + n + at) + sums.bias[k] : sums.bias[k]);
    }
  }
};

/// mean and dbias are undefined for rms_norm.
template <bool kCentred>
void norm_backward(const char* op, NormGradients& d, const Array& dy, const Array& x,
                   const Array& mean, const Array& rstd, const Array& weight) {
  const int64_t rows = row_count(x), n = x.size(-1);
  if (rows == 0) {
    for (Array* sum : {&d.dweight, &d.dbias})
      if (sum->defined()) fill(*sum, 0);
    return;
  }
  for_norm(op, x, dy, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    const X* in = x.data<X>();
    const Y* upstream = dy.data<Y>();
    X* down = d.dx.defined() ? d.dx.mutable_data<X>() : nullptr;
    Y* branch = d.dbranch.defined() ? d.dbranch.mutable_data<Y>() : nullptr;
    const C *means = mean.defined() ? mean.data<C>() : nullptr, *w = weight.data<C>();
    const auto sum = [](Array& s) { return s.defined() ? s.mutable_data<C>() : nullptr; };
    using Wider = std::conditional_t<sizeof(X) < sizeof(Y), Y, X>;
    const DropoutFactors factors(x, d.dropout.p, d.dropout.at);
    const auto run = [&]<class Plan, bool kDrops>(Plan, std::bool_constant<kDrops>) {
      using Kernel = NormBackward<X, Y, Plan, kCentred, kDrops>;
      const int64_t parts = std::min(Plan::blocks(rows), resident_blocks<Kernel>());
      const BlockGroups groups(parts);
      Array partial = Array::empty(Shape{parts, 2, n}, rstd.dtype(), rstd.device()),
            of_groups = Array::empty(Shape{groups.count, 2, n}, f64, rstd.device());
      launch(op, parts,
             Kernel{down, branch, sum(d.dweight), sum(d.dbias), partial.mutable_data<C>(),
                    of_groups.mutable_data<double>(), groups, upstream, in, means, rstd.data<C>(),
                    w, rows, n, d.accumulate, factors});
    };
    // 768 columns take as few registers as possible, and large blocks take few of them.
    plan_rows<Wider, RowSize<kWarp, 24>, RowSize<kWarp, 32>, RowSize<256, 8>, RowSize<256, 32>>(
        n, {in, upstream, down, branch, w, sum(d.dweight), sum(d.dbias)},
        [&](auto plan) { for_bool(d.dropout.p > 0, [&](auto drops) { run(plan, drops); }); });
  });
}

}  // namespace

void layer_norm(Array& y, Array& mean, Array& rstd, const Array& x, const NormParameters& p) {
  const auto run = mean.defined() ? norm<true, false> : norm<false, false>;
  run("layer_norm", nullptr, y, mean, rstd, x, nullptr, p);
}

void add_norm(Array& sum, Array& y, Array& mean, Array& rstd, const Array& x, const Array& branch,
              const NormParameters& p) {
  const auto run = mean.defined() ? norm<true, true> : norm<false, true>;
  run("add_norm", &sum, y, mean, rstd, x, &branch, p);
}

void layer_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& mean,
                         const Array& rstd, const Array& weight) {
  const auto run = mean.defined() ? norm_backward<true> : norm_backward<false>;
  run("layer_norm_backward", d, dy, x, mean, rstd, weight);
}

}  // namespace ink::cuda
