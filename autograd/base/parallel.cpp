#include "autograd/base/parallel.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

namespace ink {
namespace {

bool forks_with_threads() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return true;
  int entries = 0;
  while (readdir(tasks) != nullptr) ++entries;
  closedir(tasks);
  return entries > 3;  // . and .. and the calling thread
}

// Does this process lack threads of the one from which it was forked?
bool lost_threads = false;
thread_local bool will_lose_threads = false;

[[maybe_unused]] const int watches_forks =
    pthread_atfork([] { will_lose_threads = lost_threads || forks_with_threads(); }, nullptr,
                   [] { lost_threads = will_lose_threads; });

}  // namespace

int64_t openmp_threads() {
  if (omp_get_max_active_levels() == 0) return 1;
  return std::min(omp_get_max_threads(), omp_get_thread_limit());
}

int64_t max_threads() {
  if (detail::in_part || omp_in_parallel()) return 1;
  const int64_t threads = context().threads;
  return threads > 0 ? threads : openmp_threads();
}

int detail::team_for(int64_t parts) {
  return lost_threads ? 1 : static_cast<int>(std::min(parts, openmp_threads()));
}

void set_wait_policy(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;
  }
  setenv("GOMP_SPINCOUNT", "1000", 1);
  setenv("KMP_BLOCKTIME", "1", 1);  // ms
  execv("/proc/self/exe", argv);    // returns only if it fails; the program is then only slower
}

}  // namespace ink
