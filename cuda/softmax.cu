// softmax over the last dimension: the twin of autograd/ops/softmax.cpp. The one to copy.
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

template <class T, class Plan>
struct Softmax {
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
    const C top = sums.top, scale = 1 / sums.total;
    a.each([&](RowPlace i) {
      a.put(y + row * n, i, zip([=](C v) { return exp_nonpositive(v - top) * scale; }, a[i]));
    });
  }
};

template <class T, class Plan>
struct SoftmaxBackward {
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
    C dot = 0;
    a.each([&](RowPlace i) { dot += sum(a[i] * g[i]); });
    dot = Plan::template join<Plus>(dot, scratch);
    a.each([&](RowPlace i) {
      a.put(dx + row * n, i, zip([=](C v, C w) { return v * (w - dot); }, a[i], g[i]));
    });
  }
};

}  // namespace

void softmax(Array& y, const Array& x) { launch_rows<Softmax>("softmax", y, x); }

void softmax_backward(Array& dx, const Array& dy, const Array& y) {
  launch_rows<SoftmaxBackward>("softmax_backward", dx, dy, y);
}

}  // namespace ink::cuda
