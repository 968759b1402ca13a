#include "train/memory.h"

#include <algorithm>
#include <map>

#include "autograd/autocast.h"
#include "autograd/base/parallel.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/inspect/machine.h"
#include "autograd/memory/storage.h"
#include "train/muon.h"

namespace ink {
namespace {

int64_t floats(int64_t count) { return block_bytes(4 * count); }

// The most bytes in use from each op, and each vjp, to the next.
class PeaksOfOps final : public Observer {
 public:
  explicit PeaksOfOps(Device device) : device_(device), before_(memory_stats(device).bytes_in_use) {
    reset_peak_memory(device);
  }
  void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
    note();
  }
  void after_vjp(const Node&, const Grads&) override { note(); }
  void note() {
    peaks.push_back(memory_stats(device_).peak_bytes_in_use - before_);
    reset_peak_memory(device_);
  }

  std::vector<int64_t> peaks;

 private:
  Device device_;
  int64_t before_;
};

}  // namespace

// The optimizer says it of parameters of the same names and dimensions with one element each.
int64_t moment_bytes(const NamedTensors& parameters, const std::set<std::string>& tables,
                     const TrainConfig& config) {
  std::map<std::string, int64_t> bytes;
  NamedTensors small;
  for (const auto& [name, parameter] : parameters) {
    bytes[name] = floats(parameter.numel());
    Shape shape = parameter.shape();
    for (int64_t& size : shape) size = 1;
    small.emplace_back(name, zeros(shape, {f32, cpu_device}));
    if (parameter.requires_grad()) small.back().second.requires_grad_();
  }
  int64_t total = 0;
  for (const auto& [name, state] : make_optimizer(config, small, tables)->state())
    if (name.rfind("step.", 0) != 0 && name != "skipped")
      total += bytes[name.substr(name.find('.') + 1)];
  return total;
}

MemoryEstimate kept_memory(const LanguageModel& model, const TrainConfig& config) {
  MemoryEstimate kept;
  for (const Tensor& parameter : model.parameters()) {
    const int64_t bytes = floats(parameter.numel());
    kept.model += config.ema > 0 ? 2 * bytes : bytes;
    if (parameter.requires_grad()) kept.gradients += bytes;
  }
  kept.model +=
      moment_bytes(model.named_parameters(), table_names(model, model.config.vocab_size), config);
  return kept;
}

Trial::Trial(const LanguageModel& model, const TrainConfig& config) {
  context().generator = &generator_;
  context().grad_enabled = true;
  context().observers.clear();
  context().composed = config.composed;
  context().recompute = config.recompute;
  context().autocast = config.autocast();
  context().default_device = parse_device(config.device);
  for (const auto& entry : model.named_buffers())
    buffers_.emplace_back(entry.second, entry.second.clone());
}

Trial::~Trial() {
  const NoGrad no_grad;
  for (auto& [buffer, before] : buffers_) buffer.copy_(before);
}

// Of a pass forward and backward of so many ids, which adds to gradients that exist if `waits`. The
// loss of a part, and of a micro-batch, is a sum that is `scaled`.
static std::vector<int64_t> peaks_of_pass(const LanguageModel& model, const TrainConfig& config,
                                          int64_t rows, int64_t length, bool scaled, bool waits) {
  const Trial trial(model, config);
  const Device device = context().default_device;
  const Tensor ids = zeros({rows, length}, {i64, device}), one = ones({}, device);
  PeaksOfOps all(device);
  const Observe observe(all);
  GradStore gradients;
  for (int pass = 0; pass <= waits; ++pass) {
    all.peaks.clear();
    const Tensor loss = model.loss(ids, ids, scaled ? Reduction::sum : Reduction::mean);
    backward(scaled ? loss * one : loss, gradients);
    all.note();
  }
  return all.peaks;
}

// What an update of these with an n-th of the rows needs beside what stays.
static int64_t update_peak(const NamedTensors& parameters, const std::set<std::string>& tables,
                           const TrainConfig& config, int64_t n) {
  const Device device = context().default_device;
  NamedTensors fewer;
  for (const auto& [name, parameter] : parameters) {
    Shape shape = parameter.shape();
    if (parameter.dim() > 0) shape[0] = (shape[0] + n - 1) / n;
    fewer.emplace_back(name, zeros(shape).requires_grad_());
    const bool transposed = config.composed && shape.size() == 2;  // as its products leave it
    fewer.back().second.set_grad(transposed ? zeros({shape[1], shape[0]}).T() : zeros(shape));
  }
  const auto optimizer = make_optimizer(config, fewer, tables);
  const int64_t before = memory_stats(device).bytes_in_use;
  reset_peak_memory(device);
  optimizer->step();
  return memory_stats(device).peak_bytes_in_use - before;
}

