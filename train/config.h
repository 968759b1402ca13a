// TrainConfig: all settings of a training run, under nanoGPT's names.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "nn/config.h"
#include "train/limits.h"
#include "train/models.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace ink {

/// The fields of a run. The defaults train on the built-in stories in a few minutes on two cores.
struct TrainConfig {
  // data
  std::string dataset = "fables";
  int64_t task_digits = 0;
  std::vector<std::string> data, val_data;
  std::string tokenizer = "char";
  double val_fraction = 0.1;
  std::string pack = "across";
  // model
  std::string model = "gpt";
  int64_t n_layer = 2;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  int64_t block_size = 160;
  double dropout = 0;
  bool bias = false;
  std::string dtype = "float32";
  ModelSettings model_settings = ink::model_settings();  // of all models; those of `model` count
  // optimization
  int64_t batch_size = 6;
  int64_t gradient_accumulation_steps = 1;
  int64_t max_iters = 5000;
  double learning_rate = 4e-3;
  int64_t lr_decay_iters = -1;
  double min_lr = 1e-5;
  int64_t warmup_iters = 50;
  std::string schedule_name = "cosine";
  double decay_fraction = 0.2;
  std::string optimizer = "adamw";
  double beta1 = 0.9;
  double beta2 = 0.99;
  double momentum = 0.9;
  double weight_decay = 0.1;
  double grad_clip = 1;
  double ema = 0;
  double z_loss = 0;
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
  bool shard_optimizer = false;
  std::string wire_dtype = "float32";
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
  Schedule schedule() const;
  /// The dtype of the model's products (Autocast); parameters and losses are always f32.
  DType autocast() const { return dtype == "bfloat16" ? bf16 : f32; }
  /// The value of a model's own setting, such as "n_kv_head". Throws if no model has it.
  SettingValue& setting(const std::string& name);
  /// Of --data task:NAME, the name; else empty.
  std::string task() const;
  /// Throws, naming the field, if a value is not within the limits below, if the model does not
  /// take it, or if it is of another model.
  void check() const;
};

/// The number of parts of a batch: config.batch_parts. If that is 0, models of up to 2^22
/// parameters get one part for each thread, because their further sets of gradients cost little,
/// and larger models one part. There are never more parts than rows.
int64_t batch_parts(const TrainConfig& config, int64_t model_parameters);

/// The N of a tokenizer "bpe:N". Throws if it is no number, or not within bpe's limits.
int64_t bpe_vocab_size(const std::string& tokenizer);

