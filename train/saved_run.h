// What a checkpoint says of a run, read and checked field by field.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/io/serialize.h"
#include "data/tokenizer.h"
#include "train/config.h"

namespace ink {

constexpr const char* kLastCheckpoint = "ckpt";
constexpr const char* kBestCheckpoint = "best";

/// A run on disk. Somebody else may have written it. So its config gives the model and the
/// training, but not out_dir, device or init_from, and its files of data may be used only if they
/// have the fingerprint.
struct SavedRun {
  TrainConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string start;    // what samples start from when nothing else is said
  std::string dataset;  // what it was trained on, in words
  std::string data;     // fingerprint of the files; empty: not known
  int64_t step = 0, validated_step = 0;
  std::optional<double> best_val_loss;
  NamedTensors model_state, optimizer_state;
  std::filesystem::path folder;
};

/// The checkpoint out_dir/name ("ckpt" or "best"), or, where its files or what they say make no
/// sense, the one before. Errors name file, field, what was expected and what was found.
SavedRun load_run(const std::filesystem::path& out_dir, const std::string& name);

/// Size and CRC-64 of files joined, in words; empty for none, and where one is no regular file.
std::string fingerprint_of(const std::vector<std::string>& files);

}  // namespace ink
