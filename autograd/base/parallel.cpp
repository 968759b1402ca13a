#include "autograd/base/parallel.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

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

[[maybe_unused]] const int watches_forks =
    pthread_atfork([] { will_lose_threads = lost_threads || forks_with_threads(); }, nullptr,
                   [] { lost_threads = will_lose_threads; });

}  // namespace

int64_t openmp_threads() {
  const int most = std::min(omp_get_max_threads(), omp_get_thread_limit());
  return omp_get_max_active_levels() == 0 ? 1 : most;
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
  // Before argv, the words of a loader that was asked to run the program (ld.so PROGRAM ...): it is
  // then the exe.
  std::ifstream file("/proc/self/cmdline");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<const char*> words;
  for (size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) {
    if (&text[at] == std::string(program_invocation_name)) break;
    words.push_back(&text[at]);
  }
  do words.push_back(*argv);
  while (*argv++);
  setenv("GOMP_SPINCOUNT", "1000", 1);
  setenv("KMP_BLOCKTIME", "1", 1);                                  // ms
  execv("/proc/self/exe", const_cast<char* const*>(words.data()));  // returns only if it fails
}

}  // namespace ink
