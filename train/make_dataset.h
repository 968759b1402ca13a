// The data of a run: the dataset and the tokenizer that its config names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "train/config.h"
#include "train/saved_run.h"

namespace ink {

/// The dataset that a config names. `tokenizer`, a model's, is used if given; throws if the data
/// have a vocabulary of their own that is another, such as a meta.pkl beside ids, unless
/// config.tokenizer says what these ids mean ("char" does not).
std::unique_ptr<Dataset> make_dataset(const TrainConfig& config,
                                      std::shared_ptr<const Tokenizer> tokenizer = nullptr);
/// The same for data that a run was not given, with the tokenizer of that run. The error names the
/// characters that its vocabulary lacks, after `what`: "resume".
std::unique_ptr<Dataset> make_other_dataset(TrainConfig config, const SavedRun& run,
                                            const char* what);

/// The dataset of a run whose files have this fingerprint_of. Throws if `saved`, the run that it
/// resumes, was trained on other data, unless config.data_changed.
std::unique_ptr<Dataset> dataset_for(const TrainConfig& config, const std::string& fingerprint,
                                     const std::optional<SavedRun>& saved);

/// A run is saved with its tokenizer: throws if that could not be read again.
void check_can_be_saved(const Tokenizer& tokenizer);

}  // namespace ink
