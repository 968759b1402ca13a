#include "train/cli/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <utility>

#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/io/serialize.h"
#include "autograd/memory/device_backend.h"
#include "train/cli/console.h"
#include "train/memory.h"

namespace ink {
namespace {

using Clock = std::chrono::steady_clock;

struct Sizes {
  int64_t B, T, L, H, C, V;
  const char* model = "gpt";
  int64_t kv_heads = 0;
};

const std::vector<std::pair<std::string, Sizes>>& sizes() {
  static const std::vector<std::pair<std::string, Sizes>> table = {
      {"baby", {12, 64, 4, 4, 128, 65}},        {"char", {64, 256, 6, 6, 384, 65}},
      {"char8", {8, 256, 6, 6, 384, 65}},       {"llama8", {8, 256, 6, 6, 384, 65, "llama", 2}},
      {"gpt2_64", {4, 64, 12, 12, 768, 50257}}, {"gpt2_1024", {4, 1024, 12, 12, 768, 50257}}};
  return table;
}

// The same batch at every step.
class OneBatch final : public Dataset {
 public:
  OneBatch(int64_t vocab_size, const Tensor& x, const Tensor& y)
      : tokenizer_(vocab_size), x_(x.tolist<int64_t>()), y_(y.tolist<int64_t>()) {}

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  std::string summary() const override { return "one batch"; }
  int64_t val_windows(int64_t) const override { return 1; }

 private:
  void fill_train_row(uint64_t, uint64_t number, Row row) const override {
    const size_t T = row.x.size(), rows = x_.size() / T;
    const size_t first = number % (uint64_t{1} << 24) % rows * T;
    std::copy_n(x_.begin() + static_cast<int64_t>(first), T, row.x.begin());
    std::copy_n(y_.begin() + static_cast<int64_t>(first), T, row.y.begin());
  }
  void fill_val_row(int64_t, Row row) const override { fill_train_row(0, 0, row); }

  IdTokenizer tokenizer_;
  std::vector<int64_t> x_, y_;
};

Tensor take(NamedTensors& tensors, const std::string& name, const BenchSetup& setup) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  INK_CHECK(found != tensors.end(), "bench: ", setup.weights, " has no tensor ", name);
  const Tensor x = found->second;
  tensors.erase(found);
  const Shape expected{setup.config.batch_size, setup.config.block_size};
  INK_CHECK(x.shape() == expected && x.dtype() == i64, "bench: expected ", name, " ", expected,
            " i64 in ", setup.weights, ", got ", x.shape(), " ", x.dtype());
  return x;
}

std::unique_ptr<Trainer> make_trainer(const BenchSetup& setup) {
  const TrainConfig& config = setup.config;
  NamedTensors weights;
  Tensor x, y;
  if (setup.weights.empty()) {
    Generator generator(static_cast<uint64_t>(config.seed));
    const Shape shape{config.batch_size * config.gradient_accumulation_steps, config.block_size};
    x = randint(setup.vocab_size, shape, i64, generator);
    y = randint(setup.vocab_size, shape, i64, generator);
  } else {
    weights = with_prefix("--weights", [&] { return load(setup.weights); });
    x = take(weights, "x", setup);
    y = take(weights, "y", setup);
  }
  auto trainer = std::make_unique<Trainer>(config, std::nullopt,
                                           std::make_unique<OneBatch>(setup.vocab_size, x, y));
  if (!weights.empty()) trainer->model().load_state_dict(weights);
  return trainer;
}

// The peak of this process's memory, in bytes.
int64_t process_peak() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return 1024 * std::stoll(line.substr(6));
  }
  return 0;
}

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

void profile(Trainer& trainer, BenchResult& result) {
  Profiler profiler;
  const Observe observe(profiler);
  for (int64_t i = 0; i < result.profiled; ++i) {
    profiler.start();
    trainer.step();
    note_work("rest of the step", {}, {});
  }
  result.rows = profiler.rows();
}

}  // namespace

std::vector<std::string> bench_names() {
  std::vector<std::string> names;
  for (const auto& entry : sizes()) names.push_back(entry.first);
  return names;
}

BenchSetup bench_setup(const std::string& name) {
  const auto found = std::find_if(sizes().begin(), sizes().end(),
                                  [&](auto& entry) { return entry.first == name; });
  INK_CHECK(found != sizes().end(), "bench: there are no sizes called ", name);
  const auto& [B, T, L, H, C, V, model, heads] = found->second;
  BenchSetup setup;
  setup.name = name;
  setup.vocab_size = V;
  TrainConfig& config = setup.config;
  config.batch_size = B;
  config.block_size = T;
  config.n_layer = L;
  config.n_head = H;
  config.n_embd = C;
  config.model = model;
  config.bias = config.model == "gpt";
  if (heads > 0) config.setting("n_kv_head") = heads;
  config.learning_rate = 1e-3;
  config.warmup_iters = 0;
  return setup;
}

