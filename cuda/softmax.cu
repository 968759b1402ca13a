// softmax over the last dimension: the twin of autograd/ops/softmax.cpp. The one to copy.
//   y  = exp(x - max x) / sum exp(x - max x)
//   dx = y (dy - sum dy y)
// and, with kLog, of log_softmax.cpp:
//   y  = x - max x - log sum exp(x - max x)
//   dx = dy - exp(y) sum dy
#include "cuda/rows.cuh"

namespace ink::cuda {
namespace {

template <class T, class Plan, bool kLog>
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
    const C log_total =
        kLog ? simd::log_of_sum(sums.total, sums.template others<Plan>(a, scratch)) : 0;
    const auto result = [=](C v) {
      return kLog ? v - top - log_total : exp_nonpositive(v - top) * scale;
    };
    a.each([&](RowPlace i) { a.put(y + row * n, i, zip(result, a[i])); });
  }
};

template <class T, class Plan, bool kLog>
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
    C total = 0;
    a.each([&](RowPlace i) { total += kLog ? sum(g[i]) : sum(a[i] * g[i]); });
    total = Plan::template join<Plus>(total, scratch);
    const auto slope = [=](C v, C w) {
      return kLog ? w - exp_nonpositive(v) * total : v * (w - total);
    };
    a.each([&](RowPlace i) { a.put(dx + row * n, i, zip(slope, a[i], g[i])); });
  }
};

// Launches the kernel for rows of y and of the x..., all of one shape and one floating dtype.
template <template <class T, class Plan, bool> class Kernel, bool kLog, class... Inputs>
void launch_rows(const char* op, Array& y, const Inputs&... x) {
  constexpr int kEach = 32 / sizeof...(Inputs);  // elements of a row that a thread keeps
  for_float(op, y.dtype(), [&]<class T>(T) {
    const int64_t rows = row_count(y), n = y.size(-1);
    const auto run = [&](T* to, const auto*... from) {
      plan_rows<T, RowSize<kWarp, kEach>, RowSize<256, kEach, true>, RowSize<1024, kEach, true>>(
          n, {to, from...}, [&]<class Plan>(Plan) {
            launch(op, Plan::blocks(rows), Kernel<T, Plan, kLog>{to, from..., rows, n});
          });
    };
    run(y.mutable_data<T>(), x.template data<T>()...);
  });
}

}  // namespace

void softmax_rows(Array& y, const Array& x, bool log) {
  log ? launch_rows<Softmax, true>("log_softmax", y, x)
      : launch_rows<Softmax, false>("softmax", y, x);
}
void softmax_rows_backward(Array& dx, const Array& dy, const Array& y, bool log) {
  log ? launch_rows<SoftmaxBackward, true>("log_softmax_backward", dx, dy, y)
      : launch_rows<SoftmaxBackward, false>("softmax_backward", dx, dy, y);
}

void softmax(Array& y, const Array& x) { softmax_rows(y, x, false); }

void softmax_backward(Array& dx, const Array& dy, const Array& y) {
  softmax_rows_backward(dx, dy, y, false);
}

}  // namespace ink::cuda
