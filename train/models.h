// The models that a run can train, by name: GPT, Llama, and those that a program adds.
//
//   int main(int argc, char** argv) {
//     ink::add_model<AlibiGPT>("alibi");            // before anything else
//     return ink::run_command_line(argc, argv);     // train --model alibi, then sample, eval, ...
//   }
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "nn/gpt.h"
#include "train/limits.h"

namespace ink {

using SettingValue = std::variant<int64_t, double, bool, std::string>;
/// A setting of a model beside GPTConfig's, such as n_kv_head of Llama: an option of the commands.
struct ModelSetting {
  std::string name;
  SettingValue value;  // at first the default
  std::string help;
  Limits limits;
};
using ModelSettings = std::vector<ModelSetting>;

/// Makes a model of these sizes and settings.
using MakeModel =
    std::function<std::unique_ptr<LanguageModel>(const GPTConfig&, const ModelSettings&)>;
/// How a model is made, and what it has beside GPTConfig.
struct ModelEntry {
  MakeModel make;
  ModelSettings settings = {};
  /// Throws unless it can be made. Not called for a setting that is beyond its limits.
  std::function<void(const GPTConfig&, const ModelSettings&)> check = {};
};

/// From now on TrainConfig::model, and so --model, may be `name`, and a checkpoint of such a run
/// can be read. Call it before other threads run. Throws if there is a model of that name, or a
/// setting of the same name that is another one.
void add_model(const std::string& name, ModelEntry entry);
/// ... without settings, made by a function of the sizes.
void add_model(const std::string& name,
               const std::function<std::unique_ptr<LanguageModel>(const GPTConfig&)>& make);
/// ... made as a Model(sizes).
template <class Model>
void add_model(const std::string& name) {
  static_assert(std::derived_from<Model, LanguageModel>, "a model extends LanguageModel or GPT");
  static_assert(std::constructible_from<Model, const GPTConfig&>,
                "a model has operator() and a constructor that takes a const GPTConfig&");
  add_model(name, detail::make_with_fields<Model, GPTConfig>);
}

namespace detail {
// In place of the pages that a variant says.
template <class T>
constexpr bool is_setting() {
  constexpr bool known = std::same_as<T, int64_t> || std::same_as<T, double> ||
                         std::same_as<T, bool> || std::same_as<T, std::string>;
  static_assert(known, "a model's setting is int64_t, double, bool or std::string");
  return known;
}
template <class Config>
Config config_of(const GPTConfig& sizes, const ModelSettings& settings) {
  Config config;
  static_cast<GPTConfig&>(config) = sizes;
  for_each_setting(config, [&]<class T>(const std::string& name, T& field, auto&&...) {
    if constexpr (is_setting<T>())
      for (const ModelSetting& setting : settings)
        if (setting.name == name) field = std::get<T>(setting.value);
  });
  if constexpr (std::is_convertible_v<decltype(config.checked()), Config>) {
    return config.checked();
  } else {  // GPTConfig's
    config.checked();
    return config;
  }
}
}  // namespace detail

/// A Model's entry, which is made of a Config: this extends GPTConfig, and may have a checked()
/// that returns it with what is derived written out, or throws. A function for_each_setting(config,
/// f) beside it calls f(name, field, help, limits) for each int64_t, double, bool or string that is
/// one.
template <class Model, class Config>
ModelEntry model_entry() {
  ModelEntry entry;
  entry.make = [](const GPTConfig& sizes, const ModelSettings& settings) {
    return detail::make_with_fields<Model>(detail::config_of<Config>(sizes, settings));
  };
  entry.check = detail::config_of<Config>;
  Config defaults;
  for_each_setting(defaults,
                   [&]<class T>(const char* name, T value, const char* help, const Limits& limits) {
                     if constexpr (detail::is_setting<T>())
                       entry.settings.push_back({name, value, help, limits});
                   });
  return entry;
}
/// Adds a Model that has settings of its own.
template <class Model, class Config>
void add_model(const std::string& name) {
  add_model(name, model_entry<Model, Config>());
}

/// "gpt", which is GPT itself, "llama", and those that were added.
std::vector<std::string> model_names();
/// The settings of all models, with their defaults.
ModelSettings model_settings();
/// Has the model such a setting of its own?
bool has_setting(const std::string& model, const std::string& setting);
/// Throws unless the model can be made, or if one of the settings has no default and is not its.
void check_model(const std::string& name, const GPTConfig& sizes, const ModelSettings& settings);

/// A model of that name. Throws where there is none, and lists those there are.
std::unique_ptr<LanguageModel> make_model(const std::string& name, const GPTConfig& sizes,
                                          const ModelSettings& settings = model_settings());

}  // namespace ink
