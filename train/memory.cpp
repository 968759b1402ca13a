#include "train/memory.h"

#include <algorithm>

#include "autograd/gemm_amx.h"
#include "autograd/parallel.h"
#include "autograd/storage.h"

namespace ink {
namespace {

int64_t floats(int64_t count) { return block_bytes(4 * count); }

// What forward keeps of a block for backward.
int64_t kept_of_block(int64_t tokens, const GPTConfig& c) {
  const int64_t C = tokens * c.n_embd, norm = C + 2 * tokens;  // a norm's input, mean and rstd
  int64_t bytes = 0;
  for (int64_t count : {norm, C, 3 * C, C, tokens * c.n_head,  // ln_1 and its output, q k v, heads
                        norm, C, 4 * C, 4 * C})                // ln_2 and its output, gelu's sides
    bytes += floats(count);
  return bytes;
}

int64_t head_rows(int64_t tokens, const GPTConfig& c) {
  return std::min(tokens, std::max<int64_t>(64, (int64_t{1} << 22) / c.vocab_size));
}

// The head computes its gradients in forward, on chunks of logits that become their gradients.
int64_t head_workspace(int64_t tokens, const GPTConfig& c) {
  return floats(head_rows(tokens, c) * c.vocab_size) + 2 * floats(tokens * c.n_embd);
}

// What each thread packs a product's operands into, where the tile unit computes it: the most of
// the MLP's products and the head's.
int64_t product_scratch(int64_t tokens, const GPTConfig& c) {
  if (!amx::available()) return 0;
  const int64_t C = c.n_embd, V = c.vocab_size, rows = head_rows(tokens, c);
  const int64_t most =
      std::max({amx::scratch_bytes(tokens, 4 * C, C), amx::scratch_bytes(tokens, C, 4 * C),
                amx::scratch_bytes(4 * C, C, tokens), amx::scratch_bytes(rows, V, C),
                amx::scratch_bytes(rows, C, V), amx::scratch_bytes(V, C, rows)});
  return block_bytes(max_threads() * most);
}

}  // namespace

// A step is at its peak at one of these moments. As backward goes from block to block it frees what
// the block kept and leaves its gradients, so that one of its ends is the highest.
MemoryEstimate estimate_memory(const GPT& model, const TrainConfig& config) {
  const GPTConfig& c = model.config;
  const int64_t tokens = config.batch_size * c.block_size, C = floats(tokens * c.n_embd);
  int64_t parameters = 0, block = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const int64_t bytes = floats(parameter.numel());
    parameters += bytes;
    if (name.rfind("h.0.", 0) == 0) block += bytes;
  }
  const int64_t moments = config.optimizer == "adamw" ? 2 : config.momentum > 0 ? 1 : 0;
  const int64_t head = floats(c.vocab_size * c.n_embd), kept = kept_of_block(tokens, c);
  // A block's backward holds the stream's gradient, and inside the MLP one that is four times as
  // wide; dropout makes another of the stream's.
  const int64_t inside = (config.dropout > 0 ? 6 : 5) * C + floats(4 * c.n_embd * c.n_embd);
  const bool accumulates = config.gradient_accumulation_steps > 1;
  const int64_t before = accumulates ? parameters : 0;  // gradients that forward finds
  struct Moment {
    int64_t gradients, activations;
  };
  const int64_t packed = product_scratch(tokens, c);
  const Moment moments_of_a_step[] = {
      {before + head, c.n_layer * kept + C + head_workspace(tokens, c) + packed},  // the head
      {before + head, c.n_layer * kept + inside + packed},                         // the last block
      {std::max(before, parameters - block), kept + inside + packed},  // the first block
      {parameters, 3 * C + packed}};                                   // its end
  const Moment peak =
      *std::max_element(std::begin(moments_of_a_step), std::end(moments_of_a_step),
                        [](const Moment& a, const Moment& b) {
                          return a.gradients + a.activations < b.gradients + b.activations;
                        });
  return {(1 + moments) * parameters, peak.gradients, peak.activations};
}

}  // namespace ink
