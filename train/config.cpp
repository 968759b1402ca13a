#include "train/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "autograd/io/foreign.h"
#include "autograd/memory/device_backend.h"
#include "data/bpe/merges.h"
#include "data/registry.h"

namespace ink {

namespace {

using Json = nlohmann::json;

// A text in JSON. A file's name need not be UTF-8: then its bytes, as {"hex": "63e9"}.
Json text_json(const std::string& text) {
  if (printable(text) == text) return text;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : text) hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  return {{"hex", hex}};
}
std::string text_from(const std::string& name, const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  const bool has_hex =
      json.is_object() && json.size() == 1 && json.contains("hex") && json["hex"].is_string();
  const std::string hex = has_hex ? json["hex"].get<std::string>() : "?";
  INK_CHECK(hex.size() % 2 == 0 && hex.find_first_not_of("0123456789abcdef") == std::string::npos,
            "config: ", name, ": expected a text, got ", quoted(json));
  std::string text;
  for (size_t i = 0; i < hex.size(); i += 2)
    text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return text;
}

template <class Field>
Json field_json(const Field& field) {
  if constexpr (std::is_same_v<Field, std::string>) {
    return text_json(field);
  } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
    Json list = Json::array();
    for (const std::string& text : field) list.push_back(text_json(text));
    return list;
  } else {
    return field;
  }
}

template <class Field>
void read_field(const std::string& name, const Json& json, Field& field) {
  const auto expected = [&](const char* what, bool is_one) {
    INK_CHECK(is_one, "config: ", name, ": expected ", what, ", got ", quoted(json));
  };
  if constexpr (std::is_same_v<Field, std::string>) {
    field = text_from(name, json);
  } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
    expected("a list of texts", json.is_array());
    field.clear();
    for (const Json& item : json) field.push_back(text_from(name, item));
  } else if constexpr (std::is_same_v<Field, bool>) {
    expected("true or false", json.is_boolean());
    field = json.get<bool>();
  } else if constexpr (std::is_same_v<Field, double>) {
    expected("a number", json.is_number());
    field = json.get<double>();
  } else {
    expected("an integer", json.is_number_integer() &&
                               (!json.is_number_unsigned() ||
                                json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)));
    field = json.get<int64_t>();
  }
}

}  // namespace

SettingValue& TrainConfig::setting(const std::string& name) {
  for (ModelSetting& setting : model_settings)
    if (setting.name == name) return setting.value;
  detail::fail({"config: no model has a setting ", name});
}

static double lowest_rate(const TrainConfig& c) {
  return c.min_lr < 0 ? c.learning_rate / 10 : c.min_lr;
}
static int64_t decay_end(const TrainConfig& c) {
  return c.lr_decay_iters < 0 ? c.max_iters : c.lr_decay_iters;
}

static Registry<MakeSchedule>& schedules() {
  using Config = const TrainConfig&;
  static Registry<MakeSchedule> table(
      "schedule",
      {{"constant", [](Config c) { return warmup_constant(c.learning_rate, c.warmup_iters); }},
       {"cosine",
        [](Config c) {
          return warmup_cosine(c.learning_rate, lowest_rate(c), c.warmup_iters, decay_end(c));
        }},
       {"linear",
        [](Config c) {
          return warmup_linear(c.learning_rate, lowest_rate(c), c.warmup_iters, decay_end(c));
        }},
       {"wsd", [](Config c) {
          return warmup_stable_decay(c.learning_rate, lowest_rate(c), c.warmup_iters, decay_end(c),
                                     c.decay_fraction);
        }}});
  return table;
}

void add_schedule(const std::string& name, MakeSchedule make) {
  INK_CHECK(make, "add_schedule: ", name, ": expected what makes the schedule, got none");
  schedules().add(name, std::move(make));
}

std::vector<std::string> schedule_names() { return schedules().names(); }

Schedule TrainConfig::schedule() const {
  check_limits("schedule", {.choices = schedule_names()}, schedule_name);
  const Schedule schedule = (*schedules().find(schedule_name))(*this);
  INK_CHECK(schedule, "schedule: what add_schedule was given for ", schedule_name, " made none");
  return schedule;
}

