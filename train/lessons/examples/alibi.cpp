// A GPT with a step replaced, trained by the trainer: ALiBi instead of a table of positions.
//
// A score is lowered by the distance of the key, at a slope for each head. Press et al. 2021. The
// program derives an attention and a GPT, gives the model a name, and the trainer does the rest:
// batches, threads, checkpoints. It succeeds (exit status 0) if a run that was saved and resumed
// ends below 1.2 nats a character, where a guess costs 4.
#include <inkling/train/trainer.h>

#include <cstdio>
#include <filesystem>

namespace {

using namespace ink;

struct AlibiAttention : CausalSelfAttention {
  UnsavedBuffer bias;  // (n_head, 1, block_size): slope times position
  explicit AlibiAttention(const GPTConfig& c) : CausalSelfAttention(c) {
    const Tensor slopes = pow(2.0, (arange(c.n_head, f32) + 1) * (-8.0 / c.n_head));
    bias = slopes.view({c.n_head, 1, 1}) * arange(c.block_size, f32);
  }
  // All scores of query i share -m i, and softmax ignores it: m (j - i) is written m j.
  void prepare_scores(Tensor& q, Tensor&, AttentionOptions& options, int64_t start) const override {
    options.attn_mask = bias.narrow(2, 0, start + q.size(2));
  }
  INK_FIELDS(CausalSelfAttention, bias)
};

struct AlibiGPT : GPT {
  explicit AlibiGPT(const GPTConfig& c) : GPT(c, make_attention<AlibiAttention>) {
    wpe = Embedding();  // no table of positions
  }
  Tensor add_positions(const Tensor& x, int64_t) const override { return x; }
  bool uses_caches() const override { return true; }
};

// Trains up to `steps` steps in all, and saves.
void train(const TrainConfig& config, int64_t steps) {
  Trainer trainer(config);
  while (trainer.steps_done() < steps) {
    trainer.step();
    if (trainer.steps_done() % 100 == 0)
      std::printf("step %3d  loss %.3f\n", static_cast<int>(trainer.steps_done()),
                  trainer.progress().loss);
  }
  trainer.save("ckpt");
}

}  // namespace

int main(int, char** argv) {
  set_wait_policy(argv);  // threads with nothing to do sleep
  add_model<AlibiGPT>("alibi");
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "inkling-alibi";
  TrainConfig config;
  config.model = "alibi";
  config.n_embd = 64;
  config.block_size = 96;
  config.max_iters = 400;
  config.learning_rate = 1e-2;
  config.out_dir = folder;
  train(config, 200);
  config.init_from = "resume";
  train(config, config.max_iters);

  const LoadedModel saved = load_model(config.out_dir);  // as its checkpoint says: an AlibiGPT
  manual_seed(1);
  write_sample(*saved.model, *saved.tokenizer, saved.start, {.max_new_tokens = 120},
               [](const std::string& text) { std::fputs(text.c_str(), stdout); });
  const Evaluation result = evaluate(*saved.model, FablesDataset(), 20, 8, 1);
  std::printf("\nloss %.3f, best possible %.3f\n", result.loss, *result.best_possible);
  std::filesystem::remove_all(folder);
  return result.loss < 1.2 ? 0 : 1;
}
