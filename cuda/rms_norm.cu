// Root-mean-square normalisation over the last dimension: the twin of autograd/ops/rms_norm.cpp.
//   y  = xhat w,  xhat = x rstd,  rstd = 1 / sqrt(mean x^2 + eps)
//   dx = rstd (dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat
#include <cmath>
#include <type_traits>

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
    const Row<X, Plan> a(x, row * n, n);
    const auto rstd_of = [&](C scale) {  // computed from scale x, a power of two
      C squares = 0;
      const auto square = [=](C v) { return (v * scale) * (v * scale); };
      a.each([&](RowPlace i) { squares += sum(zip(square, a[i])); });
      squares = Plan::template join<Plus>(squares, scratch);
      return scale / std::sqrt(squares / static_cast<C>(n) + eps * scale * scale);
    };
    C r = rstd_of(1);
    if (r == 0) r = rstd_of(std::is_same_v<C, double> ? C(0x1p-530) : C(0x1p-70));  // overflow
    a.each([&](RowPlace i) {
      const auto scaled = [=](C v, C w) { return v * r * w; };
      store(y + row * n + i.at, zip(scaled, a[i], load<N>(weight + i.at)));
    });
    if (Plan::rank() == 0) rstd[row] = r;
  }
};

}  // namespace

void rms_norm(Array& y, Array& rstd, const Array& x, const NormParameters& p) {
  for_norm("rms_norm", x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    Y* out = y.mutable_data<Y>();
    const X* in = x.data<X>();
    const C* w = p.weight.data<C>();
    const int64_t rows = row_count(x), n = x.size(-1);
    plan_rows<X>(n, {out, in, w}, [&]<class Plan>(Plan) {
      launch(
          "rms_norm", Plan::blocks(rows),
          RmsNorm<X, Y, Plan>{out, rstd.mutable_data<C>(), in, w, rows, n, static_cast<C>(p.eps)});
    });
  });
}

void rms_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& rstd,
                       const Array& weight) {
  norm_backward<false>("rms_norm_backward", d, dy, x, Array(), rstd, weight);
}

}  // namespace ink::cuda
