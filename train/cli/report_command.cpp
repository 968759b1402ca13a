// inkling report: the page of a run or of several; the loss curve as text, a picture or a table.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/checkpoint.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/out_folder.h"
#include "train/cli/run_report.h"
#include "train/report/metrics.h"
#include "train/report/report.h"
#include "train/report/run_data.h"
#include "train/report/tensorboard.h"
#include "train/saved_run.h"

namespace ink {
namespace {

std::vector<MetricsStep> metrics_of(const std::string& run) {
  return read_metrics(std::filesystem::path(run) / kMetricsFile);
}

nlohmann::ordered_json read(const std::string& folder) {
  nlohmann::ordered_json run =
      read_run(folder, is_locked(folder) ? std::optional(RunState::running) : std::nullopt);
  add_command(run, folder);
  return run;
}

void check_is_run(const std::string& folder) {
  const std::filesystem::path file = std::filesystem::path(folder) / kMetricsFile;
  std::error_code ignored;
  if (!has_path(file)) {
    const Place place = place_of(folder);
    INK_CHECK(!checkpoint_exists(place.out_dir, place.name), printable(folder, 200),
              " holds a checkpoint, and no ", kMetricsFile,
              ", the log that a report shows; name the folder of its run, or let it write: ",
              typed("sample " + option_typed("--out_dir", folder)));
  }
  INK_CHECK(has_path(file), "there is no run in ", printable(folder, 200), ", which has no ",
            kMetricsFile, "; to make one: ", typed("train " + option_typed("--out_dir", folder)));
  if (std::filesystem::file_size(file, ignored) != 0) return;
  INK_CHECK(!is_locked(folder), "the run in ", printable(folder, 200),
            " has not logged a line yet; wait for its first");
  const bool saved = checkpoint_exists(folder, checkpoint_to_resume(folder));
  nlohmann::ordered_json run = run_of(folder, MetricsTable(), {}, RunState::stopped);
  add_command(run, folder);
  detail::fail(
      {"the run in ", printable(folder, 200), " ended before it logged a line",
       saved ? "; to go on with it: " : "; to start anew: ", run.at("command").get<std::string>()});
}

// On a terminal, the curve as wide as it is, and what stands out in lines that fit.
std::string text_of(const nlohmann::ordered_json& run) {
  constexpr size_t kUsual = 80, kWidest = 120;
  const Console console;
  const size_t columns = console.columns();
  const size_t width = console.is_terminal() ? std::clamp<size_t>(columns, 24, kWidest) : kUsual;
  return printable(filled(report_text(run, static_cast<int>(width)), columns, 2));
}

}  // namespace

int report_command(const Arguments& arguments) {
  CommandOptions command("report",
                         "Shows what a run logged: a page, or the loss curve as text, SVG or CSV, "
                         "and for TensorBoard.");
  std::vector<std::string> runs = {"out"};
  std::string out, svg, csv, tensorboard;
  bool text = false;
  command.add("run", &runs, "the runs' --out_dir; several are laid side by side");
  command.add("--out", &out,
              "write the page to this file; -: to standard output; by default report.html in the "
              "first run");
  command.flag("--text", text, "show the loss curve, and what stands out, on the terminal");
  command.add("--svg", &svg, "write the loss curve to this file; -: to standard output");
  command.add(
      "--csv", &csv,
      "write all metrics to this file, a row for each line of the log; -: to standard output");
  command.add("--tensorboard", &tensorboard,
              "write the runs' numbers and samples into this folder, for TensorBoard");
  if (!command.parse(arguments)) return kOk;
  if (runs.empty()) runs = {"out"};
  if (runs.size() > 1 && (text || !svg.empty() || !csv.empty()))
    throw UsageError("--text, --svg and --csv show one run; expected one, got " +
                     std::to_string(runs.size()));
  const bool writes_page =
      !out.empty() || !(text || !svg.empty() || !csv.empty() || !tensorboard.empty());
  const std::string page = (std::filesystem::path(runs[0]) / kReportFile).string();
  check_folder("--tensorboard", tensorboard);
  for (const std::string& run : runs) {
    check_folder("run", run);
    if (std::filesystem::path(out).filename() != kReportFile) check_not_of_run("--out", run, out);
    check_not_of_run("--svg", run, svg);
    check_not_of_run("--csv", run, csv);
  }
  if (writes_page && out.empty()) check_is_report(page, "name another file with --out");
  check_is_svg("--svg", svg);
  check_writable("--out", out);
  check_writable("--svg", svg);
  check_writable("--csv", csv);
  for (const std::string& run : runs) check_is_run(run);
  if (text) std::cout << text_of(read(runs[0]));
  if (!svg.empty())
    write_output("--svg", svg, chart_svg(loss_chart(metrics_of(runs[0]), "Loss of " + runs[0])));
  if (!csv.empty()) write_output("--csv", csv, metrics_csv(metrics_of(runs[0])));
  if (!tensorboard.empty())
    for (const auto& file : write_tensorboard({runs.begin(), runs.end()}, tensorboard))
      std::cout << "Written: " << printable(file.string()) << "\n";
  if (!writes_page) return kOk;
  std::vector<nlohmann::ordered_json> all;
  std::map<std::string, int> names;
  for (const std::string& run : runs) ++names[all.emplace_back(read(run)).at("name")];
  for (size_t i = 0; i < runs.size(); ++i)  // folders of one name are told apart by their paths
    if (names[all[i].at("name")] > 1) all[i]["name"] = runs[i];
  write_output("--out", out.empty() ? page : out, report_page(std::move(all)));
  return kOk;
}

}  // namespace ink
