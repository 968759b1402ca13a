// Layer normalisation over the last dimension: the twin of autograd/ops/layer_norm.cpp.
//   y  = xhat w + b,  xhat = (x - mean x) rstd,  rstd = 1 / sqrt(mean (x - mean x)^2 + eps)
//   dx = rstd (dxhat - mean dxhat - xhat mean(dxhat xhat)),  dxhat = dy w
//   dw = sum over rows of dy xhat,  db = sum over rows of dy
// add_layer_norm: s = x + dropout(branch), y = layer_norm(s)
#include <cmath>

#include "cuda/norm.cuh"

namespace ink::cuda {
namespace {

// The norm of x, or, with kAdds, of x + branch, which is written to `sum`, too. With kDrops the
// branch is dropped first, and rounded as if it was written between.
template <class X, class Y, class Plan, bool kAdds, bool kDrops>
struct LayerNorm {
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
      const uint64_t key = kDrops ? dropout.key() : 0;
      a.add(branch + row * n, sum_of_both + row * n, [&](RowPlace i, const Pack<C, N>& v) {
        if (!kDrops) return v;
        return zip([](C w) { return static_cast<C>(static_cast<Y>(w)); },
                   v * dropout.template factors<C, N>(key, row * n + i.at));
      });
    }
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
    C m = near + drift, r = 1 / std::sqrt(squares - drift * drift + eps);
    if (!(2 * drift * drift <= squares && squares <= std::numeric_limits<C>::max()))
      find_moments(m, r, a, shared.wide);
    a.each([&](RowPlace i) {
      const auto scaled = [=](C v, C w, C b) { return (v - m) * r * w + b; };
      const auto offset = bias ? load<N>(bias + i.at) : Pack<C, N>{};
      store(y + row * n + i.at, zip(scaled, a[i], load<N>(weight + i.at), offset));
    });
    if (Plan::rank() == 0) {
      mean[row] = m;
      rstd[row] = r;
    }
  }

  // The same in double, for rows whose numbers are equal but for rounding, or so large that their
  // squares overflow. Distances from the first mean correct it.
  __device__ __forceinline__ void find_moments(C& m, C& r, const Row<X, Plan>& a,
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

template <bool kAdds>
void run(const char* op, Array* sum, Array& y, Array& mean, Array& rstd, const Array& x,
         const Array* branch, const NormParameters& p) {
  for_norm(op, x, y, [&]<class X, class Y>(X, Y) {
    using C = compute_t<X>;
    Y* out = y.mutable_data<Y>();
    X* both = sum ? sum->mutable_data<X>() : nullptr;
    const X* in = x.data<X>();
    const Y* added = branch ? branch->data<Y>() : nullptr;
    const C *w = p.weight.data<C>(), *b = p.bias.defined() ? p.bias.data<C>() : nullptr;
    const int64_t rows = row_count(x), n = x.size(-1);
    const DropoutFactors factors(x, p.dropout.p, p.dropout.at);
    const auto start = [&]<bool kDrops>(std::bool_constant<kDrops>) {
      plan_rows<X>(n, {out, in, w, b, added, both}, [&]<class Plan>(Plan) {
        launch(op, Plan::blocks(rows),
               LayerNorm<X, Y, Plan, kAdds, kDrops>{out, mean.mutable_data<C>(),
                                                    rstd.mutable_data<C>(), in, w, b, rows, n,
                                                    static_cast<C>(p.eps), added, both, factors});
      });
    };
    if (p.dropout.p > 0) return start(std::bool_constant<kAdds>());  // only a branch is dropped
    start(std::false_type());
  });
}

}  // namespace

void layer_norm(Array& y, Array& mean, Array& rstd, const Array& x, const NormParameters& p) {
  run<false>("layer_norm", nullptr, y, mean, rstd, x, nullptr, p);
}

void add_layer_norm(Array& sum, Array& y, Array& mean, Array& rstd, const Array& x,
                    const Array& branch, const NormParameters& p) {
  run<true>("add_layer_norm", &sum, y, mean, rstd, x, &branch, p);
}

void layer_norm_backward(NormGradients d, const Array& dy, const Array& x, const Array& mean,
                         const Array& rstd, const Array& weight) {
  norm_backward<true>("layer_norm_backward", d, dy, x, mean, rstd, weight);
}

}  // namespace ink::cuda
