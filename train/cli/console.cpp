#include "train/cli/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "autograd/base/check.h"

namespace ink {
namespace {

bool set_and_not_empty(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// A live line must fit the terminal: a wrapped one could not be rewritten. Escape codes take no
// columns of it.
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

void Console::clear_live() {
  if (live_shown_) std::fputs("\r\033[K", stdout);
  live_shown_ = false;
}

void Console::line(const std::string& text) {
  clear_live();
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void Console::live(const std::string& text) {
  if (!terminal_) return line(text);
  clear_live();
  std::fputs(cut_to_terminal(text).c_str(), stdout);
  std::fflush(stdout);
  live_shown_ = true;
}

void Console::write(const std::string& text) {
  clear_live();
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string Console::coloured(const char* code, const std::string& text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

Metrics::Metrics(const std::filesystem::path& file, int64_t resume_after_step) : path_(file) {
  std::vector<std::string> kept;
  if (resume_after_step > 0) {
    std::ifstream old(file);
    for (std::string text; std::getline(old, text);) {
      // A torn last line is discarded.
      const auto object = nlohmann::json::parse(text, nullptr, false);
      if (object.is_object() && object.value("step", int64_t{-1}) >= 0 &&
          object.value("step", int64_t{0}) <= resume_after_step) {
        kept.push_back(text);
      }
    }
  }
  file_.open(file, std::ios::trunc);
  for (const std::string& text : kept) file_ << text << "\n";
  file_.flush();
  INK_CHECK(file_.good(), "metrics: cannot write ", file.string(), "; choose another --out_dir");
}

void Metrics::write(const nlohmann::ordered_json& object) {
  file_ << object.dump() << "\n";
  file_.flush();
  INK_CHECK(file_.good(), "metrics: cannot write ", path_.string(), ": is the disk full?");
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