StepFlops step_flops(const LanguageModel& model, const TrainConfig& config) {
  const Trial trial(model, config);
  context().recompute = context().composed = false;
  Profiler profiler;
  {
    const Observe observe(profiler);
    const Tensor ids = zeros({1, config.block_size}, {i64, context().default_device});
    GradStore gradients;
    backward(model.loss(ids, ids, Reduction::mean), gradients);
  }
  const auto rows = static_cast<double>(config.batch_size * config.gradient_accumulation_steps);
  // The profiler counts all keys, or those before each query (causal_attention).
  const auto T = static_cast<double>(config.block_size);
  double window = static_cast<double>(model.attention_window());
  if (window == 0 || window > T) window = T;
  const double seen = window - window * (window - 1) / (2 * T);  // keys, in the mean
  StepFlops flops;
  for (const ProfileRow& row : profiler.rows()) {
    const double forward = row.forward.work.flops, backward = row.backward.work.flops;
    // Attention's backward computes the scores again, which is not the model's work.
    if (row.name.find("attention") != std::string::npos) {
      const double counted = row.name == "causal_attention" ? (T + 1) / 2 : T;
      flops.attention += 3 * forward * rows * (window < T ? seen / counted : 1);
    } else {
      flops.weights += (forward + backward) * rows;
    }
  }
  return flops;
}

double BenchResult::median() const {
  std::vector<double> sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  return n == 0 ? 0 : (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}
double BenchResult::best() const {
  return times.empty() ? 0 : *std::min_element(times.begin(), times.end());
}
double BenchResult::tokens_per_second() const {
  const TrainConfig& config = setup.config;
  return 1000 / median() *
         static_cast<double>(config.batch_size * config.block_size *
                             config.gradient_accumulation_steps);
}

BenchResult run_bench(const BenchSetup& setup) {
  constexpr int64_t kWarmUp = 2, kFirst = 12, kMost = 100, kFewest = 3;
  constexpr double kMilliseconds = 10000;
  const Clock::time_point start = Clock::now();
  BenchResult result;
  result.setup = setup;
  result.setup.config.min_lr = setup.config.learning_rate;  // constant
  const Device device = parse_device(setup.config.device);
  // A GPU computes while the host launches more: waiting after each step would measure more than
  // training takes.
  const int64_t together = device.is_cpu() ? 1 : 10;
  reset_peak_memory(device);
  const int64_t held_before = memory_stats(device).bytes_in_use;
  const std::unique_ptr<Trainer> trainer = make_trainer(result.setup);
  const LanguageModel& model = trainer->model();
  result.parameters = model.num_parameters();
  result.estimate = trainer->memory();
  int64_t steps = setup.steps, faults_before = 0;
  for (int64_t i = 0; i < kWarmUp || std::ssize(result.times) < steps; ++i) {
    const int64_t in_a_row = i < kFirst ? 1 : together;
    const Clock::time_point begin = Clock::now();
    for (int64_t k = 0; k < in_a_row; ++k) trainer->step();
    synchronize(device);
    const double time = 1000 * seconds_since(begin) / static_cast<double>(in_a_row);
    if (i == 0) result.start = 1000 * seconds_since(start);
    if (i >= kWarmUp) result.times.push_back(time);
    if (setup.on_share && steps > 0)
      setup.on_share(static_cast<double>(result.times.size()) / static_cast<double>(steps));
    const double loss = trainer->progress().loss;
    if (in_a_row == 1) result.losses.push_back(loss);
    if (i == kWarmUp - 1 && steps == 0)
      steps = std::clamp(static_cast<int64_t>(kMilliseconds / time), kFewest, kMost);
    if (i != kWarmUp - 1) continue;
    faults_before = page_faults();
    result.raw_allocations = memory_stats(device).raw_allocations;
  }
  result.raw_allocations = memory_stats(device).raw_allocations - result.raw_allocations;
  result.page_faults = static_cast<double>(page_faults() - faults_before) /
                       static_cast<double>(std::max<size_t>(result.times.size(), 1));
  result.allocator_peak = memory_stats(device).peak_bytes_in_use - held_before;
  result.allocator_held = memory_stats(device).bytes_held;
  result.process_peak = process_peak();
  result.flops = step_flops(model, setup.config);
  result.profiled = setup.profile_steps >= 0 ? setup.profile_steps : (steps + 3) / 4;
  profile(*trainer, result);
  return result;
}

}  // namespace ink
