// usage: race ordered|unordered|ops
// ordered, unordered: what the thread sanitizer sees of OpenMP: nothing where regions, barriers and
// critical sections order all that threads do, a race where nothing orders it.
// ops: every row of train/cases/op_cases.cpp forward and backward, also on inputs so large that
// threads share them.
#include <omp.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "autograd/base/parallel.h"
#include "train/cases/op_case_inputs.h"

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

int64_t ops() {
  int64_t runs = 0;
  for (const ink::OpCase& row : ink::op_cases()) {
    for (const auto& set : row.inputs) {
      run_case(row, set, make_inputs(set, ink::f32));
      ++runs;
    }
  }
  return runs;
}

}  // namespace

int main(int argc, char** argv) {
  omp_set_num_threads(kThreads);
  const std::string_view way = argc > 1 ? argv[1] : "";
  if (way != "ordered" && way != "unordered" && way != "ops") return 2;
  const int64_t result = way == "ops" ? ops() : way == "ordered" ? ordered() : unordered();
  std::printf("%ld\n", static_cast<long>(result));
}
