// What a user of inkling adds to it: blocks, models, a tokenizer and an optimizer. The READMEs of
// nn/, data/ and train/ show these to the letter. Who includes this has included inkling's headers.
#pragma once

namespace own {
using namespace ink;

struct SwiGLU : MLP {  // Shazeer 2020, with Llama's width of 8/3 C
  Linear c_gate;
  explicit SwiGLU(const GPTConfig& c) {
    const int64_t hidden = 8 * c.n_embd / 3;
    c_fc = Linear(c.n_embd, hidden, c.bias);
    c_gate = Linear(c.n_embd, hidden, c.bias);
    c_proj = Linear(hidden, c.n_embd, c.bias);
    drop = Dropout(c.dropout);
  }
  Branch branch(const Tensor& x) const override {
    return {c_proj(silu(c_gate(x)) * c_fc(x)), drop.rate()};
  }
  INK_FIELDS(MLP, c_gate)  // the base first
};

struct Grouped : CausalSelfAttention {  // two heads of queries share one of keys and values
  explicit Grouped(const GPTConfig& c) : CausalSelfAttention(c, c.n_head / 2) {}
};

struct RmsBlock : Block {
  RMSNorm norm_1, norm_2;
  Grouped attention;
  SwiGLU feed_forward;
  explicit RmsBlock(const GPTConfig& c)
      : norm_1(c.n_embd), norm_2(c.n_embd), attention(c), feed_forward(c) {}
  // `branch` is what the block before still adds to x; the next block adds what this one returns.
  std::pair<Tensor, Branch> operator()(Tensor x, const Branch& branch,
                                       KVCache* cache) const override {
    x = branch.added_to(x);
    x = x + attention(norm_1(x), cache);
    return {x, feed_forward.branch(norm_2(x))};
  }
  Tensor attention_weights(const Tensor& x) const override { return attention.weights(norm_1(x)); }
  INK_FIELDS(norm_1, attention, norm_2, feed_forward)
};

struct RmsGPT : GPT {
  RMSNorm norm;
  explicit RmsGPT(const GPTConfig& c) : GPT(c, make_block<RmsBlock>), norm(c.n_embd) {
    ln_f = LayerNorm();  // norm is in its place
  }
  Tensor last_norm(const Tensor& x, const Branch& branch) const override {
    return norm(branch.added_to(x));
  }
  bool uses_caches() const override { return true; }
  INK_FIELDS(GPT, norm)
};

struct Experts : MLP {  // each token goes to one of four (Fedus et al. 2021)
  Linear router;
  ModuleList<MLP> experts;
  explicit Experts(const GPTConfig& c) : router(c.n_embd, 4, false), experts(4, c) {}
  Branch branch(const Tensor& x) const override {
    const Tensor p = softmax(router(x)), best = argmax(p, -1, true);  // (B, T, 4), (B, T, 1)
    Tensor y = zeros_like(x), balance = zeros({}, x.options());
    for (int64_t i = 0; i < 4; ++i) {
      const Tensor chosen = (best == static_cast<double>(i)).to(x.dtype());
      const Tensor share = p.narrow(-1, i, 1);
      y = y + chosen * share * experts[static_cast<size_t>(i)](x);
      balance = balance + mean(chosen) * mean(share);
    }
    if (training) add_auxiliary_loss(0.01 * 4 * balance);
    return y;
  }
  INK_FIELDS(router, experts)
};

struct Recurrent : LanguageModel {
  Embedding wte;
  Linear hidden, head;
  explicit Recurrent(const GPTConfig& c)
      : LanguageModel(c),
        wte(c.vocab_size, c.n_embd),
        hidden(c.n_embd, c.n_embd),
        head(c.n_embd, c.vocab_size) {}

  Tensor operator()(const Tensor& ids) const override { return head(states(ids, {})); }

  bool uses_caches() const override { return true; }
  Tensor next_logits(const Tensor& ids, DecodeCache* cache) const override {
    const bool goes_on = cache && !cache->state.empty();
    const Tensor state = states(ids, goes_on ? cache->state[0] : Tensor()).select(1, -1);
    if (cache) cache->state = {state};
    return head(state);
  }

