// Root-mean-square normalisation over the last dimension: the twin of autograd/ops/rms_norm.cpp.
//   y  = xhat w,  xhat = x rstd,  rstd = 1 / sqrt(mean x^2 + eps)
//   dx = rstd (dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat
#include <cmath>

#include "cuda/norm.cuh"

namespace ink::cuda {
namespace {

template <class X, class Y, class Plan>
struct RmsNorm {
  static constexpr int kThreads = Plan::kThreads, N = Plan::N;
  using C = compute_t<X>;
  using Shared = BlockScratch<C>;
  Y* y;
  C* rstd;
  const X* x;
  const C* weight;
  int64_t rows, n;
  C eps;

  __device__ void operator()(Shared& scratch) const {
    const int64_t row = Plan::row();
    if (row >= rows) return;
    const Row<X, Plan> a(x, row, n);
    C squares = 0;
    a.each([&](RowPlace i) { squares += sum(a[i] * a[i]); });
    squares = Plan::template join<Plus>(squares, scratch);
    const C r = 1 / std::sqrt(squares / static_cast<C>(n) + eps);
    a.each([&](RowPlace i) {
      const auto scaled = [=](C v, C w) { return v * r * w; };
      store(y + row * n + i.at, zip(scaled, a[i], load<N>(weight + i.at)));
    });
    if (Plan::rank() == 0) rstd[row] = r;
  }
};

}  // namespace

void rms_norm(Tensor& y, Tensor& rstd, const Tensor& x, const Tensor& weight, double eps) {
  for_norm("rms_norm", x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    Y* out = y.mutable_data<Y>();
    const X* in = x.data<X>();
    const C* w = weight.data<C>();
    const int64_t rows = row_count(x), n = x.size(-1);
    plan_rows<X>(n, {out, in, w}, [&]<class Plan>(Plan) {
      launch("rms_norm", Plan::blocks(rows),
             RmsNorm<X, Y, Plan>{out, rstd.mutable_data<C>(), in, w, rows, n, static_cast<C>(eps)});
    });
  });
}

void rms_norm_backward(Tensor& dx, Tensor& dweight, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, bool accumulate) {
  Tensor no_bias;
  norm_backward<false>("rms_norm_backward", dx, dweight, no_bias, dy, x, Tensor(), rstd, weight,
                       accumulate);
}

}  // namespace ink::cuda
