#include "train/memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/base/parallel.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/units.h"
#include "autograd/inspect/machine.h"
#include "autograd/kernels/attention.h"
#include "autograd/kernels/gemm.h"
#include "autograd/memory/storage.h"
#include "nn/gpt.h"
#include "train/data_parallel.h"
#include "train/muon.h"

namespace ink {
namespace {

int64_t floats(int64_t count) { return block_bytes(4 * count); }

// The sizes of a step's tensors, of a batch or of a part.
struct Sizes {
  const GPTConfig& model;
  int64_t rows;    // of the batch
  int64_t tokens;  // in these rows
  DType narrow;    // of an activation between two linear layers: bf16 under Autocast
  bool recompute;  // outputs of norms and gelu are not saved
  double dropout;
  Device device;

  /// Bytes of `width` numbers per token, in the residual stream's dtype or in an activation's.
  int64_t stream(int64_t width) const { return floats(tokens * width); }
  int64_t activation(int64_t width) const { return block_bytes(size_of(narrow) * tokens * width); }
};

// The bytes that forward saves of a block for backward.
struct Kept {
  int64_t norm;       // one of the two
  int64_t attention;  // q, k, v, the output and the softmax's sums
  int64_t mlp;        // before and after gelu
  int64_t total() const { return 2 * norm + attention + mlp; }
};

Kept kept_of_block(const Sizes& s) {
  const int64_t C = s.model.n_embd;
  return {s.stream(C) + 2 * s.stream(1) + (s.recompute ? 0 : s.activation(C)),
          s.activation(3 * C) + s.activation(C) + s.stream(s.model.n_head),
          (s.recompute ? 1 : 2) * s.activation(4 * C)};
}

// An array that has no memory: a kernel says by its layout and dtype what it will allocate.
Array shaped(const Shape& shape, DType dtype) {
  return {nullptr, {shape, contiguous_strides(shape), 0}, dtype};
}

// What the products of a linear layer allocate: y = x W^T, dW = dy^T x and dx = dy W.
struct LinearBytes {
  int64_t forward = 0, dweight = 0, dx = 0;

  LinearBytes(const Sizes& s, int64_t rows, int64_t in, int64_t out, DType y_dtype) {
    if (!packs_operands(s.device)) return;
    const Array x = shaped({rows, in}, s.narrow), w = shaped({out, in}, s.narrow),
                dy = shaped({rows, out}, s.narrow);
    forward = cpu::gemm_bytes(shaped({rows, out}, y_dtype), x, w.transposed());
    dweight = cpu::gemm_bytes(shaped({out, in}, f32), dy.transposed(), x);
    dx = cpu::gemm_bytes(x, dy, w);
  }
  LinearBytes(const Sizes& s, int64_t in, int64_t out)
      : LinearBytes(s, s.tokens, in, out, s.narrow) {}
};

// The same of attention.
struct AttentionBytes {
  int64_t forward = 0, backward = 0;

  explicit AttentionBytes(const Sizes& s) {
    if (!packs_operands(s.device)) return;
    const GPTConfig& c = s.model;
    const Array x = shaped({s.rows, c.n_head, s.tokens / s.rows, c.n_embd / c.n_head}, s.narrow);
    const AttentionInputs inputs{x, x, x, Array(), {1, 0, s.dropout, {}}};
    forward = cpu::attention_bytes(inputs);
    backward = cpu::attention_backward_bytes(inputs);
  }
};

// What exists at a moment, beside parameters.
struct Moment {
  int64_t gradients, activations;
  int64_t total() const { return gradients + activations; }
};

// The most that exists in the forward of a block: in attention, or in the MLP's second layer. The
// output of the MLP before, which the block has added, exists until its end.
int64_t forward_of_block(const Sizes& s) {
  const int64_t C = s.model.n_embd, narrow = s.activation(C),
                others = (s.recompute ? narrow : 0) + (s.model.n_layer > 1 ? narrow : 0);
  const Kept kept = kept_of_block(s);
  return others + std::max(kept.norm + kept.attention + AttentionBytes(s).forward,
                           kept.total() + (s.recompute ? s.activation(4 * C) : 0) + narrow +
                               LinearBytes(s, 4 * C, C).forward);
}

// What exists of a block at the moments of its backward, from its last layer to its first. Each has
// the stream's gradient, and the MLP's and attention's output a copy of it, which dropout or bf16
// needs. What was not saved is computed again for a weight's gradient.
std::vector<Moment> backward_of_block(const Sizes& s) {
  const int64_t C = s.model.n_embd, stream = s.stream(C), narrow = s.activation(C),
                wide = s.activation(4 * C), square = floats(C * C),
                branch = s.narrow == bf16 || s.dropout > 0 ? narrow : 0;
  const Kept kept = kept_of_block(s);
  const auto layer = [&](int64_t in, int64_t out) {
    const LinearBytes bytes(s, in, out);
    return std::max((s.recompute ? s.activation(in) : 0) + bytes.dweight,
                    s.activation(in) + bytes.dx);
  };
  return {{4 * square, kept.total() + stream + branch + layer(4 * C, C)},
          {8 * square, 2 * kept.norm + kept.attention + stream + wide + layer(C, 4 * C)},
          {9 * square, kept.norm + kept.attention + stream + branch + layer(C, C)},
          {9 * square, kept.norm + kept.attention + stream + narrow + s.activation(3 * C) +
                           AttentionBytes(s).backward},
          {12 * square, kept.norm + stream + s.activation(3 * C) + layer(C, 3 * C)}};
}

// The last norm's input and output; the gradient of that output, which the head computes in
// forward; a chunk of logits, which its gradient overwrites, unless a CPU has them in f32 beside a
// bf16 gradient; the weight again if it is padded; and what the head's products allocate.
int64_t head_activations(const Sizes& s) {
  const int64_t C = s.model.n_embd, V = s.model.vocab_size,
                rows = linear_cross_entropy_rows(s.tokens, V, s.device),
                padded = linear_cross_entropy_classes(V, s.device), logits = rows * padded,
                bytes = size_of(s.narrow);
  const LinearBytes head(s, rows, C, V, f32);
  const bool in_place = s.narrow == f32 || !s.device.is_cpu();
  return s.stream(C) + 2 * s.stream(1) + 2 * s.activation(C) +
         (in_place ? block_bytes(bytes * logits) : floats(logits)) +
         std::max(head.forward,
                  (in_place ? 0 : block_bytes(bytes * logits)) + std::max(head.dweight, head.dx)) +
         (padded > V ? block_bytes(bytes * padded * C) : 0);
}

// The number of weights of which linear layers keep bf16 copies.
int64_t rounded_weights(const GPT& model) {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.dim() == 2 && name != "wpe.weight") bytes += block_bytes(2 * parameter.numel());
  }
  return bytes;
}

