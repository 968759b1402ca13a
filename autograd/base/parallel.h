// parallel_for: the one way kernels use several threads.
#pragma once

#include <cstdint>

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
using Part = void (*)(const void* self, int64_t begin, int64_t end);
void run_parts(int64_t n, int64_t grain, const void* self, Part f);  // compiled once for all
}  // namespace detail

/// Calls f(begin, end) on consecutive parts of [0, n): max_threads() of them, or fewer if they
/// would be smaller than about `grain`. The parts depend on n, grain and max_threads() alone. Where
/// there are fewer threads (OMP_DYNAMIC, after a fork), a thread runs several parts. The first
/// exception is rethrown in the caller.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  detail::run_parts(n, grain, &f, [](const void* self, int64_t begin, int64_t end) {
    (*static_cast<const F*>(self))(begin, end);
  });
}

/// The fewest elements for which waking a thread pays: about 10 us of arithmetic.
#ifdef __SANITIZE_THREAD__  // small tensors take several threads, too, so that races show
inline constexpr int64_t kGrain = 16;
#else
inline constexpr int64_t kGrain = 16384;
#endif

}  // namespace ink
