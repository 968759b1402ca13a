#include "train/report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "autograd/inspect/machine.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/checkpoint.h"
#include "train/parallel/together.h"
#include "train/report/numbers.h"
#include "train/report/probe.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kMostProbes = 40, kMostAttention = 8, kMostSamples = 40;  // on a page

// `most` of count things, the first and the last among them, at equal distances.
std::vector<size_t> chosen(size_t count, size_t most) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < std::min(count, most); ++i)
    kept.push_back(count <= most ? i : i * (count - 1) / (most - 1));
  return kept;
}

// Files of a run may be missing, and another program may have written them: what is not as it
// should be is left out.
std::optional<Json> parsed(const std::string& text) {
  try {
    return Json(parse_json(text));
  } catch (const Error&) {
    return {};
  }
}
std::string text_of(const fs::path& file) {
  try {
    return has_path(file) ? read_file(file) : "";
  } catch (const Error&) {
    return "";
  }
}
std::string text_field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Lists of `size` numbers, or nulls, under each of these names?
bool has_columns(const Json& object, std::initializer_list<const char*> names, size_t size) {
  return std::all_of(names.begin(), names.end(), [&](const char* name) {
    const auto column = object.find(name);
    return column != object.end() && column->is_array() && column->size() == size &&
           std::all_of(column->begin(), column->end(),
                       [](const Json& value) { return value.is_number() || value.is_null(); });
  });
}
bool is_list_of_texts(const Json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](auto& item) { return item.is_string(); });
}

// A part of all probes: "parameters" by name, with a list by probe for each of the columns. Left
// out if it is not the same list of names in all probes.
Json by_probe(const std::vector<Json>& probes, const char* part, const char* names,
              std::initializer_list<const char*> constant,
              std::initializer_list<const char*> columns) {
  Json all;
  for (const Json& probe : probes) {
    const auto found = probe.find(part);
    if (found == probe.end() || !found->is_object() || !found->contains(names)) return {};
    const Json& list = found->at(names);
    if (!is_list_of_texts(list) || !has_columns(*found, columns, list.size())) return {};
    if (all.is_null()) {
      all[names] = list;
      for (const char* name : constant)
        if (found->contains(name) && found->at(name).size() == list.size())
          all[name] = found->at(name);
    }
    if (all[names] != list) return {};
    for (const char* name : columns) all[name].push_back(found->at(name));
  }
  return all;
}

Json attention_of(const std::vector<Json>& probes) {
  Json all;
  for (const Json& probe : probes) {
    const auto found = probe.find("attention");
    if (found == probe.end() || !found->is_object() || text_field(*found, "weights").empty())
      return {};
    const Json layers = found->value("layers", Json()), heads = found->value("heads", Json());
    if (!layers.is_number_unsigned() || !heads.is_number_unsigned()) return {};
    all["layers"] = layers;
    all["heads"] = heads;
    all["weights"].push_back(found->at("weights"));
  }
  const std::vector<size_t> kept = chosen(probes.size(), kMostAttention);
  for (size_t i = 0; i < probes.size(); ++i)  // null: this probe's are left out of the page
    if (std::find(kept.begin(), kept.end(), i) == kept.end()) all["weights"][i] = nullptr;
  return all;
}

std::vector<Json> chosen_probes(const fs::path& file) {
  std::vector<Json> probes;
  for_each_line(text_of(file), [&](const std::string& text) {
    std::optional<Json> line = parsed(text);
    if (!line || !line->is_object() || !line->contains("step")) return;
    const Json& step = line->at("step");
    if (step.is_number_unsigned() && (probes.empty() || step > probes.back().at("step")))
      probes.push_back(std::move(*line));
  });
  std::vector<Json> kept;
  for (const size_t i : chosen(probes.size(), kMostProbes)) kept.push_back(std::move(probes[i]));
  return kept;
}

Json probes_of(const std::vector<Json>& probes) {
  Json all;
  for (const Json& probe : probes) all["step"].push_back(probe.at("step"));
  const auto add = [&](const char* name, Json part) {
    if (!part.is_null()) all[name] = std::move(part);
  };
  add("parameters", by_probe(probes, "parameters", "name", {"count"},
                             {"weight_norm", "grad_norm", "update_ratio", "turned"}));
  add("activations",
      by_probe(probes, "activations", "name", {"op"}, {"mean", "std", "saturated", "grad_std"}));
  add("text", by_probe(probes, "text", "tokens", {"true"}, {"p"}));
  add("attention", attention_of(probes));
  return all;
}

Json samples_of(const fs::path& folder, const std::vector<int64_t>& steps) {
  Json samples = Json::array();
  for (const size_t i : chosen(steps.size(), kMostSamples))
    samples.push_back({{"step", steps[i]}, {"text", text_of(folder / sample_file(steps[i]))}});
  return samples;
}

// How long it has taken, and how long it will at the speed of the last steps.
void add_times(Json& run, const MetricsTable& lines) {
  run["elapsed_s"] = lines.elapsed_s() ? shortened(*lines.elapsed_s()) : Json();
  const auto left = lines.seconds_left(run["max_iters"].get<int64_t>());
  run["seconds_left"] = left ? shortened(*left) : Json();
}

}  // namespace

