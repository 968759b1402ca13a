#include "train/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "train/report/chart.h"
#include "train/report/findings.h"
#include "train/report/metrics.h"
#include "train/report/numbers.h"
#include "train/report/page.h"
#include "train/report/run_data.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReloadSeconds = 10;

// Training steps and evaluations as read_run() lists them, for the chart.
std::vector<MetricsStep> steps_of(const Json& run) {
  std::vector<MetricsStep> steps;
  const auto add = [&](const Json& columns, const char* loss, auto member) {
    const Json none, &losses = columns.contains(loss) ? columns.at(loss) : none,
                     &best = columns.contains("best_possible") ? columns.at("best_possible") : none;
    for (size_t i = 0; i < losses.size(); ++i) {
      MetricsStep step;
      step.step = columns.at("step")[i].get<int64_t>();
      if (losses[i].is_number()) step.*member = losses[i].get<double>();
      if (i < best.size() && best[i].is_number()) step.best_possible = best[i].get<double>();
      steps.push_back(step);
    }
  };
  add(run.at("metrics"), "train_loss", &MetricsStep::train_loss);
  add(run.at("validation"), "val_loss", &MetricsStep::val_loss);
  if (const Json& validation = run.at("validation"); validation.contains("sampled_loss"))
    for (size_t i = 0; i < validation.at("step").size(); ++i)
      if (const Json& loss = validation.at("sampled_loss")[i]; loss.is_number())
        steps[steps.size() - validation.at("step").size() + i].sampled_loss = loss.get<double>();
  return steps;
}

// The curve is of the batches of all evaluations; the last one may be of more.
std::string whole_line(const Json& run) {
  const Json& validation = run.at("validation");
  if (!validation.contains("sampled_loss") || !validation.contains("val_loss")) return "";
  const Json &whole = validation.at("val_loss").back(),
             &sampled = validation.at("sampled_loss").back();
  if (!whole.is_number() || !sampled.is_number()) return "";
  return fmt::format(
      "validation loss {} over the whole set after step {}, {} over the batches of the curve\n",
      fixed_number(whole.get<double>()), validation.at("step").back().get<int64_t>(),
      fixed_number(sampled.get<double>()));
}

// Of a task: "12.5 % of answers right after step 450, 99.9 % of answers right after step 900": up
// to five evaluations, from the first to the last.
std::string answers_line(const Json& run) {
  const Json& validation = run.at("validation");
  if (!validation.contains("val_answers")) return "";
  std::vector<std::string> all;
  const Json &shares = validation.at("val_answers"), &steps = validation.at("step");
  for (size_t i = 0; i < shares.size(); ++i)
    if (shares[i].is_number())
      all.push_back(fmt::format("{} after step {}", answers_text(shares[i].get<double>()),
                                steps[i].get<int64_t>()));
  if (all.empty()) return "";
  const size_t shown = std::min<size_t>(5, all.size());
  std::string text;
  for (size_t i = 0; i < shown; ++i)
    text += (i ? ", " : "") + all[shown == 1 ? all.size() - 1 : i * (all.size() - 1) / (shown - 1)];
  return text + "\n";
}

}  // namespace

std::string report_page(std::vector<Json> runs) {
  Json data{{"runs", Json::array()},
            {"written", time_text()},
            {"written_s", std::time(nullptr)},
            {"reload_s", 0}};
  for (Json& run : runs) {
    run["findings"] = findings_of(run);
    if (run.at("state") == "running") data["reload_s"] = kReloadSeconds;
    data["runs"].push_back(std::move(run));
  }
  std::string html =
      page("report", {"base", "charts", "heatmap", "attention", "probes", "report"}, data);
  return html.insert(html.find('\n') + 1, std::string(kReportMark) + "\n");
}

std::string report_text(const Json& run, int columns) {
  const std::string name = run.at("name").get<std::string>();
  const std::vector<MetricsStep> steps = steps_of(run);
  const bool any = std::any_of(steps.begin(), steps.end(), [](const MetricsStep& step) {
    return step.train_loss || step.val_loss;
  });
  std::string text = any ? chart_text(loss_chart(steps, "Loss of " + name), columns, 20)
                         : name + ": no loss to draw\n";
  text += whole_line(run) + answers_line(run);
  if (const auto state = run.at("state").get<std::string>(); state != "finished") {
    text += fmt::format("{}: step {} of {}", state, run.at("step").get<int64_t>(),
                        run.at("max_iters").get<int64_t>());
    if (run.contains("command"))
      text += fmt::format("; {}: {}", run.at("command_note").get<std::string>(),
                          run.at("command").get<std::string>());
    text += "\n";
  }
  for (const Json& finding : findings_of(run))
    text += fmt::format("{}: {}\n", finding.at("level").get<std::string>(),
                        finding.at("text").get<std::string>());
  return text;
}

}  // namespace ink
