// What a run says before its first step: data, model, memory and length.
#pragma once

#include <filesystem>

#include "train/cli/console.h"
#include "train/trainer.h"

namespace ink {

void introduce(Console& console, Trainer& trainer, const std::filesystem::path& report);

}  // namespace ink