std::string model_text(const TrainConfig& config, const LanguageModel& model) {
  const GPTConfig& sizes = model.config;
  return fmt::format("{}: {}, {}, {} wide, context {}, vocabulary {}; {} parameters",
                     config.model == "gpt" ? "GPT" : config.model, counted(sizes.n_layer, "layer"),
                     counted(sizes.n_head, "head"), sizes.n_embd, sizes.block_size,
                     sizes.vocab_size, with_separators(std::to_string(model.num_parameters())));
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local)};
}

Json noted_run(const fs::path& folder) {
  if (const auto noted = parsed(text_of(folder / kRunFile))) return *noted;
  Json run;  // report off: the checkpoint knows the settings
  if (auto saved = parsed(text_of(folder / kLastCheckpoint / "config.json")); saved)
    run["config"] = std::move(*saved);
  return run;
}

Json describe_run(Trainer& trainer, const std::string& program) {
  const TrainConfig& config = trainer.config();
  Json noted, settings = to_json(trainer.given_config());
  if (config.init_from == "resume" || trainer.steps_done() > 0) noted = noted_run(config.out_dir);
  const FieldGuard threads(&Context::threads, config.threads);  // a resumed run keeps its number
  const std::string began = text_field(noted, "started");
  if (noted.is_object() && noted["config"].is_object()) {
    Json& before = noted["config"];
    if (config.init_from == "resume" && trainer.steps_done() == config.max_iters) {
      before["max_iters"] = config.max_iters;
      return noted;  // nothing is trained with other settings
    }
    if (const std::string start = text_field(before, "init_from"); !start.empty())
      settings["init_from"] = start;
  }
  const int64_t n = processes().size();
  const std::string each = n > 1 ? detail::joined({n, " processes, each on "}) : "";
  return {{"program", program},
          {"started", began.empty() ? time_text() : began},
          {"machine", each + describe_machine(parse_device(config.device))},
          {"data", trainer.dataset().summary()},
          {"train_tokens", trainer.dataset().train_tokens()},
          {"model", model_text(config, trainer.model())},
          {"model_tree", trainer.model().to_string()},
          {"memory_mb", static_cast<double>(trainer.memory().total()) / 1e6},
          {"config", settings}};
}

// The settings that this program knows, in its order.
void set_config(Json& run, const Json& noted) {
  run["defaults"] = run["config"] = Json::object();
  Json &defaults = run["defaults"], &config = run["config"];
  const Json given = noted.is_object() ? noted.value("config", Json()) : Json();
  if (!given.is_object()) return;
  TrainConfig known;
  if (const auto model = given.find("model"); model != given.end() && model->is_string())
    known.model = *model;
  const Json values = to_json(known);
  for_each_field(known, [&](const char* name, const auto&, const char*, const Limits&) {
    if (!given.contains(name)) return;
    config[name] = given.at(name);
    const std::string text = name;
    if (config[name] != values.at(name) && text != "out_dir" && text != "init_from")
      defaults[name] = values.at(name);
  });
}

Json read_run(const fs::path& folder, std::optional<RunState> state) {
  return run_of(folder, read_table(folder / kMetricsFile), read_probes(folder), state);
}

Json read_probes(const fs::path& folder) {
  const std::vector<Json> probes = chosen_probes(folder / kProbesFile);
  return probes.empty() ? Json() : probes_of(probes);
}

Json run_of(const fs::path& folder, const MetricsTable& lines, const Json& probes,
            std::optional<RunState> state) {
  const fs::path named = (fs::absolute(folder) / "").lexically_normal().parent_path();  // "." too
  Json run{{"name", named.filename().string()}};
  const Json noted = noted_run(folder);
  for (const char* name : {"started", "program", "machine", "data", "model", "model_tree"})
    if (noted.is_object()) run[name] = text_field(noted, name);
  set_config(run, noted);
  const Json most = run["config"].value("max_iters", Json());
  const int64_t last = lines.last_step(),
                max_iters = most.is_number_integer() ? most.get<int64_t>() : last;
  // A run ends with a sample, so one that was stopped before that has none of its last step.
  const std::vector<int64_t>& samples = lines.samples();
  const bool is_whole =
      last >= max_iters && (!run["config"].contains("final_eval") ||
                            std::find(samples.begin(), samples.end(), last) != samples.end());
  if (!state)
    state = !lines.error().empty() ? RunState::failed
            : is_whole             ? RunState::finished
                                   : RunState::stopped;
  constexpr std::array names{"running", "finished", "stopped", "failed"};
  run["state"] = names.at(static_cast<size_t>(*state));
  if (*state == RunState::failed) run["error"] = lines.error();
  run["step"] = last;
  run["max_iters"] = max_iters;
  for (const char* name : {"memory_mb", "train_tokens"})
    if (noted.is_object() && noted.contains(name) && noted.at(name).is_number())
      run[name] = noted.at(name);
  run["metrics"] = lines.training();
  run["validation"] = lines.validation();
  run["joined"] = {{"metrics", lines.joined_training()}, {"validation", lines.joined_validation()}};
  add_times(run, lines);
  if (!probes.is_null()) run["probes"] = probes;
  run["samples"] = samples_of(folder, lines.samples());
  return run;
}

}  // namespace ink
