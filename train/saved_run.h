// The run that a checkpoint holds, read and checked field by field.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/io/serialize.h"
#include "data/tokenizer.h"
#include "train/arithmetic.h"
#include "train/checkpoint.h"
#include "train/config.h"

namespace ink {

constexpr const char* kLastCheckpoint = "ckpt";
constexpr const char* kBestCheckpoint = "best";
constexpr const char* kGeneratorState = "rng_state";  // in optimizer.safetensors: i64 (632)

/// A run on disk. Somebody else may have written it. So its config gives the model and the
/// training, but not out_dir, device or init_from. Its data files may be used only if they match
/// the fingerprint.
struct SavedRun {
  TrainConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string start;    // the text from which samples start by default; may be empty
  std::string dataset;  // what it was trained on, in words
  std::string data;     // fingerprint of the data files; empty: not known
  int64_t step = 0, validated_step = 0;
  std::optional<double> best_val_loss;
  std::optional<int64_t> best_step;      // after which it was measured; empty: not known
  std::string validation_set;            // on what, in words; empty: not known
  std::vector<std::string> unwritten;    // lines of the log that a full disk did not take
  std::optional<Arithmetic> arithmetic;  // empty: of an older version
  std::optional<std::vector<uint8_t>> generator_state;  // the default generator's; likewise
  NamedTensors model_state, optimizer_state;            // the second one is empty with Parts::model
  NamedTensors average_state;                           // empty without ema
  std::filesystem::path folder;
  bool is_start = false;  // a new run takes its weights, tokenizer and model settings, no more
};

/// The names of the fields that make its model, with a vocabulary.
std::vector<std::string> model_fields(const TrainConfig& config);

/// `start`, if the tokenizer can encode it, or else none: write_sample then begins by itself.
std::string usable_start(const Tokenizer& tokenizer, const std::string& start);

/// Which checkpoint a run goes on from: the last one, or the best one, where a full disk had no
/// room for the other.
std::string checkpoint_to_resume(const std::filesystem::path& out_dir);

/// The checkpoint out_dir/name ("ckpt" or "best"), or the one before if its files are damaged or
/// their contents invalid. Errors name file, field, what was expected and what was found.
SavedRun load_run(const std::filesystem::path& out_dir, const std::string& name,
                  Parts parts = Parts::all);

/// The run that a folder holds, to go on with it: checkpoint_to_resume, or the best one where the
/// last one is damaged; a line says so.
SavedRun load_run_to_resume(const std::filesystem::path& out_dir, Parts parts = Parts::all);

/// What is loaded where a folder is named: of a run, its best checkpoint, or else its last one; of
/// a checkpoint, which may be a copy, that.
struct Place {
  std::filesystem::path out_dir;
  std::string name;
};
Place place_of(const std::filesystem::path& folder);

/// The checkpoint whose weights a new run begins with, that of init_from. Throws if that run is in
/// out_dir.
Place start_of(const TrainConfig& config);
SavedRun load_start(const TrainConfig& config);
/// `config` with the model settings and the tokenizer of that run.
TrainConfig with_model_of(const SavedRun& run, TrainConfig config);

/// Size and CRC-64 of a config's data files joined, and of its validation files, as text; empty for
/// no files, or if one is not a regular file.
std::string fingerprint_of(const TrainConfig& config);

}  // namespace ink
