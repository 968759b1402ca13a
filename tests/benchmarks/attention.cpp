// benchmark_attention T [repeats]: causal attention of 12 heads of T x 64, forward and backward.
// Prints the median time in ms and the peak of the process's memory in MiB beyond what it held
// before the first call. attention.py runs it beside PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"

namespace {

// A field of /proc/self/status, in KiB.
double status(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stod(line.substr(field.size() + 1));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ink;
  if (argc < 2) {
    std::cerr << "usage: benchmark_attention T [repeats]\n";
    return 2;
  }
  const int64_t T = std::atoll(argv[1]);
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) x.push_back(randn({1, 12, T, 64}).requires_grad_());
  const Tensor upstream = randn({1, 12, T, 64});
  const double before = status("VmRSS");
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true});
    const Grads grads = grad({y}, x, {upstream});
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (i >= 2) times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  std::cout << times[times.size() / 2] << " " << (status("VmHWM") - before) / 1024 << "\n";
}
