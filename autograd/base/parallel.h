// parallel_for: the one way kernels use several threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

#include "autograd/base/context.h"

namespace ink {

/// Into how many parts parallel_for cuts its work at most. That is the context's number of threads,
/// or else openmp_threads(); it is 1 inside a part and inside another parallel region. A process
/// that was forked from one with threads works in one thread: OpenMP's are not in it. Fork before
/// the first op, or exec, where that is too slow.
int64_t max_threads();

/// How many threads OpenMP gives to this thread's teams at most: as many as omp_set_num_threads()
/// or OMP_NUM_THREADS says, within OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS.
int64_t openmp_threads();

namespace detail {
inline constinit thread_local bool in_part = false;  // does this thread run a part?

// The threads to ask for when there are so many parts. One in a process that was forked from one
// with threads: they are not in it, and OpenMP would wait for them for ever.
int team_for(int64_t parts);
}  // namespace detail

/// Calls f(begin, end) on consecutive parts of [0, n): max_threads() of them, or fewer if they
/// would be smaller than about `grain`. The parts depend on n, grain and max_threads() alone. Where
/// there are fewer threads (OMP_DYNAMIC, after a fork), a thread runs several parts. The first
/// exception is rethrown in the caller.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  const int64_t most = (n + grain - 1) / std::max<int64_t>(grain, 1),
                parts = most <= 1 ? 1 : std::min(max_threads(), most);
  if (parts <= 1) return static_cast<void>(f(int64_t{0}, n));
  std::exception_ptr error;
#pragma omp parallel num_threads(detail::team_for(parts))
  {
    const Restore inside(detail::in_part, true);
    for (int64_t part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
      const int64_t begin = n * part / parts, end = n * (part + 1) / parts;
      try {
        if (begin < end) f(begin, end);
      } catch (...) {
#pragma omp critical(ink_parallel_error)
        if (!error) error = std::current_exception();
      }
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
