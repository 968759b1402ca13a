// Cross entropy of logits (rows, V) with the classes that targets (rows) name: the twin of
// autograd/ops/cross_entropy.cpp.
//   loss_i    = lse_i - x_i[target_i] + z lse_i^2,  lse_i = log sum exp x_i;  0 where the target is
//               ignored
//   dlogits_i = ((1 + 2 z lse_i) softmax x_i - onehot target_i) scale
// The logits are read once and their gradient is written once. In a row longer than 57,344 elements
// (half that in f64), the elements beyond are read twice.
#include <algorithm>
#include <type_traits>

#include "cuda/ids.cuh"
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

// How rows of up to 57,344 logits are kept. The kernel is bound by memory. So two blocks share a
// multiprocessor if logits are bf16, and one loads its row while the other computes or stores.
template <class T>
using Longest =
    std::conditional_t<sizeof(T) == 2, RowSize<512, 24, true, 88>, RowSize<1024, 32, true, 24>>;

// A target that is out of range counts as ignored until the host throws the fault.
template <class T, class Plan>
struct CrossEntropy {
  static constexpr int kThreads = Plan::kThreads, N = Plan::N,
                       kResident = Plan::kThreads == 512 ? 2 : 1;
  using C = compute_t<T>;
  struct Parking : BlockScratch<C> {
    ParkedRow<T, Plan> row;
  };
  struct Shared : std::conditional_t<(Plan::kParked > 0), Parking, BlockScratch<C>> {
    BlockScratch<double> sums;
    bool last;
  };
  C* loss;            // scale times the sum of all losses; null: not wanted
  double* of_groups;  // sums of losses
  BlockGroups groups;
  C* losses;
  T* dlogits;  // null: not wanted; may be the logits
  const T* logits;
  const int64_t* targets;
  const C* scale;                       // null: 1
  int64_t rows, n, step, ignore_index;  // rows are `step` elements apart
  C z;
  IdCheck in_range;

  __device__ void operator()(Shared& shared) const {
    const int64_t row = Plan::row();
    if (row < rows) one_row(row, shared);
    if (loss == nullptr || !groups.is_last_of_group(shared.last)) return;
    const int64_t first = int64_t{groups.first()} * Plan::kRows,
                  end = first + int64_t{groups.blocks()} * Plan::kRows;
    const int64_t count = (end < rows ? end : rows) - first;
    const double sum = block_sum_of<kThreads>(losses + first, count, shared.sums);
    if (threadIdx.x == 0) of_groups[groups.group()] = sum;
    if (!groups.is_last_group(shared.last)) return;
    const double total = block_sum_of<kThreads>(of_groups, groups.count, shared.sums);
    if (threadIdx.x == 0) *loss = static_cast<C>(total) * (scale ? *scale : C(1));
  }

  __device__ __forceinline__ void one_row(int64_t row, Shared& scratch) const {
    const int64_t target = targets[row];
    if (target == ignore_index || !in_range(target, row)) return ignore(row);
    const C weight = scale ? *scale : C(1);
    ParkedRow<T, Plan>* parked = nullptr;
    if constexpr (Plan::kParked > 0) parked = &scratch.row;
    const Row<T, Plan> a(logits, row * step, n, -infinity<C>(), parked);
    SoftmaxSums<C> sums;
    a.each([&](RowPlace i) { sums.add(a[i]); });
    BlockScratch<C>& shared = scratch;
    sums.template join<Plan>(shared);
    const C top = sums.top, others = sums.template others<Plan>(a, shared),
            lse = simd::log_of_sum(sums.total, others), more = z == 0 ? C(0) : 2 * z * (lse + top),
            share = weight / sums.total * (1 + more);
    const bool one_term = sums.total < simd::kOneTerm<C>;
    C chosen = 0;  // the logit of the target, in the one thread that has it
    bool has_chosen = false;
    a.each([&](RowPlace i) {
      const bool here = i.at <= target && target < i.at + N;
      if (dlogits == nullptr && !here) return;
      const Pack<C, N> v = a[i];
      Pack<C, N> d = zip([=](C w) { return exp_nonpositive(w - top) * share; }, v);
      if (here) {
        has_chosen = true;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          chosen = i.at + j == target ? v.at[j] : chosen;
          if (i.at + j != target) continue;
          const bool alone = one_term && chosen == top;
          d.at[j] = alone ? weight / sums.total * (more - others) : d.at[j] - weight;
        }
      }
      if (dlogits) a.put(dlogits + row * step, i, d);
    });
    if (has_chosen)
      losses[row] = lse + (top - chosen) + (z == 0 ? C(0) : z * (lse + top) * (lse + top));
  }

  __device__ void ignore(int64_t row) const {
    if (Plan::rank() == 0) losses[row] = 0;
    if (dlogits == nullptr) return;
    for (int64_t i = Plan::rank(); i < n; i += Plan::kSize) dlogits[row * step + i] = T(0);
  }
};

template <class C>
struct TargetScale {
  static constexpr int kThreads = 1024;
  using Shared = BlockScratch<int64_t>;
  C* scale;
  const int64_t* targets;
  int64_t n, ignore_index;

  __device__ void operator()(Shared& scratch) const {
    int64_t counted = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) counted += targets[i] != ignore_index;
    counted = block_sum<kThreads>(counted, scratch);
    if (threadIdx.x == 0) *scale = static_cast<C>(1 / static_cast<double>(counted));
  }
};

}  // namespace

void target_scale(Array& scale, const Array& targets, int64_t ignore_index) {
  for_float("target_scale", scale.dtype(), [&]<class C>(C) {
    launch("target_scale", 1,
           TargetScale<C>{scale.mutable_data<C>(), targets.data<int64_t>(), targets.numel(),
                          ignore_index});
  });
}

void cross_entropy(Array& loss, Array& dlogits, const Array& logits, const Array& targets,
                   const Array& scale, int64_t ignore_index, double z_loss) {
  for_float("cross_entropy", logits.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const int64_t rows = targets.numel(), n = logits.size(-1), step = row_step(logits);
    Array by_row = loss.dim() ? loss : Array::empty(Shape{rows}, loss.dtype(), loss.device());
    C* losses = by_row.mutable_data<C>();
    T* down = dlogits.defined() ? dlogits.mutable_data<T>() : nullptr;
    const T* in = logits.data<T>();
    const C* weight = scale.defined() ? scale.data<C>() : nullptr;
    C* total = loss.dim() == 0 ? loss.mutable_data<C>() : nullptr;
    const IdCheck in_range("cross_entropy", "target", n, "classes");
    plan_rows<T, RowSize<kWarp, 32>, RowSize<256, 32, true>, RowSize<1024, 32, true>, Longest<T>>(
        n, {down, in}, [&]<class Plan>(Plan) {
          const int64_t blocks = std::max<int64_t>(Plan::blocks(rows), 1);  // the sum of none is 0
          const BlockGroups groups(blocks);
          Array of_groups = Array::empty(Shape{groups.count}, f64, loss.device());
          launch("cross_entropy", blocks,
                 CrossEntropy<T, Plan>{total, of_groups.mutable_data<double>(), groups, losses,
                                       down, in, targets.data<int64_t>(), weight, rows, n, step,
                                       ignore_index, static_cast<C>(z_loss), in_range});
        });
  });
}

}  // namespace ink::cuda
