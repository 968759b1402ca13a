#include "train/saved_run.h"

#include <cmath>
#include <utility>

#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/checkpoint.h"
#include "train/memory.h"

namespace ink {
namespace {

using Json = nlohmann::json;

// Reads the fields of a JSON object from a file.
class Fields {
 public:
  Fields(std::filesystem::path file, const Json& object)
      : file_(std::move(file)), object_(object) {}

  const Json& of(const char* name) const {
    INK_CHECK(object_.contains(name), file_.string(), ": ", name, " is missing");
    return object_.at(name);
  }
  std::string text(const char* name) const {
    const Json& value = of(name);
    expect(name, "a text", value.is_string(), value);
    return value.get<std::string>();
  }
  int64_t count(const char* name, int64_t most) const {
    const Json& value = of(name);
    const bool fits =
        value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most);
    expect(name, detail::joined({"an integer from 0 to ", most}), fits, value);
    return value.get<int64_t>();
  }
  // A finite number, or nothing where there is null or no such field.
  std::optional<double> number(const char* name) const {
    if (!object_.contains(name) || object_.at(name).is_null()) return {};
    const Json& value = of(name);
    expect(name, "a number or null", value.is_number() && std::isfinite(value.get<double>()),
           value);
    return value.get<double>();
  }

 private:
  void expect(const char* name, const std::string& what, bool found, const Json& value) const {
    INK_CHECK(found, file_.string(), ": ", name, ": expected ", what, ", got ", quoted(value));
  }

  std::filesystem::path file_;
  const Json& object_;
};

// Sizes that a config says and the tensors do not bear out are found before a model is made.
void check_size(const GPTConfig& config, const NamedTensors& model) {
  int64_t elements = 0;
  for (const auto& entry : model) elements += entry.second.numel();
  INK_CHECK(least_parameters(config.checked()) <= elements, "model.safetensors has ", elements,
            " numbers; expected ", least_parameters(config), " or more, as config.json says");
}

SavedRun read_run(const LoadedCheckpoint& saved) {
  SavedRun run;
  run.folder = saved.folder;
  const std::filesystem::path config_file = saved.folder / "config.json";
  const Fields config(config_file, saved.config), state(saved.folder / "state.json", saved.state);
  with_prefix(config_file.string(), [&] {
    Json settings = saved.config;
    for (const char* of_a_process : {"out_dir", "device", "init_from", "data_changed"})
      settings.erase(of_a_process);
    from_json(settings, run.config);
    run.config.check();
    run.tokenizer =
        with_prefix("vocabulary", [&] { return parse_tokenizer(config.of("vocabulary").dump()); });
  });
  run.start = config.text("start");
  with_prefix(config_file.string() + ": start", [&] {
    INK_CHECK(!run.tokenizer->encode(run.start).empty(), "expected a text, got none");
  });
  run.dataset = state.text("dataset");
  run.step = state.count("step", kMostSteps);
  run.best_val_loss = state.number("best_val_loss");
  const bool knows = saved.state.contains("validated_step");  // older ones are always validated
  run.validated_step = knows ? state.count("validated_step", kMostSteps) : run.step;
  if (saved.state.contains("data")) run.data = saved.state.at("data");
  with_prefix(saved.folder.string(),
              [&] { check_size(run.config.gpt(run.tokenizer->vocab_size()), saved.model); });
  run.model_state = saved.model;
  run.optimizer_state = saved.optimizer;
  return run;
}

}  // namespace

SavedRun load_run(const std::filesystem::path& out_dir, const std::string& name) {
  SavedRun run;
  load_checkpoint(out_dir, name, [&](const LoadedCheckpoint& saved) { run = read_run(saved); });
  return run;
}

Json fingerprint_of(const std::vector<std::string>& files) {
  uint64_t bytes = 0, crc = 0;
  for (const std::string& file : files) {
    if (!std::filesystem::is_regular_file(file)) return {};
    const MappedFile mapped(file);
    bytes += mapped.bytes().size();
    crc = crc64(mapped.bytes(), crc);
  }
  return {{"bytes", bytes}, {"crc64", crc}};
}

}  // namespace ink
