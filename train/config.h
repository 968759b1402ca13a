// TrainConfig: all settings of a training run, under nanoGPT's names.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "nn/config.h"
#include "train/models.h"
#include "train/schedule.h"

namespace ink {

/// The fields of a run. The defaults train on the built-in stories in a few minutes on two cores.
struct TrainConfig {
  // data
  std::string dataset = "fables";
  std::vector<std::string> data, val_data;
  std::string tokenizer = "char";
  double val_fraction = 0.1;
  // model
  std::string model = "gpt";
  int64_t n_layer = 2;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  int64_t block_size = 160;
  double dropout = 0;
  bool bias = false;
  std::string dtype = "float32";
  // optimization
  int64_t batch_size = 6;
  int64_t gradient_accumulation_steps = 1;
  int64_t max_iters = 5000;
  double learning_rate = 4e-3;
  int64_t lr_decay_iters = -1;
  double min_lr = 1e-5;
  int64_t warmup_iters = 50;
  std::string optimizer = "adamw";
  double beta1 = 0.9;
  double beta2 = 0.99;
  double momentum = 0.9;
  double weight_decay = 0.1;
  double grad_clip = 1;
  // the run
  std::string device = "cpu";
  std::string out_dir = "out";
  std::string init_from = "scratch";
  bool data_changed = false;
  int64_t seed = 1337;
  double max_minutes = 0;
  int64_t eval_interval = 500;
  int64_t eval_iters = 20;
  std::string final_eval = "auto";
  int64_t log_interval = 20;
  int64_t sample_interval = 2000;
  std::string report = "on";
  int64_t threads = 0;
  int64_t batch_parts = 0;
  bool recompute = false;
  bool composed = false;

  GPTConfig gpt(int64_t vocab_size) const {
    GPTConfig c;
    c.block_size = block_size;
    c.vocab_size = vocab_size;
    c.n_layer = n_layer;
    c.n_head = n_head;
    c.n_embd = n_embd;
    c.dropout = dropout;
    c.bias = bias;
    return c;
  }
  Schedule schedule() const {
    return warmup_cosine(learning_rate, min_lr < 0 ? learning_rate / 10 : min_lr, warmup_iters,
                         lr_decay_iters < 0 ? max_iters : lr_decay_iters);
  }
  /// The dtype of the model's products (Autocast); parameters and losses are always f32.
  DType autocast() const { return dtype == "bfloat16" ? bf16 : f32; }
  /// Throws, naming the field, if a value is not within the limits below.
  void check() const;
};

/// The values that a field may have.
struct Limits {
  double least = -kNone, most = kNone;    // of a number; it may be one of these
  double above = -kNone, below = kNone;   // the same, but it may be neither of these
  std::vector<std::string> choices = {};  // of a text; none: any text