  // ids (B, T) and the state before them (B, C) -> the state after each (B, T, C)
  Tensor states(const Tensor& ids, Tensor state) const {
    const Tensor x = wte(ids);
    if (!state.defined()) state = zeros_like(x.select(1, 0));
    std::vector<Tensor> all;
    for (int64_t t = 0; t < ids.size(1); ++t) {
      state = tanh(x.select(1, t) + hidden(state));
      all.push_back(state);
    }
    return stack(all, 1);
  }
  INK_FIELDS(wte, hidden, head)
};

class WordTokenizer : public Tokenizer {  // a word with the space before it; id 0: any other
 public:
  explicit WordTokenizer(std::vector<std::string> words) : words_(std::move(words)) {
    for (size_t i = 0; i < words_.size(); ++i) ids_[words_[i]] = static_cast<int64_t>(i);
  }
  std::string name() const override { return "word"; }
  int64_t vocab_size() const override { return static_cast<int64_t>(words_.size()); }
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> ids;
    for (const std::string& word : cut(text)) {
      const auto found = ids_.find(word);
      ids.push_back(found == ids_.end() ? 0 : found->second);
    }
    return ids;
  }
  std::string decode(std::span<const int64_t> ids) const override {
    std::string text;
    for (const int64_t id : ids) text += words_.at(static_cast<size_t>(id));
    return text;
  }
  std::string to_json() const override {
    return nlohmann::json{{"tokenizer", "word"}, {"words", words_}}.dump();
  }

  static std::unique_ptr<Tokenizer> parse(std::string_view json) {  // what to_json wrote
    return std::make_unique<WordTokenizer>(nlohmann::json::parse(json).at("words"));
  }
  static std::unique_ptr<Tokenizer> learn(std::string_view text) {
    std::vector<std::string> words{"?"};
    for (const std::string& word : cut(text))
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    return std::make_unique<WordTokenizer>(words);
  }

 private:
  static std::vector<std::string> cut(std::string_view text) {
    std::vector<std::string> words;
    for (size_t at = 0, end = 0; at < text.size(); at = end) {
      end = std::min(text.find(' ', at + 1), text.size());
      words.emplace_back(text.substr(at, end - at));
    }
    return words;
  }

  std::vector<std::string> words_;
  std::map<std::string, int64_t> ids_;
};

struct Signum : Optimizer {  // Bernstein et al. 2018
  double momentum;
  Signum(const std::vector<ParameterGroup>& groups, const TrainConfig& c)
      : Optimizer("Signum", groups, c.learning_rate, c.weight_decay, c.grad_clip),
        momentum(c.momentum) {
    add_moments("momentum_buffer");
  }
  void update_parameter(ParameterUpdate& p) override {
    Tensor& m = p.moments[0];
    m.copy_(m * momentum + p.grad * (1 - momentum));
    p.value.mul_(1 - p.lr * p.weight_decay);
    p.value.sub_(p.lr * sign(m));
  }
};

struct ChainConfig : GPTConfig {
  int64_t rank = 4;
};
template <class F>
void for_each_setting(ChainConfig& c, F&& f) {
  f("rank", c.rank, "chain: of its table", Limits{1, 100});
}
struct Chain : LanguageModel {
  Embedding first;
  Linear second;
  explicit Chain(const ChainConfig& c)
      : LanguageModel(c), first(c.vocab_size, c.rank), second(c.rank, c.vocab_size) {}
  Tensor operator()(const Tensor& ids) const override { return second(first(ids)); }
  INK_FIELDS(first, second)
};

inline void add_all() {
  add_model<RmsGPT>("rms");
  add_model("mixture",
            [](const GPTConfig& c) { return std::make_unique<GPT>(c, make_mlp<Experts>); });
  add_model<Recurrent>("recurrent");
  add_model<Chain, ChainConfig>("chain");
  add_tokenizer("word", WordTokenizer::parse, WordTokenizer::learn);
  add_optimizer<Signum>("signum");
  add_schedule("root", [](const TrainConfig& c) {  // Vaswani et al. 2017
    return warmed_up(c.learning_rate, c.warmup_iters, [=](int64_t step) {
      return c.learning_rate * std::sqrt((c.warmup_iters + 1.0) / (step + 1.0));
    });
  });
}

}  // namespace own
