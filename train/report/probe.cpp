#include "train/report/probe.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "autograd/fused_ops.h"
#include "autograd/io/foreign.h"
#include "autograd/random/generator.h"
#include "train/flow/watch.h"
#include "train/report/metrics.h"
#include "train/report/page.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = 320;             // of the batch
constexpr int64_t kMostAttentionBytes = 80'000;  // of a probe

template <class Row, class Value>
Json column(const std::vector<Row>& rows, const Value& value) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(value(row));
  return list;
}

// The longest text of which all heads' weights fit.
int64_t text_length(const TrainConfig& config) {
  int64_t T = config.block_size;
  while (T > 16 && config.n_layer * config.n_head * T * (T + 1) / 2 > kMostAttentionBytes) --T;
  return T;
}

}  // namespace

std::optional<int64_t> probe_step(const std::string& line) {
  try {
    const nlohmann::json object = parse_json(line);
    return Fields("probes", object).count("step", kMostSteps);
  } catch (const Error&) {
    return {};
  }
}

Probe::Probe(Trainer& trainer) : trainer_(trainer), parts_(trainer.model()) {
  const TrainConfig& config = trainer.config();
  const FieldGuard on_device(&Context::default_device, parse_device(config.device));
  const int64_t T = config.block_size,
                rows = std::clamp<int64_t>(kMostTokens / T, 1, config.batch_size);
  const Dataset& data = trainer.dataset();
  const Batch batch = data.train_batch(static_cast<uint64_t>(config.seed), 0, rows, T);
  x_ = ids_tensor(batch.x, rows);
  y_ = ids_tensor(batch.y, rows);
  // Ops of a small model are so short that threads which wait for each other, and perhaps for other
  // programs, would take most of the time.
  threads_ = config.batch_parts > 1 ? 1 : config.threads;
  const Batch text = data.val_window_batch(0, 1, text_length(config));
  text_ = ids_tensor(text.x, 1);
  best_possible_ = text.best_possible;
}

void Probe::before_step() {
  const FieldGuard threads(&Context::threads, threads_);
  before_ = parts_.copies();
}

Json Probe::after_step() {
  const TrainConfig& config = trainer_.config();
  Generator generator(static_cast<uint64_t>(config.seed));  // the run's own does not move on
  const ContextGuard guard;
  context().threads = threads_;
  context().generator = &generator;
  context().default_device = parse_device(config.device);
  context().autocast = config.autocast();
  trainer_.model().eval();
  const auto in_step = parts_.changes_since(before_);
  const auto since_last = last_.empty() ? in_step : parts_.changes_since(last_);
  before_.clear();
  last_ = parts_.copies();
  Json line{{"step", trainer_.steps_done()}};
  line["activations"] = activations();
  line["parameters"] = parameters(in_step, since_last);
  line["text"] = text();
  try {
    line["attention"] = attention();
  } catch (const Error&) {  // this model has none
  }
  return line;
}

Json Probe::activations() {
  const ModelStats stats =
      watch(trainer_.model(), [this] { return trainer_.model().loss(x_, y_); });
  grad_norms_.clear();
  for (const ParameterStats& row : stats.parameters) grad_norms_.push_back(row.grad_norm);
  const auto& rows = stats.activations;
  return {{"name", column(rows, [](auto& row) { return row.name; })},
          {"op", column(rows, [](auto& row) { return row.op; })},
          {"mean", column(rows, [](auto& row) { return shortened(row.mean); })},
          {"std", column(rows, [](auto& row) { return shortened(row.std); })},
          {"saturated", column(rows, [](auto& row) { return shortened(row.saturated); })},
          {"grad_std", column(rows, [](auto& row) { return shortened(row.grad_std); })}};
}

Json Probe::parameters(const std::vector<ParameterParts::Change>& in_step,
                       const std::vector<ParameterParts::Change>& since_last) const {
  std::vector<size_t> all(parts_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const std::vector<double> norms = parts_.norms([](const Tensor& p) { return p; });
  return {{"name", column(all, [&](size_t i) { return parts_.name(i); })},
          {"count", column(all, [&](size_t i) { return parts_.count(i); })},
          {"weight_norm", column(all, [&](size_t i) { return shortened(norms[i]); })},
          {"grad_norm", column(all, [&](size_t i) { return shortened(grad_norms_.at(i)); })},
          {"update_ratio", column(all, [&](size_t i) { return shortened(in_step[i].ratio); })},
          {"turned", column(all, [&](size_t i) { return shortened(since_last[i].turned); })}};
}

// The probability of each token given those before it; of the first one nothing is known.
Json Probe::text() const {
  const NoGrad no_grad;
  const std::vector<int64_t> ids = text_.tolist<int64_t>();
  const int64_t T = std::ssize(ids);
  Json tokens = Json::array(), p = Json::array({nullptr}), best = Json::array({nullptr});
  for (const int64_t id : ids) tokens.push_back(token_text(trainer_.dataset().tokenizer(), id));
  if (T > 1) {
    const Tensor losses =
        cross_entropy(trainer_.evaluated_model()(text_.narrow(1, 0, T - 1)).to(f32),
                      text_.narrow(1, 1, T - 1), -100, Reduction::none);
    for (const double loss : losses.tolist()) p.push_back(shortened(std::exp(-loss)));
  }
  for (int64_t i = 0; i + 1 < T && !best_possible_.empty(); ++i)
    best.push_back(shortened(std::exp(-best_possible_[static_cast<size_t>(i)])));
  Json text{{"tokens", std::move(tokens)}, {"p", std::move(p)}};
  if (!best_possible_.empty()) text["true"] = std::move(best);
  return text;
}

// A byte a weight: of each layer and head, row i has the columns 0 to i.
Json Probe::attention() const {
  const std::vector<Tensor> layers = trainer_.evaluated_model().attention_weights(text_);
  std::string bytes;
  for (const Tensor& layer : layers) {
    const std::vector<double> weights = layer.to(f32).tolist();
    const int64_t T = layer.size(-1);
    for (int64_t row = 0; row < layer.size(0) * T; ++row)
      for (int64_t j = 0; j <= row % T; ++j)
        bytes += static_cast<char>(
            std::lround(255 * std::clamp(weights[static_cast<size_t>(row * T + j)], 0.0, 1.0)));
  }
  return {{"layers", layers.size()},
          {"heads", layers.empty() ? 0 : layers[0].size(0)},
          {"weights", base64(bytes)}};
}

}  // namespace ink
