// Llama: the language model that most open models of today are kin of. Touvron et al. 2023; names
// as in Hugging Face's LlamaForCausalLM. It differs from GPT in its norm, positions, MLP and heads.
//
//   model.load_state_dict(load("model.safetensors"));  // with the settings of its config.json
//
// Names do not tell what is computed. These have the same names and load, and give other numbers:
// Gemma (norms multiply by 1 + weight), Cohere (LayerNorm), Granite (multipliers), SmolLM3 (layers
// without positions), a hidden_act other than silu, a sliding_window of some layers only
// (layer_types), and rope_parameters that RopeScaling lacks, such as truncate. Helium and Ernie 4.5
// have rope_interleaved.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "autograd/fused_ops.h"
#include "nn/add_layer_norm.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/language_model.h"
#include "nn/linear.h"
#include "nn/rotary_embedding.h"

namespace ink {

/// GPTConfig's sizes, and what a Llama has beside them. The options below serve its kin.
struct LlamaConfig : GPTConfig {
  // Heads of keys and values, each for n_head / n_kv_head of queries; 0: n_head.
  int64_t n_kv_head = 0;
  int64_t intermediate_size = 0;  // of the MLP; 0: 8/3 n_embd, rounded up to a multiple of 32
  double rope_theta = 10000;
  double rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;  // one table for tokens and the head

  int64_t head_dim = 0;         // 0: n_embd / n_head
  bool attention_bias = false;  // Qwen2: in q_proj, k_proj and v_proj
  bool qk_norm = false;         // Qwen3: queries and keys of each head are normalised
  // Mistral: a query sees itself and the window - 1 keys before; 0: all.
  int64_t sliding_window = 0;
  double logit_softcap = 0;  // Gemma 2: logits are softcap tanh(logits / softcap); 0: as they are
  bool parallel_block = false;    // GPT-J, PaLM: attention and MLP read the same normalised x
  bool rope_interleaved = false;  // pairs of neighbours, as in Llama's own weights
  RopeScaling rope_scaling = {};

  LlamaConfig(const GPTConfig& sizes = {}) : GPTConfig(sizes) { bias = false; }
  /// Returns itself with the defaults written out; throws unless a model can be made of it.
  LlamaConfig checked() const {
    LlamaConfig c = *this;
    c.GPTConfig::checked();
    if (c.n_kv_head == 0) c.n_kv_head = c.n_head;
    if (c.head_dim == 0) c.head_dim = c.head_width();
    if (c.intermediate_size == 0) c.intermediate_size = (8 * c.n_embd / 3 + 31) / 32 * 32;
    INK_CHECK(c.n_kv_head > 0 && c.n_head % c.n_kv_head == 0,
              "llama: expected n_head to be a multiple of n_kv_head, got ", c.n_head, " and ",
              c.n_kv_head);
    INK_CHECK(c.head_dim > 0 && c.head_dim % 2 == 0, "llama: expected an even head_dim, got ",
              c.head_dim);
    INK_CHECK(c.intermediate_size > 0 && c.sliding_window >= 0 && c.logit_softcap >= 0,
              "llama: expected an intermediate_size above 0, and sliding_window and logit_softcap "
              "of 0 or more, got ",
              c.intermediate_size, ", ", c.sliding_window, " and ", c.logit_softcap);
    rope_frequencies(c.head_dim, c.rope_theta, c.rope_scaling);  // throws if they are wrong
    return c;
  }
  /// The elements of its matrices.
  int64_t num_parameters() const {
    const LlamaConfig c = checked();
    return (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * c.n_embd +
           c.n_layer * c.n_embd *
               (2 * (c.n_head + c.n_kv_head) * c.head_dim + 3 * c.intermediate_size);
  }
};

/// x (B, T, C) -> (B, T, C), with rotary positions and grouped queries (Ainslie et al. 2023).
struct LlamaAttention : Module {
  int64_t head_dim = 0, sliding_window = 0;
  double dropout = 0;  // of the weights
  Linear q_proj, k_proj, v_proj, o_proj;
  std::optional<RMSNorm> q_norm, k_norm;

  explicit LlamaAttention(const LlamaConfig& c)
      : head_dim(c.head_dim),
        sliding_window(c.sliding_window),
        dropout(c.dropout),
        q_proj(c.n_embd, c.n_head * c.head_dim, c.attention_bias),
        k_proj(c.n_embd, c.n_kv_head * c.head_dim, c.attention_bias),
        v_proj(c.n_embd, c.n_kv_head * c.head_dim, c.attention_bias),
        o_proj(c.n_head * c.head_dim, c.n_embd, false) {
    if (!c.qk_norm) return;
    q_norm.emplace(c.head_dim, c.rms_norm_eps);
    k_norm.emplace(c.head_dim, c.rms_norm_eps);
  }

