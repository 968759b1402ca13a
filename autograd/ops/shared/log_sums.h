// Logs of sums of exponentials over short rows, and over dimensions other than the last: of many
// lines side by side.
#pragma once

#include <algorithm>
#include <limits>

#include "autograd/base/parallel.h"
#include "autograd/loops/simd.h"
#include "autograd/tensor.h"

namespace ink {

/// log sum exp of up to kLines lines, as top + log, where top is a line's maximum. A line has n
/// elements, `next` apart, and starts `step` after the one before it.
template <class C>
struct LogSums {
  static constexpr int64_t kLines = 128, kBlock = 32;  // kBlock terms are added up as C
  C top[kLines], log[kLines];

  LogSums(const C* x, int64_t lines, int64_t n, int64_t next, int64_t step) {
    C large[kLines], small[kLines];  // sums of terms of 1/2 or more, and of others
    double all_large[kLines] = {}, all_small[kLines] = {};
    std::fill_n(top, lines, -std::numeric_limits<C>::infinity());
    for (int64_t i = 0; i < n; ++i) {
#pragma omp simd
      for (int64_t c = 0; c < lines; ++c) top[c] = std::max(top[c], x[i * next + c * step]);
    }
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      std::fill_n(large, lines, C(0));
      std::fill_n(small, lines, C(0));
      for (int64_t i = begin; i < std::min(n, begin + kBlock); ++i) {
#pragma omp simd
        for (int64_t c = 0; c < lines; ++c) {
          const C e = simd::exp_nonpositive(x[i * next + c * step] - top[c]);
          small[c] += e < C(0.5) ? e : C(0);
          large[c] += e < C(0.5) ? C(0) : e;
        }
      }
      for (int64_t c = 0; c < lines; ++c) all_large[c] += large[c], all_small[c] += small[c];
    }
#pragma omp simd
    for (int64_t c = 0; c < lines; ++c)
      log[c] = simd::log_of_sum(static_cast<C>(all_large[c] + all_small[c]),
                                static_cast<C>(all_small[c]));
  }
};

/// Calls f(line, at, count, n, next, step) in parallel for all lines of a contiguous x over
/// dimension d, up to LogSums' kLines at a time; `at` is where the first of them starts.
template <class F>
void for_lines(const Tensor& x, int64_t d, const F& f) {
  const int64_t n = x.size(d), next = contiguous_strides(x.shape())[d], lines = x.numel() / n;
  const int64_t step = next == 1 ? n : 1,
                group = next == 1 ? lines : next;  // of lines side by side
  parallel_for(lines, kGrain / n, [=, &f](int64_t begin, int64_t end) {
    for (int64_t line = begin, count; line < end; line += count) {
      const int64_t place = line % group;
      count = std::min({group - place, end - line, LogSums<float>::kLines});
      f(line, (line - place) * n + place * step, count, n, next, step);
    }
  });
}

}  // namespace ink
