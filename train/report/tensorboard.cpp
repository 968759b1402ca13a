#include "train/report/tensorboard.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/report/events.h"
#include "train/report/metrics.h"
#include "train/report/run_data.h"

namespace ink {
namespace {

namespace fs = std::filesystem;

// "val_loss" of an evaluation is "val/loss", "lr" of a training step "train/lr". A curve is of the
// same batches: what the last evaluation measured on the whole set is "val/whole_loss".
std::string tag_of(const std::string& field, const MetricsStep& of) {
  const std::string part = of.is_validation ? "val" : "train",
                    name = field.starts_with(part + "_") ? field.substr(part.size() + 1) : field;
  if (!of.sampled_loss || field == "elapsed_s") return part + "/" + name;
  return part + "/" + (field == "sampled_loss" ? "loss" : "whole_" + name);
}

// Of each run its folder's name, with as many of the folders above as tell it from the others.
std::vector<fs::path> names_of(const std::vector<fs::path>& runs) {
  const auto last = [](const fs::path& run, int64_t count) {
    const fs::path whole =
        (fs::absolute(run) / "").lexically_normal().parent_path().relative_path();
    fs::path name;
    for (auto at =
             std::next(whole.begin(),
                       std::max<int64_t>(0, std::distance(whole.begin(), whole.end()) - count));
         at != whole.end(); ++at)
      name /= *at;
    return name;
  };
  std::vector<fs::path> names;
  for (const fs::path& run : runs) {
    const auto is_alone = [&](int64_t count) {
      return std::count_if(runs.begin(), runs.end(), [&](const fs::path& other) {
               return last(other, count) == last(run, count);
             }) == 1;
    };
    int64_t count = 1;
    while (!is_alone(count) && last(run, count) != last(run, count + 1)) ++count;
    fs::path name = last(run, is_alone(count) ? count : 1);
    for (int k = 2; std::find(names.begin(), names.end(), name) != names.end(); ++k)  // given twice
      name = last(run, 1).string() + " (" + std::to_string(k) + ")";
    names.push_back(name);
  }
  return names;
}

// The samples' own line ends and signs, not Markdown.
std::string as_code(const std::string& text) {
  std::string code;
  for_each_line(printable(text), [&](const std::string& line) { code += "    " + line + "\n"; });
  return code;
}

// When a run began, in seconds since 1970: as run.json says, or else by the age of its last line.
double start_of(const fs::path& run, const std::string& started, const std::string& lines) {
  std::tm local{};
  local.tm_isdst = -1;
  if (strptime(started.c_str(), "%Y-%m-%d %H:%M:%S", &local) != nullptr)
    return static_cast<double>(std::mktime(&local));
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(run / kMetricsFile);
  const auto written = std::chrono::system_clock::now().time_since_epoch() - age;
  double elapsed = 0;
  for_each_line(lines, [&](const std::string& line) {
    if (const auto step = parse_metrics(line)) elapsed = step->elapsed_s.value_or(elapsed);
  });
  return static_cast<double>(std::chrono::duration_cast<std::chrono::seconds>(written).count()) -
         elapsed;
}

// A reader of a file that grows goes on where it was.
void extend_or_replace(const fs::path& file, const std::string& bytes) {
  const std::string old =
      fs::is_regular_file(file) && fs::file_size(file) > 0 ? read_file(file) : "";
  if (!old.empty() && bytes.starts_with(old)) {
    std::ofstream out(file, std::ios::binary | std::ios::app);
    out.write(bytes.data() + old.size(), std::ssize(bytes) - std::ssize(old));
    out.close();
    if (out) return;
    fs::resize_file(file, old.size());
    throw Error(file.string() + ": cannot write: the disk may be full");
  }
  INK_CHECK(!fs::is_directory(file), file.string(), ": cannot write: it is a folder");
  const fs::path fresh = file.parent_path() / ".inkling-events";  // no name that TensorBoard reads
  write_file(fresh, bytes);
  fs::rename(fresh, file);
}

// Its first record, and one for each line of the log.
std::string run_events(const fs::path& run, const std::string& started) {
  const std::string lines = read_file(run / kMetricsFile);
  const double start = start_of(run, started, lines);
  std::string bytes = first_event_record(start);
  double elapsed = 0;
  for_each_line(lines, [&](const std::string& line) {
    const auto step = parse_metrics(line);
    if (!step) return;
    elapsed = step->elapsed_s.value_or(elapsed);
    Event event{start + elapsed, step->step, {}, {}};
    if (!step->sample.empty()) {
      if (const fs::path file = run / step->sample; fs::exists(file))
        event.texts.emplace_back("samples", as_code(read_file(file)));
    } else {
      const nlohmann::json fields = parse_json(line);
      for (const auto& [name, value] : fields.items())
        if (value.is_number() && name != "step" && !name.ends_with("_set"))  // measured on what
          event.scalars.emplace_back(tag_of(name, *step), value.get<double>());
    }
    if (!event.scalars.empty() || !event.texts.empty()) bytes += event_record(event);
  });
  return bytes;
}

}  // namespace

std::vector<fs::path> write_tensorboard(const std::vector<fs::path>& runs, const fs::path& folder) {
  std::vector<std::pair<fs::path, std::string>> files;  // all are read before one is written
  const std::vector<fs::path> names = names_of(runs);
  for (size_t i = 0; i < runs.size(); ++i)
    files.emplace_back(runs.size() == 1 ? folder : folder / names[i],
                       run_events(runs[i], read_run(runs[i]).value("started", "")));
  std::vector<fs::path> written;
  for (const auto& [into, bytes] : files) {
    written.push_back(into / kEventsFile);
    file_operation([&, &into = into, &bytes = bytes] {
      fs::create_directories(into);
      extend_or_replace(written.back(), bytes);
    });
  }
  return written;
}

}  // namespace ink
