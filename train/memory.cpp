#include "train/memory.h"

#include <algorithm>
#include <array>

#include "autograd/base/parallel.h"
#include "autograd/fused_ops.h"
#include "autograd/gemm/units.h"
#include "autograd/inspect/machine.h"
#include "autograd/memory/storage.h"
#include "train/data_parallel.h"

namespace ink {
namespace {

int64_t floats(int64_t count) { return block_bytes(4 * count); }

// The bytes of a step's tensors for `tokens` tokens, of a batch or of a part.
struct Sizes {
  const GPTConfig& model;
  int64_t tokens;
  int64_t narrow;  // bytes of an activation between two linear layers: 2 under Autocast
  bool recompute;  // outputs of norms and gelu are not saved
  Device device;

  /// `width` numbers per token, in the residual stream's dtype or in an activation's.
  int64_t stream(int64_t width) const { return floats(tokens * width); }
  int64_t activation(int64_t width) const { return block_bytes(narrow * tokens * width); }
};

// The bytes that forward saves of a block for backward.
int64_t kept_of_block(const Sizes& s) {
  const int64_t C = s.model.n_embd;
  const int64_t norm = s.stream(C) + 2 * s.stream(1) +  // input, statistics, output
                       (s.recompute ? 0 : s.activation(C));
  const int64_t attention = s.activation(3 * C) + s.activation(C) + s.stream(s.model.n_head);
  const int64_t mlp = (s.recompute ? 1 : 2) * s.activation(4 * C);  // before and after gelu
  return 2 * norm + attention + mlp;
}

// The most that a block's backward adds: the stream's gradient, a gradient in the MLP that is four
// times as wide, and a weight's gradient. The stream's gradient also has copies: one as an
// activation, one for dropout.
int64_t added_by_block(const Sizes& s, bool dropout) {
  const int64_t C = s.model.n_embd, copies = (s.narrow < 4 ? 1 : 0) + (dropout ? 1 : 0);
  // gelu's output is computed again if it was not saved.
  return s.stream(C) + copies * s.activation(C) + (s.recompute ? 2 : 1) * s.activation(4 * C) +
         floats(4 * C * C);
}

int64_t head_rows(const Sizes& s) {
  return linear_cross_entropy_rows(s.tokens, s.model.vocab_size, s.device);
}

// The last norm's input and output; the gradient of that output, which the head computes in
// forward; a chunk of logits, which its gradient overwrites unless that is narrower; and the weight
// again if it is padded.
int64_t head_activations(const Sizes& s) {
  const int64_t C = s.model.n_embd, V = s.model.vocab_size,
                padded = linear_cross_entropy_classes(V, s.device), logits = head_rows(s) * padded;
  return s.stream(C) + 2 * s.activation(C) + floats(logits) +
         (s.narrow < 4 ? block_bytes(s.narrow * logits) : 0) +
         (padded > V ? block_bytes(s.narrow * padded * C) : 0);
}

// If a unit of the processor computes products, each thread packs operands into scratch memory: the
// most is that of the MLP's products or the head's. Otherwise products of bf16 run on f32 copies of
// both operands and of the result; the MLP's are the largest.
int64_t product_scratch(const Sizes& s) {
  const int64_t C = s.model.n_embd, V = s.model.vocab_size, N = s.tokens, rows = head_rows(s);
  const DType dtype = s.narrow < 4 ? bf16 : f32;
  const GemmUnit* unit = gemm_unit(dtype);
  if (unit == nullptr)
    return s.narrow < 4 ? floats(N * C) + floats(4 * C * C) + floats(4 * N * C) : 0;
  const auto bytes = [&](int64_t m, int64_t n, int64_t k) {
    return unit->scratch_bytes(dtype, m, n, k);
  };
  const int64_t most = std::max({bytes(N, 4 * C, C), bytes(N, C, 4 * C), bytes(4 * C, C, N),
                                 bytes(rows, V, C), bytes(rows, C, V), bytes(V, C, rows)});
  return block_bytes(max_threads() * most);
}

// The number of weights of which linear layers keep bf16 copies.
int64_t rounded_weights(const GPT& model) {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.dim() == 2 && name != "wpe.weight") bytes += block_bytes(2 * parameter.numel());
  }
  return bytes;
}

}  // namespace

// A step reaches its peak at one of the moments below. As backward goes from block to block, it
// frees what a block saved and adds its gradients, so the peak is at the first or the last block.
// Parts of a batch that run side by side reach these moments together, each with gradients of its
// own.
MemoryEstimate estimate_memory(const GPT& model, const TrainConfig& config) {
  const GPTConfig& c = model.config;
  const bool mixed = config.autocast() == bf16;
  const int64_t parts = batch_parts(config, model.num_parameters()),
                together = std::min(parts, max_threads());
  const Sizes s{c, (config.batch_size + parts - 1) / parts * c.block_size, mixed ? 2 : 4,
                config.recompute, parse_device(config.device)};
  int64_t parameters = 0, block = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const int64_t bytes = floats(parameter.numel());
    parameters += bytes;
    if (name.rfind("h.0.", 0) == 0) block += bytes;
  }
  const int64_t moments = config.optimizer == "adamw" ? 2 : config.momentum > 0 ? 1 : 0;
  // Gradients that exist already in forward: those of earlier micro-batches or of earlier parts.
  const int64_t waiting = config.gradient_accumulation_steps > 1 ? parameters : 0,
                before = waiting + (parts - together) * parameters;
  // Gradients of the parts that run: added to those, or, if one part runs alone, in the same
  // memory.
  const auto gradients = [&](int64_t bytes) {
    return parts == 1 ? std::max(before, bytes) : before + together * bytes;
  };
  const int64_t head = before + together * floats(c.vocab_size * c.n_embd), kept = kept_of_block(s);
  const int64_t added = added_by_block(s, config.dropout > 0),
                packed = packs_operands(s.device) ? product_scratch(s) : 0;
  struct Moment {
    int64_t gradients, activations;
    int64_t total() const { return gradients + activations; }
  };
  const std::array<Moment, 4> step = {
      {{head, together * (c.n_layer * kept + head_activations(s))},   // the head
       {head, together * (c.n_layer * kept + added)},                 // the last block
       {gradients(parameters - block), together * (kept + added)},    // the first block
       {gradients(parameters), together * 3 * s.stream(c.n_embd)}}};  // the end
  const Moment peak = *std::max_element(step.begin(), step.end(),
                                        [](auto& a, auto& b) { return a.total() < b.total(); });
  return {(1 + moments) * parameters + (mixed ? rounded_weights(model) : 0), peak.gradients,
          peak.activations + packed};
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