std::string TrainConfig::task() const {
  constexpr std::string_view kPrefix = "task:";
  if (data.size() != 1 || data[0].compare(0, kPrefix.size(), kPrefix) != 0) return "";
  return data[0].substr(kPrefix.size());
}

int64_t batch_parts(const TrainConfig& config, int64_t model_parameters) {
  constexpr int64_t kSmallModel = 1 << 22;  // parameters
  const int64_t wanted = config.batch_parts > 0 ? config.batch_parts
                         : model_parameters <= kSmallModel
                             ? host_threads(parse_device(config.device))
                             : 1;
  return std::min(wanted, config.batch_size);
}

int64_t bpe_vocab_size(const std::string& tokenizer) {
  const std::string size = tokenizer.substr(4);
  const bool is_number = !size.empty() && size.size() < 18 &&
                         size.find_first_not_of("0123456789") == std::string::npos;
  INK_CHECK(is_number, "config: tokenizer is '", printable(tokenizer, 60),
            "'; expected bpe:N, a vocabulary of N tokens to be learned from texts");
  const int64_t tokens = std::stoll(size);
  check_limits("config: tokenizer bpe:N", Limits{257, bpe::kMostTokens}, tokens);
  return tokens;
}

void TrainConfig::check() const {
  INK_CHECK(dataset == "fables" || !data.empty(), "config: dataset is '", printable(dataset, 60),
            "'; expected fables; for text of your own use --data FILE (nanoGPT has such a text in ",
            "data/shakespeare_char/input.txt)");
  for_each_field(*this, []<class Field>(const char* name, const Field& field, const char*,
                                        const Limits& limits) {
    if constexpr (!std::is_same_v<Field, bool> && !std::is_same_v<Field, std::vector<std::string>>)
      check_limits(std::string("config: ") + name, limits, field);
  });
  with_prefix("config", [&] { check_model(model, gpt(1), model_settings); });
  INK_CHECK(min_lr >= 0 || min_lr == -1, "config: min_lr is ", min_lr,
            "; expected -1, or 0 to 1000");
  constexpr int64_t kMostRows = 1 << 24;
  INK_CHECK(batch_size * gradient_accumulation_steps < kMostRows, "config: batch_size x ",
            "gradient_accumulation_steps is ", batch_size * gradient_accumulation_steps,
            "; expected less than ", kMostRows);
  constexpr int64_t kMostTokens = int64_t{1} << 31;
  INK_CHECK(batch_size * block_size <= kMostTokens, "config: batch_size x block_size is ",
            batch_size * block_size, "; expected at most ", kMostTokens);
  for (const auto* files : {&data, &val_data})
    for (const std::string& file : *files)
      INK_CHECK(!file.empty(), "config: ", files == &data ? "data" : "val_data",
                ": expected the name of a file, got none");
  INK_CHECK(!data.empty() || val_data.empty(),
            "config: val_data is given without data, the files to train on");
  INK_CHECK(!tokenizer.empty(),
            "config: tokenizer: expected char, byte, bpe:N or the name of a file, got none");
  if (tokenizer.starts_with("bpe:")) bpe_vocab_size(tokenizer);
  INK_CHECK(!init_from.empty(),
            "config: init_from: expected scratch, resume or a folder, got none");
  INK_CHECK(!out_dir.empty(), "config: out_dir: expected the name of a folder, got none");
  static_cast<void>(parse_device(device));
}

Json to_json(const TrainConfig& config) {
  Json json;
  for_each_field(config, [&](const char* name, const auto& field, const char*, const Limits&) {
    json[name] = field_json(field);
  });
  return json;
}

void from_json(const Json& json, TrainConfig& config) {
  for_each_field(config, [&](const char* name, auto& field, const char*, const Limits&) {
    if (json.contains(name)) read_field(name, json.at(name), field);
  });
}

}  // namespace ink
