// Layer normalisation over the last dimension: the twin of autograd/ops/layer_norm.cpp.
//   y  = xhat w + b,  xhat = (x - mean x) rstd,  rstd = 1 / sqrt(mean (x - mean x)^2 + eps)
//   dx = rstd (dxhat - mean dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat,  db = sum over rows of dy
#include "cuda/norm.cuh"

namespace ink::cuda {
namespace {

template <class X, class Y, class Plan>
struct LayerNorm {
  static constexpr int kThreads = Plan::kThreads, N = Plan::N;
  using C = compute_t<X>;
  using Shared = BlockScratch<C>;
  Y* y;
  C *mean, *rstd;
  const X* x;
  const C *weight, *bias;
  int64_t rows, n;
  C eps;

  __device__ void operator()(Shared& scratch) const {
    const int64_t row = Plan::row();
    if (row >= rows) return;
    const Row<X, Plan> a(x, row, n);
    const C share = 1 / static_cast<C>(n);
    C total = 0;
    a.each([&](RowPlace i) { total += sum(a[i]); });
    const C near = Plan::template join<Plus>(total, scratch) * share;
    // Around a value near the mean, so that nothing is lost where mean >> std (Chan et al. 1983).
    C drift = 0, squares = 0;
    a.each([&](RowPlace i) {
      const auto d = zip([=](C v) { return v - near; }, a[i]);
      drift += sum(d);
      squares += sum(d * d);
    });
    drift = Plan::template join<Plus>(drift, scratch);
    squares = Plan::template join<Plus>(squares, scratch);
    const C m = near + drift * share;
    const C variance = (squares - drift * (drift * share)) * share;
    const C r = 1 / std::sqrt(variance + eps);
    a.each([&](RowPlace i) {
      const auto scaled = [=](C v, C w, C b) { return (v - m) * r * w + b; };
      store(y + row * n + i.at, zip(scaled, a[i], load<N>(weight + i.at), load<N>(bias + i.at)));
    });
    if (Plan::rank() == 0) {
      mean[row] = m;
      rstd[row] = r;
    }
  }
};

}  // namespace

void layer_norm(Tensor& y, Tensor& mean, Tensor& rstd, const Tensor& x, const Tensor& weight,
                const Tensor& bias, double eps) {
  for_norm("layer_norm", x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    Y* out = y.mutable_data<Y>();
    const X* in = x.data<X>();
    const C *w = weight.data<C>(), *b = bias.data<C>();
    const int64_t rows = row_count(x), n = x.size(-1);
    plan_rows<X>(n, {out, in, w, b}, [&]<class Plan>(Plan) {
      launch("layer_norm", Plan::blocks(rows),
             LayerNorm<X, Y, Plan>{out, mean.mutable_data<C>(), rstd.mutable_data<C>(), in, w, b,
                                   rows, n, static_cast<C>(eps)});
    });
  });
}

void layer_norm_backward(Tensor& dx, Tensor& dweight, Tensor& dbias, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, bool accumulate) {
  norm_backward<true>("layer_norm_backward", dx, dweight, dbias, dy, x, mean, rstd, weight,
                      accumulate);
}

}  // namespace ink::cuda
