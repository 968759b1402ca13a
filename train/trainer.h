// Trainer: a model, its data and its optimizer, step by step; saved and resumed bit for bit.
//
//   Trainer trainer(config);
//   while (trainer.steps_done() < config.max_iters) trainer.step();
//   trainer.save("ckpt");
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/replay.h"
#include "data/dataset.h"
#include "nn/language_model.h"
#include "train/arithmetic.h"
#include "train/config.h"
#include "train/ema.h"
#include "train/make_dataset.h"
#include "train/memory.h"
#include "train/optimizer.h"
#include "train/saved_run.h"

namespace ink {

class BatchParts;   // train/parallel/parts.h
class Processes;    // train/parallel/processes.h
class Shards;       // train/parallel/shards.h
struct Checkpoint;  // train/checkpoint.h

/// The mean loss over some batches, in nats per token; and, if known, the best possible loss, the
/// lowest that any model could reach on them.
struct Evaluation {
  double loss = 0;
  std::optional<double> best_possible;
  int64_t tokens = 0;  // number of targets
  int64_t bytes = 0;   // of their text; 0 if a token has no text
  /// Of a task: the share of whole answers that are right, each token the likeliest.
  std::optional<double> answers = {};
  bool whole = true;  // false: it was stopped early, and the other fields mean nothing

  /// The loss as bits per byte of the text, which compares models of different tokenizers. The ends
  /// of documents cost bits, too, and are no bytes.
  std::optional<double> bits_per_byte() const;
};

/// Steps that were skipped because a loss or gradient was not finite.
struct Skipped {
  int64_t total = 0, in_a_row = 0;
};

/// What happened since the last call of progress().
struct Progress {
  double loss = 0;  // mean over the steps since that had targets and were not skipped; or NaN
  std::optional<double> best_possible;
  double lr = 0;
  double grad_norm = 0;  // of the last step, before clipping
  int64_t skipped = 0;   // steps skipped so far (a loss or gradient was not finite)
  int64_t tokens = 0;
};

/// Any thread calls it before each batch of an evaluation, with the share of the batches that are
/// done. True stops the evaluation.
using StopEvaluation = std::function<bool(double done)>;

/// `rows` rows of ids as a tensor i64 (rows, ids / rows) on the default device.
Tensor ids_tensor(const std::vector<int64_t>& ids, int64_t rows);

class Trainer {
 public:
  /// A new run, or, with init_from = resume, the one that out_dir's checkpoint holds. With the
  /// folder of a run, a new one that has its model and begins with its weights. Throws if out_dir
  /// holds another run than the one to resume, which a save would replace. Each constructor calls
  /// manual_seed(config.seed), or gives default_generator() the state that the resumed run saved.
  explicit Trainer(const TrainConfig& config);
  /// The same on the caller's dataset; the config's data are ignored.
  Trainer(const TrainConfig& config, std::unique_ptr<Dataset> dataset);
  /// The run in `saved`, or a new one if that is empty; init_from, and what out_dir holds, are
  /// ignored. dataset: as above, or null.
  Trainer(const TrainConfig& config, const std::optional<SavedRun>& saved,
          std::unique_ptr<Dataset> dataset);
  ~Trainer();

  /// One optimizer step over gradient_accumulation_steps micro-batches. Reads nothing back. If the
  /// model's loss or a hook throws, the next call is that step again, from its beginning.
  void step();
  int64_t steps_done() const { return steps_done_; }
  /// In a process that does not lead its group: does what process 0 does, until that ends.
  void follow(const StopEvaluation& stop);
  /// Are steps replayed as a whole (on a GPU)? Otherwise they run op by op.
  bool replaying() const { return replay_->captured(); }

  /// Reads back the results of the steps since the last call.
  Progress progress();
  /// Evaluates evaluated_model() on eval_iters sampled batches, or on the whole validation set if
  /// `whole` or if eval_iters is 0.
  Evaluation evaluate(bool whole = false, const StopEvaluation& stop = {}) const;
  /// Reads back how many steps were skipped.
  Skipped skipped() const;
  /// Throws if a parameter or a moment is not finite, and names it.
  void check_finite() const;
  /// Saves as `name` in out_dir: "ckpt" (the last) or "best". Throws, and saves nothing, if a
  /// parameter or a moment is not finite, or if it would replace a checkpoint that is neither the
  /// one that was there when this trainer was made nor the last that it saved.
  void save(const std::string& name);
  /// Notes a validation loss. Is it the best so far?
  bool note_validation(double loss);
  /// What evaluate() measures, in words. Losses are compared only where that is the same.
  const std::string& validation_set() const { return validation_set_; }
  /// Was the checkpoint `best` chosen on another set, by the run that this one resumes? Its loss is
  /// forgotten then, unless it is measured again.
  bool best_is_of_another_set() const { return best_is_of_another_set_; }
  /// Measures `best` on this run's set, and saves it with that loss. It stays forgotten if it
  /// cannot be loaded, if its loss is not finite, or if `stop` ends the evaluation.
  void measure_best_again(const StopEvaluation& stop = {});
  /// Was the last step followed by note_validation()?
  bool is_validated() const { return validated_step_ == steps_done_; }
  /// Keeps a line of the log that could not be written: what is saved from now on has it.
  void keep_unwritten(const std::string& line) { unwritten_.push_back(line); }
  /// Repeats the last step's forward and backward under the NaN sentinel; empty if all is finite.
  std::string find_non_finite();

