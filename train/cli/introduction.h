// What a run says before its first step: data, model, memory and length.
#pragma once

#include <filesystem>
#include <string>

#include "train/cli/console.h"
#include "train/trainer.h"

namespace ink {

/// rate: changed_rate() or odd_rate(), or empty.
void introduce(Console& console, Trainer& trainer, const std::filesystem::path& report,
               const std::string& rate);

/// The learning rate at which a resumed run goes on, in words; empty if that is where it was.
std::string changed_rate(const TrainConfig& now, const SavedRun& saved);

/// What is odd about the learning rate of a run, in words: it rises where it should fall, or never
/// gets as high as it should; or empty.
std::string odd_rate(const TrainConfig& config);

}  // namespace ink