  /// With a cache, x holds the tokens after those that it remembers; it keeps keys as turned.
  Tensor operator()(const Tensor& x, const RotaryEmbedding& rotary, KVCache* cache) const {
    const int64_t start = cache ? cache->size() : 0;
    auto [q, k] = queries_and_keys(x, rotary, start);
    Tensor v = heads(v_proj(x)).transpose(1, 2);
    if (cache) std::tie(k, v) = cache->append(k, v);
    const Tensor y = scaled_dot_product_attention(q, k, v, options());
    return o_proj(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
  }

  /// The weights in evaluation: x (B, T, C) -> (B, n_head, T, T).
  Tensor weights(const Tensor& x, const RotaryEmbedding& rotary) const {
    const auto [q, k] = queries_and_keys(x, rotary, 0);
    return attention_weights(q, k, options());
  }

  INK_FIELDS(q_proj, k_proj, v_proj, o_proj, q_norm, k_norm)

 private:
  Tensor heads(const Tensor& x) const {  // (B, T, h d) -> (B, T, h, d)
    return x.view({x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
  }
  std::pair<Tensor, Tensor> queries_and_keys(const Tensor& x, const RotaryEmbedding& rotary,
                                             int64_t start) const {
    Tensor q = heads(q_proj(x)), k = heads(k_proj(x));
    if (q_norm) q = (*q_norm)(q), k = (*k_norm)(k);
    return {rotary(q.transpose(1, 2), start), rotary(k.transpose(1, 2), start)};
  }
  AttentionOptions options() const {
    return {
        .dropout_p = training ? dropout : 0, .causal_lower_right = true, .window = sliding_window};
  }
};

/// x (..., C) -> (..., C): down_proj(silu(gate_proj(x)) * up_proj(x)). Shazeer 2020.
struct LlamaMLP : Module {
  Linear gate_proj, up_proj, down_proj;

  explicit LlamaMLP(const LlamaConfig& c)
      : gate_proj(c.n_embd, c.intermediate_size, false),
        up_proj(c.n_embd, c.intermediate_size, false),
        down_proj(c.intermediate_size, c.n_embd, false) {}

  Tensor operator()(const Tensor& x) const { return down_proj(swiglu(gate_proj(x), up_proj(x))); }

  INK_FIELDS(gate_proj, up_proj, down_proj)
};

/// x (B, T, C) -> (B, T, C).
struct LlamaBlock : Module {
  bool parallel = false;
  double dropout = 0;  // of both branches
  LlamaAttention self_attn;
  LlamaMLP mlp;
  RMSNorm input_layernorm;
  std::optional<RMSNorm> post_attention_layernorm;

  explicit LlamaBlock(const LlamaConfig& c)
      : parallel(c.parallel_block),
        dropout(c.dropout),
        self_attn(c),
        mlp(c),
        input_layernorm(c.n_embd, c.rms_norm_eps) {
    if (!parallel) post_attention_layernorm.emplace(c.n_embd, c.rms_norm_eps);
  }

  /// Takes x and the branch that is still to be added to it, and returns the next two, so that each
  /// norm adds and normalises in one pass.
  std::pair<Tensor, Branch> operator()(Tensor x, const Branch& branch,
                                       const RotaryEmbedding& rotary, KVCache* cache) const {
    Tensor normed;
    std::tie(x, normed) = add_rms_norm(x, branch, input_layernorm);
    const double p = training ? dropout : 0;
    const Tensor attended = self_attn(normed, rotary, cache);
    if (parallel) return {x, Branch(attended + mlp(normed), p)};
    std::tie(x, normed) = add_rms_norm(x, Branch(attended, p), *post_attention_layernorm);
    return {x, Branch(mlp(normed), p)};
  }

  INK_FIELDS(self_attn, mlp, input_layernorm, post_attention_layernorm)
};

/// The model without its head.
struct LlamaModel : Module {
  Embedding embed_tokens;
  ModuleList<LlamaBlock> layers;
  RMSNorm norm;
  RotaryEmbedding rotary_emb;

  explicit LlamaModel(const LlamaConfig& c)
      : embed_tokens(c.vocab_size, c.n_embd),
        layers(c.n_layer, c),
        norm(c.n_embd, c.rms_norm_eps),
        rotary_emb(c.head_dim, c.block_size, c.rope_theta, c.rope_scaling, c.rope_interleaved) {}

  /// ids (B, T) -> (B, T, C). With caches, one for each layer, ids come after what they remember.
  Tensor operator()(const Tensor& ids, std::vector<KVCache>* caches = nullptr) const {
    INK_CHECK(ids.dim() == 2 && ids.numel() > 0, "llama: expected ids (B, T), at least one, got ",
              ids.shape());
    Tensor x = embed_tokens(ids);
    Branch branch;
    for (size_t i = 0; i < layers.size(); ++i)
      std::tie(x, branch) = layers[i](x, branch, rotary_emb, caches ? &caches->at(i) : nullptr);
    return add_rms_norm(x, branch, norm).second;
  }

  INK_FIELDS(embed_tokens, layers, norm, rotary_emb)
};

struct Llama : LanguageModel {
  LlamaConfig llama_config;
  LlamaModel model;
  Linear lm_head;

  /// Weights are N(0, 0.02), those into the residual stream divided by sqrt(2 n_layer), as in GPT.
  explicit Llama(const LlamaConfig& c)
      : LanguageModel(c),
        llama_config(c.checked()),
        model(llama_config),
        lm_head(c.n_embd, c.vocab_size, false) {
    if (c.tie_word_embeddings) model.embed_tokens.weight = lm_head.weight;
    init_weights();
  }

  Tensor operator()(const Tensor& ids) const override { return head(model(ids)); }
  Tensor loss(const Tensor& ids, const Tensor& targets,
              Reduction reduction = Reduction::mean) const override;

  bool uses_caches() const override { return true; }
  Tensor next_logits(const Tensor& ids, DecodeCache* cache) const override {
    return head(model(ids, cache ? &cache->layers : nullptr).select(1, -1));
  }
  std::vector<Tensor> attention_weights(const Tensor& ids) const override;
  int64_t attention_window() const override { return llama_config.sliding_window; }

  INK_FIELDS(model, lm_head)

 private:
  void init_weights();
  Tensor head(const Tensor& x) const {
    const Tensor logits = lm_head(x);
    const double cap = llama_config.logit_softcap;
    return cap > 0 ? cap * tanh(logits / cap) : logits;
  }
};

}  // namespace ink