// That of all rows, which grows with them by the same bytes. On a CPU, Muon works on a matrix for
// each thread, so the largest tell what it needs. (On a GPU it works on more at a time, which is
// left out.) 0 if a program's own optimizer takes none but whole parameters.
static int64_t update_bytes(const LanguageModel& model, const TrainConfig& config,
                            int64_t threads) {
  constexpr int64_t kElements = 1 << 17;
  const Trial trial(model, config);
  const FieldGuard of_run(&Context::threads, threads);
  const auto tables = table_names(model, model.config.vocab_size);
  const bool is_muon = config.optimizer == "muon";
  NamedTensors updated;
  int64_t n = 1;
  for (const auto& entry : model.named_parameters()) {
    const auto& [name, parameter] = entry;
    if (!parameter.requires_grad()) continue;
    if (is_muon && (parameter.dim() != 2 || tables.count(name) > 0)) continue;
    updated.push_back(entry);
    if (!is_muon) n = std::max(n, (parameter.numel() + kElements - 1) / kElements);
  }
  if (is_muon) {
    std::stable_sort(updated.begin(), updated.end(), [](const auto& a, const auto& b) {
      return a.second.numel() > b.second.numel();
    });
    updated.resize(std::min(updated.size(), static_cast<size_t>(max_threads())));
  }
  if (updated.empty()) return 0;
  try {
    const int64_t peak = update_peak(updated, tables, config, n);
    return n == 1 ? peak
                  : peak + (n - 1) * 2 * (peak - update_peak(updated, tables, config, 2 * n));
  } catch (const std::exception&) {
    return 0;
  }
}

// On a CPU, what an op needs grows by the same bytes with each row, beyond the 1024 tokens of which
// linear_cross_entropy holds the logits. So two passes, of few rows, tell what it needs for all of
// them. A small batch runs all its rows in one pass, which is exact; so does a GPU, which takes no
// longer for a pass than for a step.
MemoryEstimate estimate_memory(const LanguageModel& model, const TrainConfig& config) {
  constexpr int64_t kTokens = 2048, kLongest = 4096;
  const auto in_parts = [](int64_t n, int64_t parts) { return (n + parts - 1) / parts; };
  const bool on_cpu = parse_device(config.device).is_cpu();
  const int64_t threads = config.threads > 0 ? config.threads : max_threads(),
                parts = batch_parts(config, model.num_parameters()),
                together = std::min({parts, threads, openmp_threads()});
  // A long context is cut into several rows: the time of its attention grows with its square, and
  // its memory does not. That of the composed definition does.
  const int64_t pieces = on_cpu && !config.composed ? in_parts(config.block_size, kLongest) : 1,
                length = in_parts(config.block_size, pieces),
                rows = in_parts(config.batch_size, parts) * pieces,
                most =
                    on_cpu ? std::min(rows, std::max<int64_t>(2, in_parts(kTokens, length))) : rows,
                fewer = in_parts(most, 2);
  const int64_t updating = update_bytes(model, config, threads);
  const FieldGuard in_part(&Context::threads, parts == 1 ? threads : 1);
  const bool waits = config.gradient_accumulation_steps > 1;
  const auto peaks_of = [&](int64_t n) {
    return peaks_of_pass(model, config, n, length, waits || parts > 1, waits);
  };
  peaks_of_pass(model, config, 1, std::min<int64_t>(length, 16), false, false);
  const MemoryEstimate kept = kept_memory(model, config);
  const int64_t trained = kept.gradients;
  int64_t others = 0;  // copies of weights in bf16, which that pass has made
  for (const Tensor& parameter : model.parameters())
    if (cast_address(parameter.array())) others += block_bytes(2 * parameter.numel());
  for (const auto& [name, buffer] : model.named_buffers())
    others += block_bytes(size_of(buffer.dtype()) * buffer.numel());
  const auto peaks = peaks_of(most), less = rows > most ? peaks_of(fewer) : peaks;
  int64_t peak = 0;
  for (size_t i = 0; i < peaks.size(); ++i) {
    const bool grows = rows > most && peaks.size() == less.size();
    const int64_t a_row = grows ? (peaks[i] - less[i]) / (most - fewer) : 0;
    peak = std::max(peak, peaks[i] + (rows - most) * a_row);
  }
  // Parts that run side by side reach their peaks together.
  const int64_t waiting = (parts - together) * trained,
                total = std::max({together * peak + waiting, parts * trained, trained + updating}),
                gradients = std::min(parts * trained + waiting, total);
  return {kept.model + others, gradients, total - gradients};
}

int64_t least_parameters(const GPTConfig& c) {
  return (c.vocab_size + c.block_size) * c.n_embd + 12 * c.n_layer * c.n_embd * c.n_embd;
}

void check_memory(const std::string& what, int64_t bytes, const std::string& advice) {
  const int64_t most = usable_memory();
  const auto gigabytes = [](int64_t n) { return (n + 50'000'000) / 100'000'000; };  // tenths
  INK_CHECK(bytes <= most, what, " needs about ", gigabytes(bytes) / 10, ".", gigabytes(bytes) % 10,
            " GB of memory, and this process can have ", gigabytes(most) / 10, ".",
            gigabytes(most) % 10, " GB; ", advice);
}

}  // namespace ink
