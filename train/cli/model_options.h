// The options that name a trained model and what it runs on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/file.h"
#include "train/checkpoint.h"
#include "train/cli/command_line.h"
#include "train/cli/out_folder.h"
#include "train/saved_run.h"
#include "train/trainer.h"

namespace ink {

/// The model of the run in --out_dir.
inline LoadedModel given_model(const std::string& out_dir, const std::string& checkpoint = "",
                               const std::string& weights = "") {
  if (std::filesystem::is_regular_file(out_dir))
    if (const std::string foreign = foreign_weights(out_dir); !foreign.empty())
      throw UsageError("--out_dir: " + foreign);
  check_folder("--out_dir", out_dir);
  INK_CHECK(
      !is_locked(out_dir) || checkpoint_exists(out_dir, place_of(out_dir).name), "the run in ",
      printable(out_dir, 200),
      " has not saved a checkpoint yet; it does so at its first evaluation, or a minute after "
      "its start");
  return load_model(out_dir, checkpoint, weights);
}

struct ModelOptions {
  std::string out_dir = "out", checkpoint, weights, device = "cpu";
  int64_t threads = 0;

  static void add_checkpoint(CommandOptions& command, std::string& checkpoint) {
    command.add("--checkpoint", &checkpoint,
                "the last or the best; by default the best, if there is one",
                {.limits = {.choices = {kLastCheckpoint, kBestCheckpoint}}});
  }
  void add_to(CommandOptions& command) {
    command.add("--out_dir", &out_dir, "folder of the run, or of one checkpoint",
                {.shows_default = true});
    add_checkpoint(command, checkpoint);
    command.add("--weights", &weights,
                "of a run with --ema: the average or those trained; by default the average",
                {.limits = {.choices = {"ema", "raw"}}});
    command.add("--device", &device, "cpu, cuda or cuda:N: what the model runs on",
                {.shows_default = true});
    command.add("--threads", &threads, "CPU threads; 0: OMP_NUM_THREADS, or else one per core",
                {.shows_default = true, .limits = {0, 1024}});
  }
  LoadedModel load() const { return given_model(out_dir, checkpoint, weights); }
};

/// What --start means: "FILE:path" is the text of that file, which may not be empty. `option` names
/// a file that will be written, which may not be the same.
inline std::string given_text(const std::string& start, const char* option,
                              const std::string& written) {
  if (start.rfind("FILE:", 0) != 0) return start;
  if (start == "FILE:-" && !std::filesystem::exists("-"))
    throw UsageError("--start: standard input is FILE:/dev/stdin");
  if (start == "FILE:") throw UsageError("--start: expected the name of a file after FILE:");
  check_not_read(option, written, {start.substr(5)});
  return with_prefix("--start", [&] { return read_text(start.substr(5)); });
}

/// Special tokens in a prompt are tokens, as in nanoGPT.
inline std::vector<int64_t> encoded_start(const Tokenizer& tokenizer, const std::string& start) {
  return with_prefix("--start", [&] { return tokenizer.encode_with_special(start); });
}

}  // namespace ink
