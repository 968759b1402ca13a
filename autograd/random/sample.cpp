// Draws from probabilities: bernoulli, exponential, multinomial.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/random/generator.h"

namespace ink {
namespace {

using Lock = std::lock_guard<std::mutex>;

/// MKL's MCG31m1, the multiplicative congruential generator of L'Ecuyer (1999), as MKL reads floats
/// from it: the state rounds to float first.
class Mcg31 {
 public:
  explicit Mcg31(uint32_t seed) : x_(seed % kModulus == 0 ? 1 : seed % kModulus) {}

  /// The next number in (0, 1].
  float next() {
    const float u = static_cast<float>(x_) * 0x1p-31f;
    x_ = x_ * 1132489760 % kModulus;
    return u;
  }

 private:
  static constexpr uint64_t kModulus = (1ull << 31) - 1;
  uint64_t x_;
};

void check_probability(double p) {
  INK_CHECK(p >= 0.0 && p <= 1.0, "bernoulli_: expected a probability in [0, 1], got ", p);
}

double exponential(Generator& g) { return -std::log1p(-g.uniform53()); }

template <class T>
void check_weights(const T* w, int64_t categories, int64_t needed) {
  int64_t positive = 0;
  for (int64_t i = 0; i < categories; ++i) {
    INK_CHECK(w[i] >= 0 && std::isfinite(w[i]), "multinomial: expected finite weights >= 0, got ",
              w[i], " at index ", i);
    positive += w[i] > 0;
  }
  INK_CHECK(positive >= needed, "multinomial: expected at least ", needed,
            " positive weights a row, got ", positive);
}

/// With replacement: each sample is where a uniform falls in the cumulative distribution.
template <class T>
void sample_row(int64_t* out, const T* w, std::vector<T>& cumulative, int64_t samples,
                Generator& g) {
  T sum = 0;
  for (size_t i = 0; i < cumulative.size(); ++i) cumulative[i] = sum += w[i];
  for (T& c : cumulative) c /= sum;
  cumulative.back() = 1;
  for (int64_t s = 0; s < samples; ++s) {
    const auto below = [](T c, double u) { return c < u; };
    const auto slot = std::lower_bound(cumulative.begin(), cumulative.end(), g.uniform53(), below);
    out[s] = slot - cumulative.begin();
  }
}

/// Without replacement: the samples are the indices with the largest weight / Exp(1), in that order
/// (an exponential race). Of two equal scores the first wins; PyTorch may take either.
template <class T>
void race_row(int64_t* out, const T* w, std::vector<T>& score, int64_t samples, Generator& g) {
  for (size_t i = 0; i < score.size(); ++i) score[i] = w[i] / static_cast<T>(exponential(g));
  std::vector<int64_t> order(score.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::partial_sort(order.begin(), order.begin() + samples, order.end(), [&](int64_t a, int64_t b) {
    const T x = score[static_cast<size_t>(a)], y = score[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  std::copy_n(order.begin(), samples, out);
}

}  // namespace

void bernoulli_(float* out, int64_t n, double p, Generator& g, BernoulliRule rule) {
  check_probability(p);
  const Lock lock(g.mutex());
  if (rule == BernoulliRule::mkl) {
    Mcg31 mcg(g.random());
    const float threshold = static_cast<float>(p);
    for (int64_t i = 0; i < n; ++i) out[i] = mcg.next() < threshold ? 1.0f : 0.0f;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = g.uniform53() < p ? 1.0f : 0.0f;
  }
}

void bernoulli_(float* out, int64_t n, const float* p, Generator& g) {
  const Lock lock(g.mutex());
  for (int64_t i = 0; i < n; ++i) {
    check_probability(p[i]);
    out[i] = g.uniform24() < p[i] ? 1.0f : 0.0f;
  }
}

void bernoulli_(float* out, int64_t n, const double* p, Generator& g) {
  const Lock lock(g.mutex());
  for (int64_t i = 0; i < n; ++i) {
    check_probability(p[i]);
    out[i] = g.uniform53() < p[i] ? 1.0f : 0.0f;
  }
}

template <class T>
void exponential_(T* out, int64_t n, double lambda, Generator& g) {
  INK_CHECK(lambda > 0.0, "exponential_: expected a rate > 0, got ", lambda);
  const Lock lock(g.mutex());
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<T>(-1.0 / lambda * std::log1p(-g.uniform53()));
  }
}
template void exponential_(float*, int64_t, double, Generator&);
template void exponential_(double*, int64_t, double, Generator&);

// PyTorch takes one sample without replacement in either case.
template <class T>
void multinomial_(int64_t* out, const T* weights, int64_t rows, int64_t categories, int64_t samples,
                  bool replacement, Generator& g) {
  const bool race = !replacement || samples == 1;
  for (int64_t r = 0; r < rows; ++r) {
    check_weights(weights + r * categories, categories, race ? samples : 1);
  }
  std::vector<T> scratch(static_cast<size_t>(categories));
  const Lock lock(g.mutex());
  for (int64_t r = 0; r < rows; ++r, out += samples, weights += categories) {
    if (race) {
      race_row(out, weights, scratch, samples, g);
    } else {
      sample_row(out, weights, scratch, samples, g);
    }
  }
}

template void multinomial_(int64_t*, const float*, int64_t, int64_t, int64_t, bool, Generator&);
template void multinomial_(int64_t*, const double*, int64_t, int64_t, int64_t, bool, Generator&);

}  // namespace ink
