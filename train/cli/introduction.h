// What a run says before its first step: data, model, memory and length.
#pragma once

#include <filesystem>
#include <string>

#include "train/cli/console.h"
#include "train/trainer.h"

namespace ink {

/// rate: changed_rate(), or empty.
void introduce(Console& console, Trainer& trainer, const std::filesystem::path& report,
               const std::string& rate);

/// The learning rate at which a resumed run goes on, in words; empty if that is where it was.
std::string changed_rate(const TrainConfig& now, const SavedRun& saved);

}  // namespace ink