/// Calls f(name, field, help, limits) for each field in order. The command line, the config file,
/// the saved config and the printed one are made from this. To add a field, add a member above and
/// a line here. Of the models' own settings, those of c.model, or all.
template <class Config, class F>
void for_each_field(Config& c, F&& f, bool of_every_model = false) {
  f("data", c.data,
    "train on these text files, joined in order, or on one file of token ids (.bin: 16-bit, .u32: "
    "32-bit), on a folder of either, or on a task: task:addition, brackets, copy, modular, reverse "
    "or sorting",
    Limits{});
  f("val_data", c.val_data, "validate on these files, and train on all of --data", Limits{});
  f("dataset", c.dataset, "the built-in language: fables (unless --data names files)", Limits{});
  f("task_digits", c.task_digits,
    "of a task: digits of a number, letters or brackets of a question; modular: how many digits "
    "there are; 0: as it is usual",
    Limits{0, 64});
  f("tokenizer", c.tokenizer,
    "char (the characters found in the text), byte, bpe:N (N tokens, learned from what is trained "
    "on), or a tokenizer's file or folder, also of other programs or of a run",
    Limits{});
  f("val_fraction", c.val_fraction,
    "how much of --data, from its end (of task:modular: any questions), is kept for validation",
    Limits{.above = 0, .below = 1});
  f("pack", c.pack, "windows of prepared data: across documents, or within one each",
    Limits{.choices = {"across", "within"}});
  f("n_layer", c.n_layer, "transformer blocks", Limits{1, 1000});
  f("n_head", c.n_head, "attention heads per block; n_embd must be a multiple", Limits{1, 1024});
  f("n_embd", c.n_embd, "width of the model", Limits{1, 65536});
  f("block_size", c.block_size, "longest context, in tokens", Limits{1, 1 << 20});
  f("dropout", c.dropout, "share of activations that are dropped", Limits{.least = 0, .below = 1});
  f("bias", c.bias, "give Linear and LayerNorm layers a bias", Limits{});
  f("dtype", c.dtype, "of products and activations; weights, moments, sums and losses keep 32 bits",
    Limits{.choices = {"float32", "bfloat16"}});
  f("model", c.model, "GPT-2's, Llama's, or one added in the main of your own program",
    Limits{.choices = model_names()});
  for (auto& setting : c.model_settings)
    if (of_every_model || has_setting(c.model, setting.name))
      std::visit(
          [&](auto& value) {
            f(setting.name.c_str(), value, setting.help.c_str(), setting.limits);
          },
          setting.value);
  f("max_iters", c.max_iters, "training steps", Limits{0, kMostSteps});
  f("batch_size", c.batch_size, "sequences per micro-batch", Limits{1, 1 << 20});
  f("gradient_accumulation_steps", c.gradient_accumulation_steps, "micro-batches per step",
    Limits{1, 1 << 20});
  f("learning_rate", c.learning_rate, "the highest, after the warm-up", Limits{0, 1000});
  f("min_lr", c.min_lr, "the lowest; -1: learning_rate / 10", Limits{-1, 1000});
  f("warmup_iters", c.warmup_iters, "steps over which the learning rate rises",
    Limits{0, kMostSteps});
  f("lr_decay_iters", c.lr_decay_iters, "step of the lowest; -1: max_iters",
    Limits{-1, kMostSteps});
  f("schedule", c.schedule_name, "of the learning rate after the warm-up: wsd stays, then decays",
    Limits{.choices = schedule_names()});
  f("decay_fraction", c.decay_fraction, "wsd: the share of steps, the last, in which it decays",
    Limits{0, 1});
  f("weight_decay", c.weight_decay, "of matrices, not of biases and norms", Limits{0, 1000});
  f("grad_clip", c.grad_clip, "largest global norm of gradients; 0: any", Limits{0, 1e9});
  f("ema", c.ema, "decay of an average of the weights, which evaluations use; 0: none",
    Limits{.least = 0, .below = 1});
  f("z_loss", c.z_loss, "of training: adds so much of (log sum exp logits)^2 to it; PaLM: 1e-4",
    Limits{0, 1e6});
  f("optimizer", c.optimizer, "how weights are updated; muon: matrices of blocks, AdamW the rest",
    Limits{.choices = optimizer_names()});
  f("beta1", c.beta1,
    "Adam, AdamW, Muon's AdamW: decay of the first moment; Lion: its share in a step",
    Limits{.least = 0, .below = 1});
  f("beta2", c.beta2, "the same: of the second moment; Lion: of its moment",
    Limits{.least = 0, .below = 1});
  f("momentum", c.momentum, "SGD, Muon: momentum", Limits{.least = 0, .below = 1});
  f("init_from", c.init_from,
    "scratch; resume: go on with the run in out_dir; or the folder of a run, whose weights a new "
    "run begins with",
    Limits{});
  f("data_changed", c.data_changed, "allow resuming with other data", Limits{});
  f("seed", c.seed, "of weights, batches and dropout", Limits{0, 0x1p63});
  f("max_minutes", c.max_minutes, "save and stop after so many; 0: never", Limits{0, 1e7});
  f("out_dir", c.out_dir, "folder for checkpoints and metrics.jsonl", Limits{});
  f("eval_interval", c.eval_interval, "steps between evaluations; each saves",
    Limits{1, kMostSteps});
  f("eval_iters", c.eval_iters, "batches of each; 0: the whole set", Limits{0, kMostSteps});
  f("final_eval", c.final_eval,
    "after the last step: whole (validation set), off, or auto: whole if that takes at most a "
    "tenth of the time of training",
    Limits{.choices = {"auto", "whole", "off"}});
  f("log_interval", c.log_interval, "steps between progress lines", Limits{1, kMostSteps});
  f("sample_interval", c.sample_interval,
    "steps between printed samples; 0: only the one at the end", Limits{0, kMostSteps});
  f("report", c.report, "write report.html, and measure for it", Limits{.choices = {"on", "off"}});
  f("device", c.device, "cpu, cuda or cuda:N (last bits differ between them)", Limits{});
  f("threads", c.threads, "CPU threads; 0: OMP_NUM_THREADS, or one per core (changes rounding)",
    Limits{0, 1024});
  f("batch_parts", c.batch_parts,
    "parts of a batch, one per thread; 0: by the size of the model (changes rounding)",
    Limits{0, 1 << 20});
  f("shard_optimizer", c.shard_optimizer,
    "several processes: each updates its share of the weights, and holds moments of that alone",
    Limits{});
  f("wire_dtype", c.wire_dtype, "in which sums of gradients of parts are rounded and travel",
    Limits{.choices = {"float32", "bfloat16"}});
  f("recompute", c.recompute,
    "compute norms and GELUs again in backward: the same bits in less memory", Limits{});
  f("composed", c.composed, "run fused ops as basic ops: the same within rounding, but slower",
    Limits{});
}

nlohmann::json to_json(const TrainConfig& config);
/// Sets the fields that `json` has; others stay. Throws, naming the field, on a wrong type.
void from_json(const nlohmann::json& json, TrainConfig& config);

}  // namespace ink
