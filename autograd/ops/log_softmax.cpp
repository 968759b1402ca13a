// log_softmax over one dimension.
//   y  = x - max x - log sum exp(x - max x)
//   dx = dy - exp(y) sum dy
#include <algorithm>
#include <limits>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/rows.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/simd.h"
#include "autograd/ops/shared/over_dim.h"

namespace ink {

namespace cpu {

void log_softmax(Array& y, const Array& x) {
  const auto row = []<class C>(int64_t n, C* b, const C* a) {
    const C top = max_of<C>(n, [&](int64_t i) { return a[i]; });
    const auto e = [&](int64_t i) { return simd::exp_nonpositive(a[i] - top); };
    const C total = sum_of<C>(n, e),
            log_total = simd::log_of_sum(total, others_of(total, simd::kOneTerm<C>, n, e));
    for (int64_t i = 0; i < n; ++i) b[i] = a[i] - top - log_total;
  };
  map_rows("log_softmax", row, y, x);
}

void log_softmax_backward(Array& dx, const Array& dy, const Array& y) {
  const auto row = []<class C>(int64_t n, C* d, const C* g, const C* a) {
    const C total = sum_of<C>(n, [&](int64_t i) { return g[i]; });
    for (int64_t i = 0; i < n; ++i) d[i] = g[i] - simd::exp_nonpositive(a[i]) * total;
  };
  map_rows("log_softmax_backward", row, dx, dy, y);
}

}  // namespace cpu

// Lines of n elements, `next` apart, side by side; a line starts `step` after the one before it.
template <class C>
static void log_softmax_lines(C* y, const C* x, int64_t lines, int64_t n, int64_t next,
                              int64_t step) {
  constexpr int64_t kLines = 128, kBlock = 32;  // of terms that are added up as C
  for (int64_t width; lines > 0; lines -= width, x += width * step, y += width * step) {
    width = std::min(lines, kLines);
    C top[kLines], large[kLines], small[kLines];  // maxima; sums of terms of 1/2 or more, of others
    double all_large[kLines] = {}, all_small[kLines] = {};
    std::fill_n(top, width, -std::numeric_limits<C>::infinity());
    for (int64_t i = 0; i < n; ++i) {
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) top[c] = std::max(top[c], x[i * next + c * step]);
    }
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      std::fill_n(large, width, C(0));
      std::fill_n(small, width, C(0));
      for (int64_t i = begin; i < std::min(n, begin + kBlock); ++i) {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
          const C e = simd::exp_nonpositive(x[i * next + c * step] - top[c]);
          small[c] += e < C(0.5) ? e : C(0);
          large[c] += e < C(0.5) ? C(0) : e;
        }
      }
      for (int64_t c = 0; c < width; ++c) all_large[c] += large[c], all_small[c] += small[c];
    }
#pragma omp simd
    for (int64_t c = 0; c < width; ++c)
      large[c] = simd::log_of_sum(static_cast<C>(all_large[c] + all_small[c]),
                                  static_cast<C>(all_small[c]));
    for (int64_t i = 0; i < n; ++i) {
#pragma omp simd
      for (int64_t c = 0; c < width; ++c)
        y[i * next + c * step] = x[i * next + c * step] - top[c] - large[c];
    }
  }
}

static Tensor log_softmax_by_lines(const Tensor& x, int64_t d) {
  Tensor y = empty_like(x);
  const int64_t n = x.size(d), next = contiguous_strides(x.shape())[d], lines = x.numel() / n;
  const int64_t step = next == 1 ? n : 1,
                group = next == 1 ? lines : next;  // of lines side by side
  for_computed("log_softmax", x.dtype(), [&]<class C>(C) {
    const C* from = x.data<C>();
    C* to = y.mutable_data<C>();
    parallel_for(lines, kGrain / n, [=](int64_t begin, int64_t end) {
      for (int64_t line = begin, count; line < end; line += count) {
        const int64_t place = line % group, at = (line - place) * n + place * step;
        count = std::min(group - place, end - line);
        log_softmax_lines(to + at, from + at, count, n, next, step);
      }
    });
  });
  return y;
}

static Tensor log_softmax_composed(const Tensor& x, int64_t d) {
  const Tensor shifted = x - amax(x.detach(), {d}, true);  // y does not depend on the shift
  return shifted - log(sum(exp(shifted), {d}, true));
}

static Tensor log_softmax_gradient(const Tensor& dy, const Tensor& y, int64_t d) {
  return dy - exp(y) * sum(dy, {d}, true);
}

Tensor log_softmax(const Tensor& x, NumberOf<int64_t> dim) {
  const OverDim op{"log_softmax",       log_softmax_composed,         log_softmax_gradient,
                   kernel::log_softmax, kernel::log_softmax_backward, 32,
                   log_softmax_by_lines};
  return over_dim(op, x, dim);
}

}  // namespace ink
