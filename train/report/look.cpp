#include "train/report/look.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "autograd/fused_ops.h"
#include "autograd/more_ops.h"
#include "nn/gpt.h"
#include "train/flow/flow.h"
#include "train/report/page.h"

namespace ink {
namespace {

// A tensor to be shown: (rows, columns), or (heads, rows, rows).
struct ShownTensor {
  std::string name;
  Tensor x;
  bool of_heads = false, causal = false;

  /// Values for each row of a picture with at most so many columns.
  int64_t numbers(int64_t columns) const {
    const int64_t n = x.size(-1);
    if (of_heads) return causal ? x.size(0) * n * (n + 1) / 2 : x.numel();
    return x.size(0) * std::min(columns, n);
  }
};

struct LookStep {
  std::string module, op;
  std::vector<int64_t> from;
  std::vector<ShownTensor> shown;
};

constexpr const char* kStream = "residual stream";

// A row for each of T tokens: (1, H, T, d) -> (T, H d), the heads side by side, and (1, T, ...) ->
// (T, ...). Nothing if no dimension is of tokens.
std::optional<Tensor> by_token(const Tensor& x, int64_t tokens) {
  int64_t at = x.dim() == 4 && x.size(2) == tokens ? 2 : 0;
  while (at < x.dim() && x.size(at) != tokens) ++at;
  if (at == x.dim()) return {};
  return x.transpose(0, at).reshape({tokens, x.numel() / tokens});
}

// The weights (H, T, T) behind an attention op, from its operands, causal or not. Nothing if it did
// something else with them, such as another scale.
std::optional<Tensor> weights_of(const std::vector<Tensor>& inputs, const Tensor& y) {
  if (inputs.size() < 3 || y.dim() != 4 || y.size(0) != 1) return {};
  const Tensor &q = inputs[0], &k = inputs[1], &v = inputs[2];
  if (q.dim() != 4 || k.shape() != q.shape() || v.dim() != 4 || v.size(1) != q.size(1)) return {};
  for (const bool causal : {true, false}) {
    AttentionOptions options{.is_causal = causal};
    if (inputs.size() > 3) options.attn_mask = inputs[3];
    const Tensor weights = attention_weights(q, k, options).to(f32);
    if (allclose(matmul(weights, v.to(f32)), y.to(f32), 1e-2, 1e-3)) return weights.select(0, 0);
  }
  return {};
}

// Keeps what each op computed.
class Looked : public Flow {
 public:
  Looked(const Module& model, int64_t tokens) : Flow(model), tokens_(tokens) {}
  std::vector<LookStep> steps;

 private:
  void listed(const FlowOp& op, const std::vector<Tensor>& inputs,
              const std::vector<Tensor>& outputs) override {
    const Unseen unseen;
    steps.push_back({op.module, op.name, {}, {}});
    for (const FlowOp::Input& input : op.inputs)
      if (input.from >= 0) steps.back().from.push_back(input.from);
    show(op, inputs, outputs);
  }

  void add(const std::string& name, const Tensor& x) {
    if (const auto rows = by_token(x.detach().to(f32), tokens_); rows && x.numel() > 0)
      steps.back().shown.push_back({name, *rows});
  }
  void add_heads(const std::string& name, const Tensor& x, bool causal) {
    steps.back().shown.push_back({name, x, true, causal});
  }

  void show(const FlowOp& op, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& outputs) {
    const Tensor& y = outputs[0];
    if (op.name == "add_layer_norm" || op.name == "add_rms_norm") {
      add(kStream, y);
      add("normed", outputs[1]);
    } else if (op.module.ends_with("attn.c_attn") && y.size(-1) == 3 * inputs[0].size(-1)) {
      const std::vector<Tensor> qkv = split(y, y.size(-1) / 3, -1);
      add("queries", qkv[0]);
      add("keys", qkv[1]);
      add("values", qkv[2]);
    } else if (op.name == "causal_attention" || op.name == "scaled_dot_product_attention") {
      show_attention(inputs, y);
    } else if (op.name == "gelu_linear") {
      add("hidden after GELU", gelu(inputs[0], Gelu::tanh));
      add("output", y);
    } else {
      show_others(op, inputs, outputs);
    }
  }

  void show_attention(const std::vector<Tensor>& inputs, const Tensor& y) {
    if (const auto weights = weights_of(inputs, y)) {
      const Tensor later = triu(ones_like(*weights), 1) == 1;
      const bool triangle = sum(where(later, *weights, zeros_like(*weights))).item() == 0;
      const double scale = 1 / std::sqrt(static_cast<double>(inputs[0].size(3)));
      const Tensor scores = matmul(inputs[0], inputs[1].transpose(2, 3)) * scale;
      add_heads("scores", scores.select(0, 0).to(f32), triangle);
      add_heads("weights", *weights, triangle);
    }
    add("output", y);
  }

