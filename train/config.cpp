#include "train/config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace ink {

void TrainConfig::check() const {
  const auto at_least = [](const char* name, auto value, auto lowest) {
    INK_CHECK(value >= lowest, "config: ", name, " is ", value, "; expected ", lowest, " or more");
  };
  for (const auto& [name, value] : {std::pair{"n_layer", n_layer},
                                    {"n_head", n_head},
                                    {"n_embd", n_embd},
                                    {"block_size", block_size},
                                    {"batch_size", batch_size},
                                    {"gradient_accumulation_steps", gradient_accumulation_steps},
                                    {"eval_interval", eval_interval},
                                    {"log_interval", log_interval}}) {
    at_least(name, value, int64_t{1});
  }
  for (const auto& [name, value] : {std::pair{"max_iters", max_iters},
                                    {"warmup_iters", warmup_iters},
                                    {"eval_iters", eval_iters},
                                    {"sample_interval", sample_interval},
                                    {"threads", threads},
                                    {"batch_parts", batch_parts},
                                    {"seed", seed}}) {
    at_least(name, value, int64_t{0});
  }
  for (const auto& [name, value] : {std::pair{"learning_rate", learning_rate},
                                    {"weight_decay", weight_decay},
                                    {"grad_clip", grad_clip},
                                    {"max_minutes", max_minutes}}) {
    at_least(name, value, 0.0);
  }
  INK_CHECK(n_embd % n_head == 0, "config: n_embd is ", n_embd, "; expected a multiple of n_head, ",
            n_head);
  INK_CHECK(dropout >= 0 && dropout < 1, "config: dropout is ", dropout,
            "; expected 0 or more and less than 1");
  INK_CHECK(val_fraction > 0 && val_fraction < 1, "config: val_fraction is ", val_fraction,
            "; expected between 0 and 1");
  INK_CHECK(dataset == "fables", "config: dataset is '", dataset,
            "'; expected fables; for text of your own use --data FILE");
  INK_CHECK(init_from == "scratch" || init_from == "resume", "config: init_from is '", init_from,
            "'; expected scratch or resume");
  INK_CHECK(dtype == "float32" || dtype == "bfloat16", "config: dtype is '", dtype,
            "'; expected float32 or bfloat16");
  static_cast<void>(parse_device(device));
  INK_CHECK(optimizer == "adamw" || optimizer == "sgd", "config: optimizer is '", optimizer,
            "'; expected adamw or sgd");
}

nlohmann::json to_json(const TrainConfig& config) {
  nlohmann::ordered_json json;
  for_each_field(config,
                 [&](const char* name, const auto& field, const char*) { json[name] = field; });
  return json;
}

void from_json(const nlohmann::json& json, TrainConfig& config) {
  for_each_field(config, [&](const char* name, auto& field, const char*) {
    if (!json.contains(name)) return;
    try {
      json.at(name).get_to(field);
    } catch (const nlohmann::json::exception&) {
      detail::fail(
          {"config: ", name, " is ", json.at(name).dump(), ", which is not a value it can have"});
    }
  });
}

}  // namespace ink
