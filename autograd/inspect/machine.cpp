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
#include "autograd/gemm/small_product.h"
#include "autograd/gemm/units.h"
#include "autograd/kernels/copy.h"
#include "autograd/kernels/gemm.h"
#include "autograd/memory/device_backend.h"
#include "autograd/tensor.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace ink {
namespace {

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

// The unit of the processor's vectors, on which all runs but products on tiles or of bf16 pairs.
const GemmUnit& vector_unit() {
  for (const GemmUnit* unit : gemm_units()) {
    if (unit->multiplies(f32) && unit->pays == nullptr) return *unit;
  }
  return *openblas_unit();
}

// The unit whose peak products of the dtype are held against. OpenBLAS uses the same vectors.
const GemmUnit& peak_unit(DType dtype) {
  const GemmUnit* unit = gemm_unit(dtype);
  return unit == nullptr || unit == openblas_unit() ? vector_unit() : *unit;
}

// The sum of each thread's best run. All run at the same time, but do not wait for each other.
double measure_flops(const GemmUnit& unit, DType dtype) {
  constexpr int64_t kRounds = 20000;
  const int64_t threads = max_threads();
  std::vector<double> rates(static_cast<size_t>(threads));
  parallel_for(threads, 1, [&](int64_t begin, int64_t) {
    const double flops = unit.keep_busy(dtype, kRounds);
    rates[static_cast<size_t>(begin)] =
        best_rate(flops, 200, [&] { unit.keep_busy(dtype, kRounds); });
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

// Reads some of x into sums, as many as hide the latency of additions, and returns a part of them,
// so that the compiler drops none.
float sum_of(const float* x, int64_t begin, int64_t end) {
  constexpr int64_t kChains = 8, n = kLanes<float>;
  Vector<float> sums[kChains] = {};
  for (int64_t i = begin; i + kChains * n <= end; i += kChains * n) {
    for (int64_t j = 0; j < kChains; ++j) sums[j] += load_vector(x + i + j * n);
  }
  for (int64_t j = 1; j < kChains; ++j) sums[0] += sums[j];
  return sums[0][0];
}

// The rates at which all threads read, and write in a[i] += 3 b[i], this much memory that they
// share.
MemoryLevel measure_level(double size, double bytes) {
  constexpr double kInARun = 1 << 25;
  const auto n = static_cast<int64_t>(bytes) / 8;
  const auto times = static_cast<int64_t>(std::max(1.0, kInARun / bytes));
  std::vector<float> a(static_cast<size_t>(n), 1), b(static_cast<size_t>(n), 2),
      sums(static_cast<size_t>(max_threads()));
  const double read = 8.0 * static_cast<double>(n * times);
  const auto rate_of = [&](const auto& run) {
    return best_rate(read, 12, [&] {
      const int64_t threads = max_threads();
      parallel_for(threads, 1, [&](int64_t thread, int64_t) {
        for (int64_t i = 0; i < times; ++i)
          run(static_cast<size_t>(thread), n * thread / threads, n * (thread + 1) / threads);
      });
    });
  };
  const double read_rate = rate_of([&](size_t thread, int64_t begin, int64_t end) {
    sums[thread] += sum_of(a.data(), begin, end) + sum_of(b.data(), begin, end);
  });
  const double both_rate = rate_of([&](size_t, int64_t begin, int64_t end) {
    float* to = a.data();
    const float* from = b.data();
    for (int64_t i = begin; i < end; ++i) to[i] += 3 * from[i];
  });
  // A cache may write while it reads.
  const double both = read / both_rate, writing = std::max(both - read / read_rate, both / 8);
  return {size, read_rate, read / 2 / writing};
}

// Bytes of the first processor's data cache of this level by the system; 0 if it does not say.
// (sysconf counts a cache several times on some machines.)
double cache_size(int level) {
  for (int i = 0; i < 8; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    std::ifstream levels(folder + "level"), types(folder + "type"), sizes(folder + "size");
    int found = 0;
    double kilobytes = 0;  // "48K"
    std::string type;
    if (levels >> found && types >> type && sizes >> kilobytes && found == level &&
        type != "Instruction")
      return 1024 * kilobytes;
  }
  return 0;
}

std::vector<MemoryLevel> measure_levels() {
  const auto threads = static_cast<double>(max_threads());
  const double last = cache_size(3);
  std::vector<MemoryLevel> levels;
  double before = 0;
  for (const double size : {threads * cache_size(1), threads * cache_size(2), last}) {
    if (size <= before) continue;
    levels.push_back(measure_level(size, (before + size) / 2));
    before = size;
  }
  const double large = std::clamp<double>(2 * last, 96 << 20, 512 << 20);
  levels.push_back(measure_level(std::numeric_limits<double>::infinity(), large));
  return levels;
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
  if (device.is_cuda()) {
    const double flops = measure_product(device, dtype);
    return {flops, flops, measure_copy(device)};
  }
  const double flops = measure_flops(peak_unit(dtype), dtype),
               attention = dtype == f32 ? measure_flops(vector_unit(), f32) : flops;
  const std::vector<MemoryLevel> levels = measure_levels();
  const MemoryLevel& memory = levels.back();
  return {flops, attention, 3 / (2 / memory.read_rate + 1 / memory.write_rate), levels};
}

double Machine::seconds_to_move(double read, double written) const {
  const double all = read + written;
  if (all == 0) return 0;
  if (levels.empty()) return all / bytes_per_second;
  double seconds = 0, before = 0;
  for (const MemoryLevel& level : levels) {
    const double here = std::max(0.0, std::min(all, level.size) - before);
    seconds += here / all * (read / level.read_rate + written / level.write_rate);
    before += here;
  }
  return seconds;
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

std::string built_for() {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
  const std::string level = "x86-64-v4";
#elif defined(__AVX2__) && defined(__FMA__)
  const std::string level = "x86-64-v3";
#elif defined(__SSE4_2__)
  const std::string level = "x86-64-v2";
#elif defined(__x86_64__)
  const std::string level = "x86-64";
#else
  const std::string level = "aarch64";
#endif
#if defined(__clang__)
  return level + ", clang " + std::to_string(__clang_major__) + "." +
         std::to_string(__clang_minor__);
#else
  return level + ", g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
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
  in.imbue(std::locale::classic());  // a program's own may take the space for a separator
  double number;
  return in >> number ? number : std::numeric_limits<double>::infinity();  // "max"
}

// The processor time of the control group, in processors.
double group_processors() {
  const double share = group_limit("cpu.max", [](std::istream& in) {  // "200000 100000"
    const double quota = number_in(in);
    return quota / (std::isfinite(quota) ? number_in(in) : 1);
  });
  const double quota = group_limit("cpu.cfs_quota_us", [](std::istream& in) {  // version 1
    const double time = number_in(in);
    return time > 0 ? time : std::numeric_limits<double>::infinity();  // -1: no limit
  });
  return std::min(
      share, std::isfinite(quota) ? quota / group_limit("cpu.cfs_period_us", number_in) : quota);
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