  // The parameters that it read row by row (positions), then its outputs.
  void show_others(const FlowOp& op, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs) {
    const Tensor& y = outputs[0];
    size_t i = 0;
    for (const Tensor& x : inputs) {
      if (!x.defined()) continue;
      const std::string& parameter = op.inputs[i++].parameter;
      const bool rows = x.dim() == 2 && y.dim() == 3 && x.shape() == Shape{y.size(1), y.size(2)};
      if (!parameter.empty() && rows) add(parameter, x);
    }
    for (size_t k = 0; k < outputs.size(); ++k)
      add(outputs.size() == 1 ? "output" : "output " + std::to_string(k), outputs[k]);
  }

  int64_t tokens_;
};

// ---- numbers as text

template <class Word>
void append_word(std::string& bytes, Word word) {
  for (size_t i = 0; i < sizeof(Word); ++i) bytes += static_cast<char>(word >> (8 * i) & 255);
}
std::string halves(const std::vector<double>& values) {
  std::string bytes;
  for (const double x : values) append_word(bytes, half_bits(x));
  return base64(bytes);
}
std::string floats(const std::vector<double>& values) {
  std::string bytes;
  for (const double x : values) append_word(bytes, std::bit_cast<uint32_t>(static_cast<float>(x)));
  return base64(bytes);
}

nlohmann::json picture(const ShownTensor& shown, int64_t columns) {
  const int64_t rows = shown.x.size(-2);
  if (!shown.of_heads) {
    const int64_t width = shown.x.size(1), seen = std::min(width, columns);
    return {{"name", shown.name},
            {"rows", rows},
            {"columns", width},
            {"shown", seen},
            {"values", halves(shown.x.narrow(1, 0, seen).tolist())}};
  }
  const std::vector<double> all = shown.x.tolist();
  std::vector<double> values;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t n = static_cast<size_t>(rows), column = i % n, row = i / n % n;
    if (!shown.causal || column <= row) values.push_back(all[i]);
  }
  return {{"name", shown.name},
          {"heads", shown.x.size(0)},
          {"rows", rows},
          {"causal", shown.causal},
          {"values", halves(values)}};
}

// The most columns that a picture may have, so that all fit.
int64_t columns_that_fit(const std::vector<LookStep>& steps, int64_t bytes) {
  for (int64_t columns = int64_t{1} << 20;; columns /= 2) {
    int64_t numbers = 0;
    for (const LookStep& step : steps)
      for (const ShownTensor& shown : step.shown) numbers += shown.numbers(columns);
    if (numbers * 8 / 3 <= bytes || columns == 8) return columns;
  }
}

nlohmann::json to_json(const std::vector<LookStep>& steps, int64_t columns) {
  nlohmann::json list = nlohmann::json::array();
  for (const LookStep& step : steps) {
    nlohmann::json pictures = nlohmann::json::array();
    for (const ShownTensor& shown : step.shown) pictures.push_back(picture(shown, columns));
    list.push_back({{"module", step.module},
                    {"op", step.op},
                    {"from", step.from},
                    {"pictures", std::move(pictures)}});
  }
  return list;
}

// ---- what comes next

// Removes what a head adds, while it lives: its columns of c_proj.
class WithoutHead {
 public:
  WithoutHead(const CausalSelfAttention& attention, int64_t head) {
    const int64_t width = attention.c_proj.in_features / attention.n_head;
    columns_ = attention.c_proj.weight.detach().narrow(1, head * width, width);
    saved_ = columns_.clone();
    columns_.zero_();
  }
  ~WithoutHead() { columns_.copy_(saved_); }
  WithoutHead(const WithoutHead&) = delete;
  WithoutHead& operator=(const WithoutHead&) = delete;

