// usage: race ordered|unordered
// Shows what the thread sanitizer sees of OpenMP: nothing where regions, barriers and critical
// sections order all that threads do, a race where nothing orders it.
#include <omp.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "autograd/base/parallel.h"

namespace {

constexpr int kThreads = 2, kRounds = 100;

// Each number is written by one thread and read by another, in the next part of a region or in the
// next region.
int64_t ordered() {
  std::vector<int64_t> numbers(kThreads, 0);
  int64_t sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    numbers.assign(kThreads, round);
#pragma omp parallel num_threads(kThreads)
    {
      const int thread = omp_get_thread_num();
      numbers[thread] += 1;
#pragma omp barrier
      const int64_t other = numbers[(thread + 1) % kThreads];
#pragma omp critical(race_sum)
      sum += other;
    }
    ink::parallel_for(kThreads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) numbers[kThreads - 1 - i] = 0;
    });
  }
  return sum;
}

int64_t unordered() {
  int64_t sum = 0;
  for (int round = 0; round < kRounds; ++round)
    ink::parallel_for(kThreads, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(kThreads);
  const std::string_view way = argc > 1 ? argv[1] : "";
  if (way != "ordered" && way != "unordered") return 2;
  std::printf("%ld\n", static_cast<long>(way == "ordered" ? ordered() : unordered()));
}
