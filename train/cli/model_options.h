// The options that name a trained model and what it runs on.
#pragma once

#include <string>

#include "data/file.h"
#include "train/cli/command_line.h"

namespace ink {

struct ModelOptions {
  std::string out_dir = "out", checkpoint, device = "cpu";
  int64_t threads = 0;

  void add_to(CommandOptions& command) {
    command.add("--out_dir", &out_dir, "folder of the run", {.shows_default = true});
    command.add("--checkpoint", &checkpoint,
                "ckpt (the last) or best; by default best, if there is one");
    command.add("--device", &device, "cpu, cuda or cuda:N: what the model runs on",
                {.shows_default = true});
    command.add("--threads", &threads, "CPU threads; 0: OMP_NUM_THREADS, or else one per core",
                {.shows_default = true, .limits = {0, 1024}});
  }
  /// Sets the threads and returns the device.
  Device use() const {
    use_threads(threads);
    return parsed_device(device);
  }
};

/// What --start means: "FILE:path" is the text of that file, which may not be empty.
inline std::string given_text(const std::string& start) {
  if (start.rfind("FILE:", 0) != 0) return start;
  return with_prefix("--start", [&] { return read_text(start.substr(5)); });
}

}  // namespace ink