 private:
  Tensor columns_, saved_;
};

// Of the tokens that follow: ids (1, T), p (T, V) -> T - 1 numbers.
std::vector<double> probabilities_of_next(const Tensor& p, const Tensor& ids) {
  const int64_t n = ids.size(1) - 1;
  if (n == 0) return {};
  return gather(p.narrow(0, 0, n), 1, ids.narrow(1, 1, n).reshape({n, 1})).tolist();
}

// logits (T, V)
nlohmann::json next_tokens(const Tensor& logits, const Tensor& ids) {
  constexpr int64_t kMost = 256;
  const int64_t count = std::min(logits.size(1), kMost);
  const ValuesIndices best = topk(logits, count);
  return {{"count", count},
          {"vocabulary", logits.size(1)},
          {"ids", best.indices.tolist<int64_t>()},
          {"logits", floats(best.values.tolist())},
          {"p_next", floats(probabilities_of_next(softmax(logits), ids))}};
}

// The tokens that a residual stream (T, C) would give if the model stopped there.
nlohmann::json stopped_at(const GPT& model, const Tensor& stream) {
  const Tensor p = softmax(model.lm_head(model.last_norm(stream, {})).to(f32));
  const ValuesIndices best = topk(p, std::min<int64_t>(p.size(1), 3));
  return {{"count", best.indices.size(1)},
          {"ids", best.indices.tolist<int64_t>()},
          {"p", floats(best.values.tolist())}};
}

// The attentions of which one head after the other can be left out; none if a block has another.
std::vector<const CausalSelfAttention*> attentions_of(const GPT& model) {
  std::vector<const CausalSelfAttention*> list;
  for (const auto& block : model.h) {
    const CausalSelfAttention* attn = block->attn.get();
    if (!attn || !attn->c_proj.weight.defined() || attn->n_head != model.config.n_head) return {};
    list.push_back(attn);
  }
  return list;
}

nlohmann::json knocked_out(const GPT& model, const Tensor& ids) {
  constexpr int64_t kMost = 8;
  std::vector<int64_t> best_ids;
  std::vector<double> best_p, next_p;
  const int64_t count = std::min(model.config.vocab_size, kMost);
  for (const CausalSelfAttention* attn : attentions_of(model)) {
    for (int64_t head = 0; head < attn->n_head; ++head) {
      const WithoutHead without(*attn, head);
      const Tensor p = softmax(model(ids).select(0, 0).to(f32));
      const ValuesIndices best = topk(p, count);
      for (const int64_t id : best.indices.tolist<int64_t>()) best_ids.push_back(id);
      for (const double x : best.values.tolist()) best_p.push_back(x);
      for (const double x : probabilities_of_next(p, ids)) next_p.push_back(x);
    }
  }
  return {{"count", count},  {"layers", model.h.size()}, {"heads", model.config.n_head},
          {"ids", best_ids}, {"p", floats(best_p)},      {"p_next", floats(next_p)}};
}

// {id: text} of all ids in the data. A model may have more than its tokenizer.
nlohmann::json words_of(const nlohmann::json& data, const Tokenizer& tokenizer) {
  nlohmann::json words = nlohmann::json::object();
  const auto add = [&](const nlohmann::json& ids) {
    for (const int64_t id : ids) {
      std::string name = std::to_string(id);
      if (!words.contains(name))
        words[name] = id < tokenizer.vocab_size() ? token_text(tokenizer, id) : "[" + name + "]";
    }
  };
  add(data.at("ids"));
  add(data.at("next").at("ids"));
  if (data.contains("knocked")) add(data.at("knocked").at("ids"));
  for (const nlohmann::json& step : data.at("steps"))
    if (step.contains("stopped")) add(step.at("stopped").at("ids"));
  return words;
}

}  // namespace

uint16_t half_bits(double x) {
  const int sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::abs(x);
  if (std::isnan(x)) return 0x7e00;
  if (size >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  if (size < 0x1p-14) return static_cast<uint16_t>(sign | std::lrint(size * 0x1p24));  // subnormal
  int exponent = 0;
  const double mantissa = 2 * std::frexp(size, &exponent) - 1;  // in [0, 1)
  // A mantissa that is rounded up to 1 carries into the exponent.
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + std::lrint(mantissa * 1024)));
}

int64_t look_tokens(const GPTConfig& config, const LookLimits& limits) {
  int64_t tokens = std::min(limits.tokens, config.block_size);
  // Scores and weights, a triangle for each head, may take two thirds.
  const auto bytes = [&] { return config.n_layer * config.n_head * tokens * (tokens + 1) * 8 / 3; };
  while (tokens > 8 && bytes() > limits.bytes * 2 / 3) tokens /= 2;
  return tokens;
}

nlohmann::json look_data(LanguageModel& model, const Tokenizer& tokenizer,
                         const std::vector<int64_t>& ids, const LookLimits& limits) {
  const auto T = static_cast<int64_t>(ids.size());
  INK_CHECK(T > 0 && T <= look_tokens(model.config, limits), "look: expected 1 to ",
            look_tokens(model.config, limits), " tokens, got ", T);
  INK_CHECK(!model.training || model.config.dropout == 0,
            "look: the model is in training mode and would drop; call eval() first");
  const Tensor row = from_vector(ids, Shape{1, T});
  Looked looked(model, T);
  Tensor logits;
  {
    const EnableGrad with_grad;
    const Observe observe(looked);
    logits = model(row);
  }
  const NoGrad no_grad;
  logits = logits.detach().select(0, 0).to(f32);
  std::vector<LookStep>& steps = looked.steps;
  const auto last = static_cast<int64_t>(steps.size()) - 1;
  steps.push_back({"", "softmax", {last}, {{"probabilities", softmax(logits)}}});
  nlohmann::json tokens = nlohmann::json::array();
  for (const int64_t id : ids) tokens.push_back(token_text(tokenizer, id));
  nlohmann::json data = {{"tokens", tokens}, {"ids", ids}, {"next", next_tokens(logits, row)}};
  data["steps"] = to_json(steps, columns_that_fit(steps, limits.bytes));
  // What is known of a GPT alone.
  const auto* gpt = dynamic_cast<const GPT*>(&model);
  for (size_t i = 0; i < steps.size() && gpt && gpt->h.size() > 0; ++i)
    for (const ShownTensor& shown : steps[i].shown)
      if (shown.name == kStream) data["steps"][i]["stopped"] = stopped_at(*gpt, shown.x);
  if (gpt && !attentions_of(*gpt).empty() &&
      model.config.n_layer * model.config.n_head <= limits.knocked_heads)
    data["knocked"] = knocked_out(*gpt, row);
  data["words"] = words_of(data, tokenizer);
  return data;
}

}  // namespace ink
