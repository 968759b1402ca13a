// inkling report: the loss curve of a run, as a picture or a table.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <string>

#include "autograd/io/atomic_file.h"
#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/report/metrics.h"

namespace ink {
namespace {

void write_file(const std::string& file, const std::string& text) {
  AtomicFile out(file);
  out.write(text.data(), text.size());
  out.commit();
  std::cout << "Written: " << file << "\n";
}

}  // namespace

int report_command(const Arguments& arguments) {
  CommandOptions command("report", "Draws the loss curve of a run from its metrics.jsonl.");
  std::string run = "out", svg, csv;
  command.add("run", &run, "the run's --out_dir", {.shows_default = true});
  command.add("--svg", &svg, "write the curve to this file");
  command.add("--csv", &csv, "write all metrics to this file, a row for each line of the log");
  if (!command.parse(arguments)) return kOk;
  if (svg.empty() && csv.empty()) throw UsageError("expected --svg FILE, --csv FILE or both");
  const auto steps = read_metrics(std::filesystem::path(run) / Metrics::kFile);
  if (!svg.empty()) write_file(svg, chart_svg(loss_chart(steps, "Loss of " + run)));
  if (!csv.empty()) write_file(csv, metrics_csv(steps));
  return kOk;
}

}  // namespace ink
