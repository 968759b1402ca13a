#include "autograd/base/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "autograd/base/context.h"

namespace ink {
namespace {

bool forks_with_threads() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  return error || std::distance(begin(tasks), end(tasks)) > 1;
}

// Does this process lack threads of the one from which it was forked?
bool lost_threads = false;
thread_local bool will_lose_threads = false;

constinit thread_local bool in_part = false;  // does this thread run a part?

[[maybe_unused]] const int watches_forks =
    pthread_atfork([] { will_lose_threads = lost_threads || forks_with_threads(); }, nullptr,
                   [] { lost_threads = will_lose_threads; });

}  // namespace

int64_t openmp_threads() {
  const int most = std::min(omp_get_max_threads(), omp_get_thread_limit());
  return omp_get_max_active_levels() == 0 ? 1 : most;
}

int64_t max_threads() {
  if (in_part || omp_in_parallel()) return 1;
  const int64_t threads = context().threads;
  return threads > 0 ? threads : openmp_threads();
}

void detail::run_parts(int64_t n, int64_t grain, const void* self, Part f) {
  const int64_t most = (n + grain - 1) / std::max<int64_t>(grain, 1),
                parts = most <= 1 ? 1 : std::min(max_threads(), most);
  if (parts <= 1) return n > 0 ? f(self, 0, n) : void();
  std::exception_ptr error;
  // OpenMP would wait for threads that are lost for ever.
  const int team = lost_threads ? 1 : static_cast<int>(std::min(parts, openmp_threads()));
#pragma omp parallel num_threads(team)
  {
    const Restore inside(in_part, true);
    for (int64_t part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
      try {
        f(self, n * part / parts, n * (part + 1) / parts);  // not empty: there are at most n parts
      } catch (...) {
#pragma omp critical(ink_parallel_error)
        if (!error) error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ink