// Bytes of a model's parameters, and of those of its first block.
struct ParameterBytes {
  int64_t all = 0, block = 0;

  explicit ParameterBytes(const GPT& model) {
    for (const auto& [name, parameter] : model.named_parameters()) {
      const int64_t bytes = floats(parameter.numel());
      all += bytes;
      if (name.rfind("h.0.", 0) == 0) block += bytes;
    }
  }
};

Sizes sizes_of(const GPT& model, const TrainConfig& config, int64_t parts) {
  const int64_t rows = (config.batch_size + parts - 1) / parts;
  return {.model = model.config,
          .rows = rows,
          .tokens = rows * model.config.block_size,
          .narrow = config.autocast(),
          .recompute = config.recompute,
          .dropout = config.dropout,
          .device = parse_device(config.device)};
}

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

// What a run keeps beside the parameters: moments, and an average.
static int64_t beside_parameters(const LanguageModel& model, const TrainConfig& config) {
  int64_t average = 0;
  if (config.ema > 0)
    for (const Tensor& parameter : model.parameters()) average += floats(parameter.numel());
  return average + moment_bytes(model.named_parameters(),
                                table_names(model, model.config.vocab_size), config);
}

// Is it GPT-2's, part by part? Attention may change its scores.
static const GPT* plain_gpt(const LanguageModel& model) {
  if (typeid(model) != typeid(GPT)) return nullptr;
  const auto& gpt = static_cast<const GPT&>(model);
  for (const auto& pointer : gpt.h) {
    const Block& block = *pointer;
    if (typeid(block) != typeid(Block)) return nullptr;
    const MLP& mlp = *block.mlp;
    if (typeid(mlp) != typeid(MLP) || block.attn->n_kv_head != block.attn->n_head) return nullptr;
  }
  return &gpt;
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

// Of a pass forward and backward of these rows, which adds to gradients that exist if `waits`.
static std::vector<int64_t> peaks_of_pass(const LanguageModel& model, const TrainConfig& config,
                                          int64_t rows, bool waits) {
  const Trial trial(model, config);
  const Device device = context().default_device;
  const Tensor ids = zeros({rows, config.block_size}, {i64, device}), one = ones({}, device);
  PeaksOfOps all(device);
  const Observe observe(all);
  GradStore gradients;
  for (int pass = 0; pass <= waits; ++pass) {
    all.peaks.clear();
    const Tensor loss = model.loss(ids, ids, waits ? Reduction::sum : Reduction::mean);
    backward(waits ? loss * one : loss, gradients);
    all.note();
  }
  return all.peaks;
}

// What an op needs grows by the same bytes with each row. So two passes, of few rows, tell what it
// needs for all of them. A small model runs all rows in one pass, which is exact.
static MemoryEstimate measured_memory(const LanguageModel& model, const TrainConfig& config) {
  const int64_t threads = config.threads > 0 ? config.threads : max_threads(),
                parts = batch_parts(config, model.num_parameters()),
                together = std::min({parts, threads, openmp_threads()}),
                rows = (config.batch_size + parts - 1) / parts;
  constexpr int64_t kTokens = 4096, kProducts = 10'000'000'000;  // weights times tokens
  const int64_t tokens = std::min(kTokens, kProducts / (model.num_parameters() + 1)),
                most = std::min(rows, std::max<int64_t>(2, tokens / config.block_size)),
                fewer = most / 2;
  const FieldGuard in_part(&Context::threads, parts == 1 ? threads : 1);
  const bool waits = config.gradient_accumulation_steps > 1;
  peaks_of_pass(model, config, 1, false);
  int64_t parameters = 0, trained = 0;  // bytes
  int64_t others = 0;                   // copies of weights in bf16, which that pass has made
  for (const Tensor& parameter : model.parameters()) {
    parameters += floats(parameter.numel());
    if (parameter.requires_grad()) trained += floats(parameter.numel());
    if (cast_address(parameter.array())) others += block_bytes(2 * parameter.numel());
  }
  for (const auto& [name, buffer] : model.named_buffers())
    others += block_bytes(size_of(buffer.dtype()) * buffer.numel());
  const auto peaks = peaks_of_pass(model, config, most, waits);
  const auto less = rows > most ? peaks_of_pass(model, config, fewer, waits) : peaks;
  int64_t peak = 0;
  for (size_t i = 0; i < peaks.size(); ++i) {
    const bool grows = rows > most && peaks.size() == less.size();
    const int64_t a_row = grows ? (peaks[i] - less[i]) / (most - fewer) : 0;
    peak = std::max(peak, peaks[i] + (rows - most) * a_row);
  }
  const int64_t waiting = (parts - together) * trained,
                total = std::max(together * peak + waiting, parts * trained),
                gradients = std::min(parts * trained + waiting, total);
  return {parameters + beside_parameters(model, config) + others, gradients, total - gradients};
}

// Parts of a batch that run side by side reach the moments of a step together, each with gradients
// of its own. As backward goes from block to block, it frees what a block saved and adds its
// gradients, so the peak is at the first or the last block.
MemoryEstimate estimate_memory(const LanguageModel& any_model, const TrainConfig& config) {
  const GPT* gpt = plain_gpt(any_model);
  if (!gpt) return measured_memory(any_model, config);
  const GPT& model = *gpt;
  const GPTConfig& c = model.config;
  const int64_t threads = config.threads > 0 ? config.threads : max_threads();
  const int64_t parts = batch_parts(config, model.num_parameters()),
                together = std::min({parts, threads, openmp_threads()});
  const FieldGuard in_part(&Context::threads, parts == 1 ? threads : 1);
  const Sizes s = sizes_of(model, config, parts);
  const auto [parameters, block] = ParameterBytes(model);
  // Gradients that exist already in forward: those of earlier micro-batches or of earlier parts.
  const bool waits = config.gradient_accumulation_steps > 1;
  const int64_t before = (waits ? parts : parts - together) * parameters;
  // Gradients of the parts that run: in the memory of those that they have, or beside those of
  // other parts. Only the head's are made in forward, and made again if the loss is scaled.
  const auto gradients = [&](int64_t bytes) {
    return parts == 1 || waits ? std::max(before, bytes) : before + together * bytes;
  };
  const int64_t head = floats(c.vocab_size * c.n_embd), positions = floats(c.block_size * c.n_embd),
                stream = s.stream(c.n_embd), narrow = s.activation(c.n_embd),
                kept = kept_of_block(s).total(), others = (c.n_layer - 1) * kept,
                again = parts > 1 || waits ? 1 : 0;
  std::vector<Moment> step = {
      {before, others + forward_of_block(s)},
      {before + together * head, c.n_layer * kept + head_activations(s)},
      {before + together * (1 + again) * head, c.n_layer * kept + stream + (2 + again) * narrow},
      {gradients(parameters), (config.dropout > 0 ? 2 : 1) * stream + 2 * positions}};
  for (const Moment& m : backward_of_block(s)) {
    step.push_back({gradients(head + m.gradients), others + m.activations});  // of the last block
    step.push_back({gradients(parameters - block - positions + m.gradients), m.activations});
  }
  for (Moment& m : step) m.activations *= together;
  const Moment peak = *std::max_element(step.begin(), step.end(),
                                        [](auto& a, auto& b) { return a.total() < b.total(); });
  return {parameters + beside_parameters(model, config) +
              (s.narrow == bf16 ? rounded_weights(model) : 0),
          peak.gradients, peak.activations};
}

int64_t least_parameters(const GPTConfig& c) {
  return (c.vocab_size + c.block_size) * c.n_embd + 12 * c.n_layer * c.n_embd * c.n_embd;
}

void check_memory(const std::string& what, int64_t bytes) {
  const int64_t most = usable_memory();
  const auto gigabytes = [](int64_t n) { return (n + 50'000'000) / 100'000'000; };  // tenths
  INK_CHECK(bytes <= most, what, " needs about ", gigabytes(bytes) / 10, ".", gigabytes(bytes) % 10,
            " GB of memory, and this process can have ", gigabytes(most) / 10, ".",
            gigabytes(most) % 10, " GB; choose smaller sizes");
}

}  // namespace ink
