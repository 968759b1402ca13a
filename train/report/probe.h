// What a run measures at some of its steps for its report: weights and how fast they change,
// activations, and what the model makes of a fixed text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/flow/parameter_parts.h"
#include "train/trainer.h"

namespace ink {

constexpr const char* kProbesFile = "probes.jsonl";

/// One step is measured in two parts:
///   Probe probe(trainer);
///   probe.before_step();
///   trainer.step();
///   const nlohmann::ordered_json line = probe.after_step();   // a line of probes.jsonl
/// A probe changes nothing of the run, and the run goes on with the same bits. It runs forward and
/// backward on at most about 320 tokens of training data, and reads a text of the validation data.
/// These are the same at every step. The trainer must outlive it.
class Probe {
 public:
  explicit Probe(Trainer& trainer);

  void before_step();
  /// {"step", "parameters", "activations", "text", "attention"}: lists by name, as train/report
  /// describes them. A model without attention weights of its own lacks the last one.
  nlohmann::ordered_json after_step();

 private:
  nlohmann::ordered_json parameters(const std::vector<ParameterParts::Change>& in_step,
                                    const std::vector<ParameterParts::Change>& since_last) const;
  nlohmann::ordered_json activations();
  nlohmann::ordered_json text() const;
  nlohmann::ordered_json attention() const;

  Trainer& trainer_;
  ParameterParts parts_;
  ParameterParts::Copies before_, last_;  // before the step, and after the one measured before
  std::vector<double> grad_norms_;
  int64_t threads_ = 0;               // that its ops take
  Tensor x_, y_;                      // (B, T) ids of the batch
  Tensor text_;                       // (1, T) ids of the text
  std::vector<float> best_possible_;  // of the text's tokens but the first; empty: not known
};

/// The step of a line of probes.jsonl; nothing if it is not one.
std::optional<int64_t> probe_step(const std::string& line);

}  // namespace ink
