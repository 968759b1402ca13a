// log_softmax over the last dimension: the twin of autograd/ops/log_softmax.cpp.
//   y  = x - max x - log sum exp(x - max x)
//   dx = dy - exp(y) sum dy
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

template <class T, class Plan>
struct LogSoftmax {
  static constexpr int kThreads = Plan::kThreads;
  using C = compute_t<T>;
  using Shared = BlockScratch<C>;
  T* y;
  const T* x;
  int64_t rows, n;

  __device__ void operator()(Shared& scratch) const {
    const int64_t row = Plan::row();
    if (row >= rows) return;
    const Row<T, Plan> a(x, row * n, n, -infinity<C>());
    SoftmaxSums<C> sums;
    a.each([&](RowPlace i) { sums.add(a[i]); });
    sums.template join<Plan>(scratch);
    const C top = sums.top,
            log_total = simd::log_of_sum(sums.total, sums.template others<Plan>(a, scratch));
    a.each([&](RowPlace i) {
      a.put(y + row * n, i, zip([=](C v) { return v - top - log_total; }, a[i]));
    });
  }
};

template <class T, class Plan>
struct LogSoftmaxBackward {
  static constexpr int kThreads = Plan::kThreads;
  using C = compute_t<T>;
  using Shared = BlockScratch<C>;
  T* dx;
  const T *dy, *y;
  int64_t rows, n;

  __device__ void operator()(Shared& scratch) const {
    const int64_t row = Plan::row();
    if (row >= rows) return;
    const Row<T, Plan> a(y, row * n, n), g(dy, row * n, n);
    C total = 0;
    g.each([&](RowPlace i) { total += sum(g[i]); });
    total = Plan::template join<Plus>(total, scratch);
    a.each([&](RowPlace i) {
      const auto slope = [=](C v, C w) { return w - exp_nonpositive(v) * total; };
      a.put(dx + row * n, i, zip(slope, a[i], g[i]));
    });
  }
};

}  // namespace

void log_softmax(Array& y, const Array& x) { launch_rows<LogSoftmax>("log_softmax", y, x); }

void log_softmax_backward(Array& dx, const Array& dy, const Array& y) {
  launch_rows<LogSoftmaxBackward>("log_softmax_backward", dx, dy, y);
}

}  // namespace ink::cuda
