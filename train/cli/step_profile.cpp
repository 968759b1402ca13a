#include "train/cli/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/engine/observer.h"
#include "autograd/inspect/machine.h"
#include "train/cli/command_line.h"
#include "train/cli/profile_table.h"

namespace ink {

// The module of each op that has run.
class StepProfile::Modules : public Flow {
 public:
  using Flow::Flow;
  void forget() {
    start();
    modules_.clear();
  }
  std::string of(const Node& node) const {
    const auto found = modules_.find(node.order);
    return found == modules_.end() ? "" : found->second;
  }

 private:
  void listed(const FlowOp& op, const std::vector<Tensor>&,
              const std::vector<Tensor>& outputs) override {
    modules_[outputs[0].slot()->node->order] = op.module;
  }
  std::unordered_map<uint64_t, std::string> modules_;  // by Node::order
};

StepProfile::StepProfile(std::filesystem::path file) : file_(std::move(file)) {
  check_is_file("--profile", file_.string());
}

void StepProfile::step(Trainer& trainer) {
  if (file_.empty() || ++seen_ <= kWarmUp) return trainer.step();
  const bool traced = seen_ <= kWarmUp + kTraced;
  Profiler& profiler = traced ? trace_ : table_;
  if (!modules_) {
    modules_ = std::make_shared<Modules>(trainer.model());
    trace_.trace(true);
    trace_.group_by([modules = modules_](const Node& node) { return modules->of(node); });
  }
  const auto run = [&] {
    const Observe observe(profiler);
    profiler.start();
    trainer.step();
    note_work("rest of the step", {}, {});
  };
  if (!traced) return run();
  modules_->forget();
  const Observe observe(*modules_);  // first, so that it knows an op when the profiler asks
  run();
  trace_.span(fmt::format("step {}", trainer.steps_done()));
}

void StepProfile::finish(Console& console, const TrainConfig& config) {
  if (file_.empty()) return;
  const std::filesystem::path file = std::exchange(file_, {});
  with_prefix("--profile", [&] { trace_.save_trace(file); });
  const int64_t traced = std::min(seen_ - kWarmUp, kTraced);
  if (traced <= 0)
    return console.paragraph("Too few steps for a profile: the first two are left out.");
  const bool measured = seen_ > kWarmUp + kTraced;
  console.line("");
  const Machine machine = measure_machine(parse_device(config.device), config.autocast());
  for (const std::string& text :
       profile_table((measured ? table_ : trace_).rows(),
                     measured ? seen_ - kWarmUp - kTraced : traced, machine, shown_columns()))
    console.line(text);
  console.paragraph(fmt::format(
      "Trace of {} steps: {}; ui.perfetto.dev or chrome://tracing show it", traced, file.string()));
}

}  // namespace ink
