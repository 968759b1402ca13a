// A run's numbers and samples for TensorBoard.
#pragma once

#include <filesystem>
#include <vector>

namespace ink {

/// In a folder for TensorBoard. It has no time in its name, so that there is one for each run.
constexpr const char* kEventsFile = "events.out.tfevents.inkling";

/// Writes the events of runs, which are folders, into `folder`: each number of metrics.jsonl, as
/// "train/..." of training steps and "val/..." of evaluations ("train/loss" is train_loss,
/// "val/loss" is val_loss, "train/lr" is lr), and the samples. The file of one run stands in
/// `folder` itself; each of several has a folder there with its name. Writing again extends a file
/// whose run has gone on, so that TensorBoard shows what is new, and replaces any other. Returns
/// the files. Throws if a run has no metrics, before anything is written.
std::vector<std::filesystem::path> write_tensorboard(const std::vector<std::filesystem::path>& runs,
                                                     const std::filesystem::path& folder);

}  // namespace ink
