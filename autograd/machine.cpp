#include "autograd/machine.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "autograd/parallel.h"

// A build for any processor measures with the widest vectors that this one has.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__AVX2__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define INK_WIDEST __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define INK_WIDEST
#endif

namespace ink {
namespace {

// Independent chains enough to hide the latency of the adders.
constexpr int kChains = 12, kWidth = 16;
using Vector = float __attribute__((vector_size(kWidth * sizeof(float))));

INK_WIDEST float multiply_add(int64_t rounds, float factor) {
  Vector sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = Vector{} + static_cast<float>(i);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + 1;
  }
  Vector total{};
  for (const Vector& sum : sums) total += sum;
  float result = 0;
  for (int i = 0; i < kWidth; ++i) result += total[i];
  return result;
}

// The most of `amount` that f() does in a second, over a few runs.
template <class F>
double best_rate(double amount, int runs, F&& f) {
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, amount / time.count());
  }
  return best;
}

double measure_flops() {
  constexpr int64_t kRounds = 1000000;
  const int64_t threads = max_threads();
  std::vector<float> results(static_cast<size_t>(threads));
  const double flops = 2.0 * kChains * kWidth * kRounds * static_cast<double>(threads);
  return best_rate(flops, 10, [&] {
    parallel_for(threads, 1, [&](int64_t begin, int64_t) {
      results[static_cast<size_t>(begin)] = multiply_add(kRounds, 0.5f);
    });
  });
}

double measure_bandwidth() {
  constexpr int64_t kElements = int64_t{3} << 22;
  std::vector<float> a(kElements, 1), b(kElements, 2);
  return best_rate(3.0 * sizeof(float) * kElements, 12, [&] {
    parallel_for(kElements, 1, [&](int64_t begin, int64_t end) {
      float* to = a.data();
      const float* from = b.data();
      for (int64_t i = begin; i < end; ++i) to[i] += 3 * from[i];
    });
  });
}

}  // namespace

Machine measure_machine() { return {measure_flops(), measure_bandwidth()}; }

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace ink
