#include "autograd/inspect/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <istream>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/gemm.h"
#include "autograd/memory/device_backend.h"
#include "autograd/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace ink {
namespace {

// Each runs chains of x = x / 2 + 1 on vectors, enough of them to hide the latency of the units,
// and returns the number of FLOPs. Chains have different starts and end in `sink`, because
// otherwise the compiler would drop some.
constexpr int64_t kRounds = 200000;
constexpr int kChains = 12;
using Chains = double (*)(float& sink);

template <class Vector>
double flops_of() {
  return 2.0 * kChains * kRounds * (sizeof(Vector) / sizeof(float));
}

double any_chains(float& sink) {
  using Vector = float __attribute__((vector_size(16)));
  Vector sums[kChains] = {};
  for (int i = 0; i < kChains; ++i) sums[i] += static_cast<float>(i);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (Vector& sum : sums) sum = sum * 0.5f + 1;
  }
  for (const Vector& sum : sums) sink += sum[0];
  return flops_of<Vector>();
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double avx2_chains(float& sink) {
  __m256 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, half, one);
  }
  for (const __m256& sum : sums) sink += _mm256_cvtss_f32(sum);
  return flops_of<__m256>();
}

__attribute__((target("avx512f"))) double avx512_chains(float& sink) {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, half, one);
  }
  for (const __m512& sum : sums) sink += _mm512_cvtss_f32(sum);
  return flops_of<__m512>();
}
#endif

// Chains for this processor's widest vectors, whatever the program was compiled for.
Chains widest_chains() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512_chains;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_chains;
#endif
  return any_chains;
}

// The most that f(), which does `amount` of work, does in a second, over a few runs.
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

// The sum of each thread's best run. All run at the same time, but do not wait for each other.
double measure_flops() {
  const Chains chains = widest_chains();
  const int64_t threads = max_threads();
  std::vector<double> rates(static_cast<size_t>(threads));
  parallel_for(threads, 1, [&](int64_t begin, int64_t) {
    float sink = 0;
    const double flops = chains(sink);
    rates[static_cast<size_t>(begin)] = best_rate(flops, 100, [&] { chains(sink); });
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double measure_bandwidth() {
  constexpr int64_t kElements = int64_t{3} << 22;
  std::vector<float> a(kElements, 1), b(kElements, 2);
  return best_rate(3.0 * sizeof(float) * kElements, 20, [&] {
    parallel_for(kElements, 1, [&](int64_t begin, int64_t end) {
      float* to = a.data();
      const float* from = b.data();
      for (int64_t i = begin; i < end; ++i) to[i] += 3 * from[i];
    });
  });
}

// Sizes that double until a run takes long enough to be measured.
template <class F>
double rate_of_growing(int64_t size, int64_t most, const F& run) {
  constexpr double kLongEnough = 4e-3;  // seconds
  for (;; size *= 2) {
    const double amount = run(size);  // the first run allocates and warms up
    const double rate = best_rate(amount, 5, [&] { run(size); });
    if (amount / rate >= kLongEnough || size >= most) return rate;
  }
}

double measure_product(Device device, DType dtype) {
  return rate_of_growing(512, 8192, [&](int64_t n) {
    const Tensor a = ones({n, n}, {dtype, device});
    Tensor c = empty_like(a);
    kernel::gemm(c, a, a, false);
    synchronize(device);
    return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  });
}

double measure_copy(Device device) {
  return rate_of_growing(int64_t{1} << 20, int64_t{1} << 29, [&](int64_t n) {
    const Tensor x = empty({n}, {f32, device});
    Tensor y = empty_like(x);
    kernel::copy(y, x);
    synchronize(device);
    return 8.0 * static_cast<double>(n);
  });
}

}  // namespace

Machine measure_machine(Device device, DType dtype) {
  if (device.is_cuda()) return {measure_product(device, dtype), measure_copy(device)};
  return {measure_flops(), measure_bandwidth()};
}

double datasheet_flops(const std::string& name) {
  for (const auto& [card, tera] : {std::pair("H100 PCIe", 756.0),
                                   {"H100 NVL", 835.0},
                                   {"H100", 989.0},
                                   {"H200", 989.0},
                                   {"H800", 989.0},
                                   {"B200", 2250.0},
                                   {"A100", 312.0},
                                   {"L40S", 362.0},
                                   {"RTX 4090", 165.2}}) {
    if (name.find(card) != std::string::npos) return 1e12 * tera;
  }
  return 0;
}

std::string describe_machine(Device device) {
  if (device.is_cuda()) return describe(device);
  return processor_name() + ", " + describe(device) + ", " + gemm_backend();
}

namespace {

// The least limit in a file of the process's control groups, from its own group up to the root. f
// reads a number from an open file, and returns infinity if there is no limit.
template <class F>
double group_limit(const std::string& name, F&& f) {
  double least = std::numeric_limits<double>::infinity();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", or "4:memory:/"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controller = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const std::string root = "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
    while (true) {
      std::ifstream file(root + path + (path.ends_with('/') ? "" : "/") + name);
      if (file) least = std::min(least, f(file));
      const size_t parent = path.rfind('/');
      if (path == "/" || parent == std::string::npos) break;
      path.resize(parent);
    }
  }
  return least;
}

double number_in(std::istream& in) {
  double number;
  return in >> number ? number : std::numeric_limits<double>::infinity();  // "max"
}

// The processor time of the control group, in processors.
double group_processors() {
  return group_limit("cpu.max", [](std::istream& in) {  // "200000 100000": time, period
    const double quota = number_in(in);
    return quota / (std::isfinite(quota) ? number_in(in) : 1);
  });
}

}  // namespace

int64_t usable_memory() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  bytes = std::min(bytes, group_limit("memory.max", number_in));             // version 2
  bytes = std::min(bytes, group_limit("memory.limit_in_bytes", number_in));  // version 1
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, static_cast<double>(space.rlim_cur));
  return static_cast<int64_t>(bytes);
}

int64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;  // in pages
  return file >> size >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

int physical_cores() {
  const double time = std::max(1.0, std::ceil(group_processors()));
#if defined(__linux__)
  cpu_set_t allowed;
  std::set<std::string> cores;  // each by the list of its hardware threads
  for (int cpu = 0; sched_getaffinity(0, sizeof allowed, &allowed) == 0 && cpu < CPU_SETSIZE;
       ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::string name = std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/cpu" + name + "/topology/thread_siblings_list");
    std::string threads;
    cores.insert(std::getline(file, threads) ? threads : name);
  }
  if (!cores.empty()) return static_cast<int>(std::min(time, static_cast<double>(cores.size())));
#endif
  return static_cast<int>(
      std::min<double>(time, std::max(1u, std::thread::hardware_concurrency())));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace ink
