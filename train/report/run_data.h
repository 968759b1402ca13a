// What a report shows of a run: read from the files in its folder.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "train/report/metrics.h"
#include "train/trainer.h"

namespace ink {

/// What a run notes of itself when it starts.
constexpr const char* kRunFile = "run.json";

/// What run.json in a folder holds; null if it cannot be read.
nlohmann::ordered_json noted_run(const std::filesystem::path& folder);

/// The contents of run.json: config, model, data, machine, program ("inkling 0.1.0, commit ...")
/// and when the run began. A resumed run takes this and its init_from from the run.json that is
/// there, and all but max_iters, if it has all its steps.
nlohmann::ordered_json describe_run(Trainer& trainer, const std::string& program);

/// "GPT: 2 layers, 4 heads, 128 wide, context 160, vocabulary 55; 421,376 parameters"
std::string model_text(const TrainConfig& config, const LanguageModel& model);

/// "2026-11-26 06:40:12", local time.
std::string time_text();

/// Is a run going on, has it taken all of its steps, was it stopped before that, or did an error
/// end it?
enum class RunState { running, finished, stopped, failed };

/// A run, for the page: the object RUN that train/report/README.md describes, but for its findings
/// and its command. Files that are missing leave their part out; metrics.jsonl must be there.
/// state: nothing means any but running, as the metrics say.
nlohmann::ordered_json read_run(const std::filesystem::path& folder,
                                std::optional<RunState> state = {});

/// The same of lines and of probes that were read before.
nlohmann::ordered_json run_of(const std::filesystem::path& folder, const MetricsTable& lines,
                              const nlohmann::ordered_json& probes, std::optional<RunState> state);

/// Sets a run's config, from what run.json holds, and in "defaults" the defaults of those settings
/// that have another value.
void set_config(nlohmann::ordered_json& run, const nlohmann::ordered_json& noted);
/// The probes of a run, for the page; null if there are none.
nlohmann::ordered_json read_probes(const std::filesystem::path& folder);

}  // namespace ink
