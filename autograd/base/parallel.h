// parallel_for: the one way kernels use several threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace ink {

/// How many threads parallel_for may use here: 1 inside another parallel region.
inline int64_t max_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

/// Makes threads that wait for work sleep after about 0.1 ms. Call it in the first line of main:
/// OpenMP reads its environment when it is loaded, so this sets GOMP_SPINCOUNT (libgomp) and
/// KMP_BLOCKTIME (libomp) and starts the program over, which takes 3 ms. Without it threads spin
/// for 20 ms or more, and steps take many times as long when another program wants a core. It does
/// nothing if the environment says how to wait: OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
void set_wait_policy(char** argv);

/// Calls f(begin, end) on consecutive parts of [0, n): one part for each thread, none smaller than
/// about `grain`. The split depends on n, grain and the number of threads alone. The first
/// exception is rethrown in the caller.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t parts = std::min(max_threads(), (n + grain - 1) / std::max<int64_t>(grain, 1));
  if (parts <= 1) {
    f(int64_t{0}, n);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    const int64_t part = omp_get_thread_num(), of = omp_get_num_threads();
    const int64_t begin = n * part / of, end = n * (part + 1) / of;
    try {
      if (begin < end) f(begin, end);
    } catch (...) {
#pragma omp critical(ink_parallel_error)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

/// The fewest elements for which waking a thread pays: about 10 us of arithmetic.
#ifdef __SANITIZE_THREAD__  // small tensors take several threads, too, so that races show
inline constexpr int64_t kGrain = 16;
#else
inline constexpr int64_t kGrain = 16384;
#endif

}  // namespace ink
