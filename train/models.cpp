#include "train/models.h"

#include <algorithm>
#include <set>
#include <utility>

#include "data/registry.h"
#include "train/config.h"
#include "train/llama_settings.h"
#include "train/memory.h"

namespace ink {

namespace {

void check_heads(const GPTConfig& sizes) {
  INK_CHECK(sizes.n_embd % sizes.n_head == 0, "n_embd is ", sizes.n_embd,
            "; expected a multiple of n_head, ", sizes.n_head);
}

const ModelSetting* find(const ModelSettings& settings, const std::string& name) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const ModelSetting& one) { return one.name == name; });
  return found == settings.end() ? nullptr : &*found;
}

Registry<ModelEntry>& models() {
  static Registry<ModelEntry> table = [] {
    ModelEntry gpt;
    gpt.check = [](const GPTConfig& sizes, const ModelSettings&) { check_heads(sizes); };
    gpt.make = [](const GPTConfig& sizes, const ModelSettings&) {
      check_memory("this model", 4 * least_parameters(sizes));
      return std::make_unique<GPT>(sizes);
    };
    ModelEntry llama = model_entry<Llama, LlamaConfig>();
    llama.check = [](const GPTConfig& sizes, const ModelSettings& settings) {
      INK_CHECK(!sizes.bias, "llama: expected bias to be false: only q, k and v may have one ",
                "(attention_bias)");
      const ModelSetting* width = find(settings, "head_dim");
      if (width == nullptr || width->value == SettingValue(int64_t{0})) check_heads(sizes);
      detail::config_of<LlamaConfig>(sizes, settings);
    };
    llama.make = [](const GPTConfig& sizes, const ModelSettings& settings) {
      const auto config = detail::config_of<LlamaConfig>(sizes, settings);
      check_memory("this model", 4 * config.num_parameters());
      return std::make_unique<Llama>(config);
    };
    return Registry<ModelEntry>("model", {{"gpt", gpt}, {"llama", llama}});
  }();
  return table;
}

const ModelEntry& entry_of(const std::string& name) {
  check_limits("model", {.choices = model_names()}, name);
  return *models().find(name);
}

}  // namespace

void add_model(const std::string& name, ModelEntry entry) {
  INK_CHECK(entry.make, "add_model: ", name, ": expected what makes the model, got none");
  const ModelSettings known = model_settings();
  const TrainConfig fields;
  std::set<std::string> names{"vocabulary", "start"};  // a saved config has these beside fields
  for_each_field(fields, [&](const std::string& field, auto&&...) { names.insert(field); });
  for (const ModelSetting& setting : entry.settings) {
    const bool is_word = std::all_of(setting.name.begin(), setting.name.end(), [](char c) {
      return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    });
    INK_CHECK(is_word && !setting.name.empty(), "add_model: ", name,
              ": expected a setting's name of letters, digits and _, got \"", setting.name, "\"");
    const ModelSetting* other = find(known, setting.name);
    INK_CHECK(other == nullptr || other->value == setting.value, "add_model: ", name,
              ": its setting ", setting.name,
              " has another type or default than the one of another model; give it another name");
    INK_CHECK(names.insert(setting.name).second, "add_model: ", name, ": its setting ",
              setting.name, " has the name of one that it or every run has; give it another name");
  }
  models().add(name, std::move(entry));
}

void add_model(const std::string& name,
               const std::function<std::unique_ptr<LanguageModel>(const GPTConfig&)>& make) {
  ModelEntry entry;
  if (make)
    entry.make = [make](const GPTConfig& sizes, const ModelSettings&) { return make(sizes); };
  add_model(name, std::move(entry));
}

std::vector<std::string> model_names() { return models().names(); }

ModelSettings model_settings() {
  ModelSettings all;
  for (const std::string& name : model_names())
    for (const ModelSetting& setting : models().find(name)->settings)
      if (find(all, setting.name) == nullptr) all.push_back(setting);
  return all;
}

bool has_setting(const std::string& model, const std::string& setting) {
  const ModelEntry* entry = models().find(model);
  return entry != nullptr && find(entry->settings, setting) != nullptr;
}

void check_model(const std::string& name, const GPTConfig& sizes, const ModelSettings& settings) {
  const ModelEntry& entry = entry_of(name);
  const ModelSettings defaults = model_settings();
  for (const ModelSetting& setting : settings) {
    if (find(entry.settings, setting.name) != nullptr) continue;
    const ModelSetting* unset = find(defaults, setting.name);
    INK_CHECK(unset != nullptr && unset->value == setting.value, setting.name,
              " is no setting of model ", name, "; leave it out, or choose another model");
  }
  if (entry.check) entry.check(sizes, settings);
}

std::unique_ptr<LanguageModel> make_model(const std::string& name, const GPTConfig& sizes,
                                          const ModelSettings& settings) {
  std::unique_ptr<LanguageModel> model = entry_of(name).make(sizes, settings);
  INK_CHECK(model, "make_model: what add_model was given for ", name, " made none");
  INK_CHECK(
      model->config.vocab_size >= sizes.vocab_size && model->config.block_size >= sizes.block_size,
      "make_model: ", name, " was asked for block_size ", sizes.block_size, " and vocab_size ",
      sizes.vocab_size, ", and its config has ", model->config.block_size, " and ",
      model->config.vocab_size);
  return model;
}

}  // namespace ink