  /// `threads` and `batch_parts` are those that the run has, not 0.
  const TrainConfig& config() const { return config_; }
  TrainConfig given_config() const;  ///< with those that were asked for, which may be 0
  LanguageModel& model() { return *model_; }
  /// The model that evaluations and samples are of: with `ema`, the average of the weights (its
  /// buffers are model()'s); otherwise model() itself.
  LanguageModel& evaluated_model() const;
  const Dataset& dataset() const { return *dataset_; }
  /// With shard_optimizer, in several processes: of this one's rows of the weights.
  const Optimizer& optimizer() const { return *optimizer_; }
  /// What this process needs, as it was estimated before the first step.
  const MemoryEstimate& memory() const { return memory_; }
  /// The text that samples continue by default.
  std::string sample_start() const;
  double best_val_loss() const { return best_val_loss_; }
  /// The step after which it was measured, if that is known.
  std::optional<int64_t> best_step() const { return best_step_; }

 private:
  /// Ids (B, T) of a micro-batch, in memory that every step uses again.
  struct Ids {
    Tensor x, y;
  };
  /// This thread's context, changed as the config asks.
  Context run_context() const;
  bool load_batches(int64_t step);
  Tensor share_of_a_target() const;
  void forward_backward(int64_t step, int64_t micro_batch, BatchParts& parts, const Tensor& scale);
  Tensor forward_backward_all(int64_t step);
  void forward_backward_update();
  void clear_gradients();
  void choose_arithmetic(const std::optional<SavedRun>& saved);
  Arithmetic arithmetic() const;
  void resume(const SavedRun& saved);
  void check_own_memory();
  void make_shards();
  std::unique_ptr<Optimizer> optimizer_of(const NamedTensors& parameters) const;
  NamedTensors whole_optimizer_state();
  void check_finite(const NamedTensors& optimizer_state) const;
  void check_same_run(const std::optional<SavedRun>& saved) const;
  std::unique_ptr<LanguageModel> another_model() const;
  void start_average(const NamedTensors& saved);
  std::string describe_validation() const;
  nlohmann::json saved_config() const;
  void write(const std::string& name, const Checkpoint& checkpoint);

  TrainConfig config_;
  int64_t asked_threads_ = 0, asked_parts_ = 0;  // of the config that was given: 0 is "as here"
  int64_t part_threads_ = 1;                     // for the ops of a part, if there are several
  const GemmUnit* first_unit_ = nullptr;         // Context::first_unit of steps
  Device device_;
  std::string data_;  // fingerprint of the files; empty for the caller's dataset
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<LanguageModel> model_;
  std::vector<Tensor> parameters_;
  int64_t num_parameters_ = 0;  // elements
  MemoryEstimate memory_;
  std::unique_ptr<Shards> shards_;  // null: this process updates all weights
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LanguageModel> average_;  // null without ema
  std::unique_ptr<WeightAverage> averaging_;
  Schedule schedule_;
  std::vector<Ids> batches_;  // by micro-batch
  std::unique_ptr<Replay> replay_;
  int64_t steps_done_ = 0, validated_step_ = 0;
  double best_val_loss_ = std::numeric_limits<double>::infinity();
  std::optional<int64_t> best_step_;
  std::string validation_set_;
  bool best_is_of_another_set_ = false;
  nlohmann::json other_best_;  // of that set, as a checkpoint holds it
  std::vector<std::string> unwritten_;
  std::map<std::string, std::string> known_;  // checksums of checkpoints that a save may replace
  // since the last progress()
  double best_possible_sum_ = 0;
  int64_t steps_since_ = 0, tried_since_ = 0, skipped_before_ = 0;  // tried: they had targets
  // of the batches that were loaded last
  double best_possible_ = 0;
  bool best_possible_known_ = false;
};

/// Mean loss of a model over validation batches: `batches` sampled ones of batch_size sequences, or
/// the whole set if that is 0.
Evaluation evaluate(LanguageModel& model, const Dataset& dataset, int64_t batches,
                    int64_t batch_size, uint64_t seed, const StopEvaluation& stop = {});
/// The same by a group of processes, each of which takes some of the batches.
Evaluation evaluate(LanguageModel& model, const Dataset& dataset, int64_t batches,
                    int64_t batch_size, uint64_t seed, const StopEvaluation& stop,
                    Processes& group);

/// A model from a checkpoint, ready to sample from or to evaluate.
struct LoadedModel : SavedRun {
  std::unique_ptr<LanguageModel> model;
};
/// Loads out_dir/name: "ckpt", "best", or, for "", best if there is one and ckpt otherwise. The
/// model is in eval mode, on the context's default device. The optimizer's state is not read.
/// weights: "ema", the average that was evaluated; "raw", those that were trained; or, for "", the
/// average if there is one.
LoadedModel load_model(const std::string& out_dir, const std::string& name = "",
                       const std::string& weights = "");

/// Lets a model continue `start` (Tokenizer::encode_with_special), and passes each piece of text to
/// `write` as it is chosen. An empty start is where a text begins: the tokenizer's token between
/// documents, or a line end, or else its first token. Characters that the tokenizer does not know
/// are an error. Returns the ids of the whole text, including the start.
std::vector<int64_t> write_sample(const LanguageModel& model, const Tokenizer& tokenizer,
                                  const std::string& start, const GenerateOptions& options,
                                  const std::function<void(const std::string&)>& write);

}  // namespace ink
