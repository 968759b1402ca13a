#include "train/cli/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/log.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/cli/sample_files.h"
#include "train/report/metrics.h"

namespace ink {
namespace {

bool set_and_not_empty(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// A live line must fit the terminal, because a wrapped one could not be rewritten. Escape codes
// take no columns.
std::string cut_to_terminal(const std::string& text) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const size_t columns = known ? size.ws_col : 80;
  std::string cut;
  size_t shown = 0;
  bool escape = false;
  for (char c : text) {
    if (c == '\033') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80 && ++shown >= columns)
      return cut + "\033[0m";
    cut += c;
    if (escape && c == 'm') escape = false;
  }
  return cut;
}

}  // namespace

Console::Console()
    : terminal_(isatty(STDOUT_FILENO) != 0),
      colours_(terminal_ && !set_and_not_empty("NO_COLOR")) {}

Console::~Console() {
  if (live_shown_) std::fputs("\n", stdout);
  std::fflush(stdout);
}

void Console::show(const std::string& text, bool is_live) {
  const std::lock_guard lock(mutex_);
  if (live_shown_) std::fputs("\r\033[K", stdout);
  live_shown_ = is_live;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void Console::line(const std::string& text) { show(text + "\n", false); }
void Console::write(const std::string& text) { show(text, false); }
void Console::clear_live() { show("", false); }
void Console::live(const std::string& text) {
  terminal_ ? show(cut_to_terminal(text), true) : line(text);
}

std::string Console::coloured(const char* code, const std::string& text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

void Metrics::keep_lines(int64_t last_step, int64_t max_iters) {
  if (std::filesystem::file_size(path_) == 0) return;
  const std::string text = read_file(path_);
  std::string kept;
  int64_t foreign = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const auto found = parse_metrics(line);
    if (!found) ++foreign;
    if (!found || found->step > last_step) continue;
    if (found->step >= max_iters && (found->is_validation || !found->sample.empty())) continue;
    kept += line + "\n";
    elapsed_before_ = std::max(elapsed_before_, found->elapsed_s.value_or(0));
  }
  if (foreign > 0)
    log_message(path_.string(), ": ", foreign, " lines left out that are not metrics of a step");
  if (kept != text) {
    AtomicFile out(path_);
    out.write(kept.data(), kept.size());
    out.commit();
  }
  remove_samples(path_.parent_path(), std::min(last_step + 1, max_iters));
}

Metrics::Metrics(const std::filesystem::path& file, int64_t resume_after_step, int64_t max_iters)
    : path_(file) {
  const auto status = std::filesystem::status(file);
  INK_CHECK(!exists(status) || is_regular_file(status), file.string(),
            ": expected a regular file; move it away, or choose another --out_dir");
  if (exists(status)) keep_lines(resume_after_step, max_iters);
  fd_ = open_file(file, O_WRONLY | O_CREAT | O_APPEND);
}
Metrics::~Metrics() { ::close(fd_); }

void Metrics::write(const nlohmann::ordered_json& object) {
  const std::string line = object.dump() + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t written =
        uninterrupted([&] { return ::write(fd_, line.data() + done, line.size() - done); });
    INK_CHECK(written >= 0, path_.string(), ": cannot write: ", std::strerror(errno));
    done += static_cast<size_t>(written);
  }
}

void Metrics::write_sample(int64_t step, const std::string& text) {
  save_sample(path_.parent_path(), step, text);
  write({{"step", step}, {"sample", sample_file(step)}});
}

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string count_text(double count) {
  if (count >= 1e9) return fmt::format("{:.2f}G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.2f}M", count / 1e6);
  if (count >= 1e4) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

}  // namespace ink