  static constexpr double kNone = std::numeric_limits<double>::infinity();
};
inline constexpr int64_t kMostSteps = 1'000'000'000;

/// "1 to 1000", "0 to below 1", "adamw or sgd"; empty if any value is allowed.
std::string range_text(const Limits& limits);
/// Throws, beginning with the name, unless a number, or a text, is within the limits.
void check_limits(const std::string& name, const Limits& limits, double value);
void check_limits(const std::string& name, const Limits& limits, int64_t value);
void check_limits(const std::string& name, const Limits& limits, const std::string& value);

/// Calls f(name, field, help, limits) for each field in order. The command line, the config file,
/// the saved config and the printed one are made from this. To add a field, add a member above and
/// a line here.
template <class Config, class F>
void for_each_field(Config& c, F&& f) {
  f("dataset", c.dataset, "the built-in language: fables (unless --data names files)", Limits{});
  f("data", c.data,
    "train on these text files, joined in order, or on one file of token ids (.bin: 16-bit, .u32: "
    "32-bit), or on a folder of either",
    Limits{});
  f("val_data", c.val_data, "validate on these files, and train on all of --data", Limits{});
  f("tokenizer", c.tokenizer,
    "char (the characters found in the text), byte, or a saved tokenizer's JSON file", Limits{});
  f("val_fraction", c.val_fraction, "how much of --data, from its end, is kept for validation",
    Limits{.above = 0, .below = 1});
  f("model", c.model, "gpt, or a model added in the main of your own program",
    Limits{.choices = model_names()});
  f("n_layer", c.n_layer, "transformer blocks", Limits{1, 1000});
  f("n_head", c.n_head, "attention heads per block; n_embd must be a multiple", Limits{1, 1024});
  f("n_embd", c.n_embd, "width of the model", Limits{1, 65536});
  f("block_size", c.block_size, "longest context, in tokens", Limits{1, 1 << 20});
  f("dropout", c.dropout, "probability of dropping an activation", Limits{.least = 0, .below = 1});
  f("bias", c.bias, "give Linear and LayerNorm layers a bias", Limits{});
  f("dtype", c.dtype,
    "float32, or bfloat16: matrix products and activations have 16 bits; weights, moments, sums "
    "and losses keep 32 bits",
    Limits{.choices = {"float32", "bfloat16"}});
  f("batch_size", c.batch_size, "sequences per micro-batch", Limits{1, 1 << 20});
  f("gradient_accumulation_steps", c.gradient_accumulation_steps, "micro-batches per step",
    Limits{1, 1 << 20});
  f("max_iters", c.max_iters, "training steps", Limits{0, kMostSteps});
  f("learning_rate", c.learning_rate, "the highest learning rate, after the warm-up",
    Limits{0, 1000});
  f("lr_decay_iters", c.lr_decay_iters,
    "step at which the learning rate reaches min_lr; -1: max_iters", Limits{-1, kMostSteps});
  f("min_lr", c.min_lr, "the lowest learning rate; below 0: learning_rate / 10", Limits{-1, 1000});
  f("warmup_iters", c.warmup_iters, "steps over which the learning rate rises",
    Limits{0, kMostSteps});
  f("optimizer", c.optimizer, "how weights are updated", Limits{.choices = {"adamw", "sgd"}});
  f("beta1", c.beta1, "AdamW: decay of the first moment", Limits{.least = 0, .below = 1});
  f("beta2", c.beta2, "AdamW: decay of the second moment", Limits{.least = 0, .below = 1});
  f("momentum", c.momentum, "SGD: momentum", Limits{.least = 0, .below = 1});
  f("weight_decay", c.weight_decay, "decay of matrices (biases and norms do not decay)",
    Limits{0, 1000});
  f("grad_clip", c.grad_clip,
    "scale gradients down to this global norm if theirs is larger; 0: never", Limits{0, 1e9});
  f("device", c.device,
    "cpu, cuda or cuda:N: where the model and its batches live (results differ in the last bits "
    "between devices)",
    Limits{});
  f("out_dir", c.out_dir, "folder for checkpoints and metrics.jsonl", Limits{});
  f("init_from", c.init_from, "scratch, or resume: continue from out_dir's checkpoint",
    Limits{.choices = {"scratch", "resume"}});
  f("data_changed", c.data_changed, "allow resuming with other data", Limits{});
  f("seed", c.seed, "seed of the weights, the batches and dropout", Limits{0, 0x1p63});
  f("max_minutes", c.max_minutes, "save and stop after this many minutes; 0: never",
    Limits{0, 1e7});
  f("eval_interval", c.eval_interval, "steps between evaluations, each followed by a checkpoint",
    Limits{1, kMostSteps});
  f("eval_iters", c.eval_iters, "batches per evaluation; 0: the whole validation set",
    Limits{0, kMostSteps});
  f("final_eval", c.final_eval,
    "the evaluation after the last step: whole (the whole validation set), off (none), or auto: "
    "whole if that takes at most a tenth of the time of training, otherwise eval_iters batches",
    Limits{.choices = {"auto", "whole", "off"}});
  f("log_interval", c.log_interval, "steps between progress lines", Limits{1, kMostSteps});
  f("sample_interval", c.sample_interval, "steps between printed samples; 0: never",
    Limits{0, kMostSteps});
  f("report", c.report, "on: measure some steps and write report.html in out_dir; off: neither",
    Limits{.choices = {"on", "off"}});
  f("threads", c.threads,
    "CPU threads; 0: OMP_NUM_THREADS, or else one per core (changes rounding)", Limits{0, 1024});
  f("batch_parts", c.batch_parts,
    "parts into which a batch is split, one per thread; 0: all threads for models under 4 million "
    "parameters, otherwise 1 (changes rounding)",
    Limits{0, 1 << 20});
  f("recompute", c.recompute,
    "compute outputs of norms and GELUs again in backward: the same bits in less memory", Limits{});
  f("composed", c.composed,
    "run fused ops as compositions of basic ops: the same numbers within rounding, but slower",
    Limits{});
}

nlohmann::json to_json(const TrainConfig& config);
/// Sets the fields that `json` has; others stay. Throws, naming the field, on a wrong type.
void from_json(const nlohmann::json& json, TrainConfig& config);

}  // namespace ink
