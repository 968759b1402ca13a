#include "train/saved_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "autograd/random/generator.h"
#include "data/data_files.h"
#include "data/file.h"
#include "train/memory.h"

namespace ink {
namespace {

// Checks the config's sizes against the tensors before a model is made. Of models that a program
// adds, only they know what they have.
void check_size(const TrainConfig& run, const GPTConfig& config, const NamedTensors& model) {
  int64_t elements = 0;
  const int64_t least = run.model == "gpt" ? least_parameters(config.checked()) : 0;
  for (const auto& entry : model) elements += entry.second.numel();
  INK_CHECK(least <= elements, "model.safetensors has ", elements, " numbers; expected ", least,
            " or more, as config.json says");
}

// The bytes that a tensor i64 (632) holds. Throws if they are no generator's state.
std::vector<uint8_t> generator_state(const Tensor& x) {
  INK_CHECK(x.dtype() == i64, "expected int64, got ", x.dtype());
  const auto* bytes = reinterpret_cast<const uint8_t*>(x.data<int64_t>());
  const std::vector<uint8_t> state(bytes, bytes + 8 * x.numel());
  Generator().set_state(state);
  return state;
}

// A tokenizer that the program added, and that cannot read what it wrote, is no damage.
std::unique_ptr<Tokenizer> saved_tokenizer(const std::string& file, const nlohmann::json& saved) {
  const nlohmann::json kind =
      saved.is_object() ? saved.value("tokenizer", nlohmann::json()) : saved;
  const bool is_ours = !kind.is_string() || kind == "byte" || kind == "char" || kind == "ids";
  try {
    return with_prefix(file + ": vocabulary", [&] { return parse_tokenizer(saved.dump()); });
  } catch (const Error& error) {
    if (is_ours) throw;
    throw NotDamaged(error.what());
  }
}

// Throws if a run names a model, tokenizer, optimizer or schedule of another program.
void check_known(const std::string& file, const nlohmann::json& fields, const char* name,
                 const std::vector<std::string>& known) {
  const auto field = fields.find(name);
  if (field == fields.end() || !field->is_string()) return;
  const auto value = field->get<std::string>();
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw NotDamaged(detail::joined({file, ": ", name, " is ", printable(value, 60), ", and this ",
                                   "program has ", range_text({.choices = known}),
                                   "; the program that trained the run adds it by add_", name}));
}

SavedRun read_run(const LoadedCheckpoint& saved, Parts parts) {
  SavedRun run;
  run.folder = saved.folder;
  const std::string config_file = (saved.folder / "config.json").string();
  const Fields config(config_file, saved.config),
      state((saved.folder / "state.json").string(), saved.state);
  check_known(config_file, saved.config, "model", model_names());
  if (config.has("vocabulary") && config.of("vocabulary").is_object())
    check_known(config_file, config.of("vocabulary"), "tokenizer", tokenizer_names());
  if (parts == Parts::all) {
    check_known(config_file, saved.config, "optimizer", optimizer_names());
    check_known(config_file, saved.config, "schedule", schedule_names());
  }
  with_prefix(config_file, [&] {
    nlohmann::json settings = saved.config;
    if (parts == Parts::model)
      for (const char* other : {"optimizer", "schedule"})
        settings.erase(other);  // it may be of another program
    for (const char* of_a_process : {"out_dir", "device", "init_from", "data_changed"})
      settings.erase(of_a_process);
    from_json(settings, run.config);
    run.config.check();
  });
  run.tokenizer = saved_tokenizer(config_file, config.of("vocabulary"));
  run.start = config.text("start");
  with_prefix(config_file + ": start",
              [&] { static_cast<void>(run.tokenizer->encode(run.start)); });
  run.dataset = state.text("dataset");
  run.step = state.count("step", kMostSteps);
  run.best_val_loss = state.number("best_val_loss");
  if (state.has("best_step")) run.best_step = state.count("best_step", kMostSteps);
  if (state.has("validation_set")) run.validation_set = state.text("validation_set");
  if (state.has("unwritten")) {
    const nlohmann::json& lines = state.of("unwritten");
    for (const nlohmann::json& line : lines)
      if (line.is_string()) run.unwritten.push_back(line.get<std::string>());
  }
  // Older checkpoints do not have this field: they were always validated.
  run.validated_step =
      state.has("validated_step") ? state.count("validated_step", kMostSteps) : run.step;
  if (state.has("data")) run.data = state.text("data");
  if (state.has("arithmetic")) {
    run.arithmetic = Arithmetic::from_json(state.object("arithmetic"));
    INK_CHECK(run.arithmetic->threads > 0 && run.arithmetic->batch_parts > 0,
              (saved.folder / "state.json").string(), ": arithmetic: expected threads and ",
              "batch_parts of 1 or more, got ", run.arithmetic->threads, " and ",
              run.arithmetic->batch_parts);
  }
  with_prefix(saved.folder.string(), [&] {
    check_size(run.config, run.config.gpt(run.tokenizer->vocab_size()), saved.model);
  });
  run.model_state = saved.model;
  run.average_state = saved.average;
  for (const auto& entry : saved.optimizer) {
    if (entry.first != kGeneratorState) {
      run.optimizer_state.push_back(entry);
      continue;
    }
    with_prefix((saved.folder / "optimizer.safetensors").string() + ": " + kGeneratorState,
                [&] { run.generator_state = generator_state(entry.second); });
  }
  return run;
}

}  // namespace

std::string usable_start(const Tokenizer& tokenizer, const std::string& start) {
  try {
    return tokenizer.encode(start).empty() ? "" : start;
  } catch (const std::exception&) {
    return "";
  }
}

std::string checkpoint_to_resume(const std::filesystem::path& out_dir) {
  const bool best_alone =
      !checkpoint_exists(out_dir, kLastCheckpoint) && checkpoint_exists(out_dir, kBestCheckpoint);
  return best_alone ? kBestCheckpoint : kLastCheckpoint;
}

SavedRun load_run(const std::filesystem::path& out_dir, const std::string& name, Parts parts) {
  SavedRun run;
  load_checkpoint(out_dir, name, parts,
                  [&](const LoadedCheckpoint& saved) { run = read_run(saved, parts); });
  return run;
}

SavedRun load_run_to_resume(const std::filesystem::path& out_dir, Parts parts) {
  const std::string name = checkpoint_to_resume(out_dir);
  const bool has_other = name != kBestCheckpoint && checkpoint_exists(out_dir, kBestCheckpoint);
  try {
    return load_run(out_dir, name, parts);
  } catch (const NotDamaged&) {
    throw;
  } catch (const Error& error) {
    if (!has_other) throw;
    const std::string why = error.what();
    SavedRun run = [&] {
      try {
        return load_run(out_dir, kBestCheckpoint, parts);
      } catch (const Error& of_best) {
        detail::fail({why, "\n", of_best.what()});
      }
    }();
    log_message("resume: ", why.substr(0, why.rfind('\n')), "\nThe run goes on from ",
                run.folder.string(), ", which is whole, of step ", run.step);
    return run;
  }
}

Place place_of(const std::filesystem::path& named) {
  namespace fs = std::filesystem;
  const fs::path folder = (named / "").parent_path();  // without the last '/'
  if (checkpoint_exists(folder, kBestCheckpoint)) return {folder, kBestCheckpoint};
  const Place last{folder, kLastCheckpoint};
  if (checkpoint_exists(folder, last.name) || !has_file(folder / "config.json")) return last;
  const fs::path path = folder.filename().string()[0] == '.' ? fs::canonical(folder) : folder;
  const Place itself{path.has_parent_path() ? path.parent_path() : ".", path.filename().string()};
  return checkpoint_exists(itself.out_dir, itself.name) ? itself : last;
}

Place start_of(const TrainConfig& config) {
  namespace fs = std::filesystem;
  const Place start = place_of(config.init_from);
  if (!checkpoint_exists(start.out_dir, start.name)) {
    const std::string foreign = foreign_weights(config.init_from);
    INK_CHECK(foreign.empty(), "--init_from: ", foreign);
    detail::fail(
        {"--init_from: expected scratch, resume, or the folder of a run, and there is no run in ",
         printable(config.init_from, 200)});
  }
  std::error_code ignored;
  INK_CHECK(!fs::equivalent(start.out_dir, config.out_dir, ignored),
            "--init_from: the new run needs a folder of its own; name one with --out_dir, or go on "
            "with the run in ",
            start.out_dir.string(), " by --init_from resume");
  return start;
}

SavedRun load_start(const TrainConfig& config) {
  const Place start = start_of(config);
  SavedRun run = load_run(start.out_dir, start.name, Parts::model);
  run.is_start = true;
  return run;
}

std::vector<std::string> model_fields(const TrainConfig& config) {
  std::vector<std::string> names{"model", "n_layer", "n_head", "n_embd", "block_size", "bias"};
  for (const ModelSetting& setting : config.model_settings)
    if (has_setting(config.model, setting.name)) names.push_back(setting.name);
  return names;
}

TrainConfig with_model_of(const SavedRun& run, TrainConfig config) {
  const nlohmann::json its = to_json(run.config);
  nlohmann::json model = {{"tokenizer", its.at("tokenizer")}};
  for (const std::string& name : model_fields(run.config)) model[name] = its.at(name);
  from_json(model, config);
  return config;
}

std::string fingerprint_of(const TrainConfig& config) {
  if (config.data.empty()) return "";
  if (const std::string task = config.task(); !task.empty())
    return detail::joined({"task:", task, ", --task_digits ", config.task_digits,
                           ", --val_fraction ", config.val_fraction});
  const DataFiles files = data_files(config.data, config.val_data);
  std::string text;
  for (const auto* part : {&files.train, &files.val}) {
    uint64_t bytes = 0, crc = 0;
    for (const std::filesystem::path& file : *part) {
      if (!std::filesystem::is_regular_file(file)) return "";
      const MappedFile mapped(file);
      bytes += mapped.bytes().size();
      crc = crc64(mapped.bytes(), crc);
    }
    if (part->empty()) continue;
    text +=
        detail::joined({text.empty() ? "" : ", validated on ", bytes, " bytes with CRC-64 ", crc});
  }
  return text;
}

}  // namespace ink
