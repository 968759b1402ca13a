#include "train/cli/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "autograd/io/utf8.h"
#include "train/cli/command_line.h"
#include "train/cli/sample_files.h"
#include "train/parallel/processes.h"
#include "train/report/numbers.h"

namespace ink {
namespace {

bool set_and_not_empty(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// As in an editor's window, which shows codes as they are.
bool is_dumb() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) == "dumb";
}

// How many bytes at the end of a text may belong to what the next piece ends: a character, or the
// two of a line end.
size_t open_end(std::string_view text) {
  if (text.ends_with('\r')) return 1;
  for (size_t count = 1; count <= std::min<size_t>(3, text.size()); ++count) {
    const auto byte = static_cast<unsigned char>(text[text.size() - count]);
    const size_t length = byte < 0xc2 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 1;
    if (!utf8::continues(text[text.size() - count])) return length > count ? count : 0;
  }
  return 0;
}

// A text that a terminal can show without being told to do anything but, if wanted, to change
// colours.
std::string harmless(std::string_view text, bool with_colours) {
  std::string shown;
  size_t plain = 0;  // what was not shown yet begins here
  const auto keep = [&](size_t begin, size_t count) {
    shown += printable(text.substr(plain, begin - plain));
    shown += text.substr(begin, count);
    plain = begin + count;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\t' || text.substr(at, 2) == "\r\n") keep(at, 1);
    if (!with_colours || text.substr(at, 2) != "\033[") continue;
    const size_t end = text.find_first_not_of("0123456789;", at + 2);
    if (end != std::string_view::npos && text[end] == 'm') keep(at, end + 1 - at);
  }
  keep(text.size(), 0);
  return shown;
}

}  // namespace

std::string fitted(std::vector<Item> items, size_t columns) {
  const auto joined = [&] {
    std::string line;
    for (const Item& item : items) line += item.text;
    return line;
  };
  const auto less = [](const Item& a, const Item& b) { return a.rank < b.rank; };
  while (!items.empty() && columns_of(joined()) > columns)
    items.erase(std::max_element(items.begin(), items.end(), less));
  return joined();
}

std::string wrapped(const std::string& text, size_t columns, size_t indent) {
  std::string all, line;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    const auto ends = [&] {  // after punctuation, and at two spaces, but not behind a first word
      return text[end] == ' ' &&
             (std::string_view(",;:.").find(text[end - 1]) != std::string::npos ||
              (text.compare(end, 2, "  ") == 0 && columns_of(text.substr(0, end)) > indent));
    };
    for (end = at + 1; end < text.size() && !ends();) ++end;
    const std::string piece = text.substr(at, end - at);
    if (!line.empty() && columns_of(line + piece) > columns) {
      all += filled(line, columns, indent) + "\n";
      line = std::string(indent, ' ') +
             piece.substr(std::min(piece.find_first_not_of(' '), piece.size()));
    } else {
      line += piece;
    }
  }
  return all + filled(line, columns, indent);
}

// The end of the command to type that begins at a place, with its options: one of several lines
// would be several commands. A usage, with [options] or TEXT..., is none.
static size_t end_of_command(const std::string& text, size_t at) {
  size_t end = text.find_first_of(" \n", at);
  while (end < text.size() && text[end] == ' ' &&
         std::string_view(";,)").find(text[end - 1]) == std::string::npos) {
    if (text[end + 1] == '[') return text.find_first_of(" \n", at);
    if (text[end + 1] == '(' || text[end + 1] == ' ') break;
    end = text.find_first_of(" \n", end + 1);
  }
  const bool is_usage = text.substr(0, end).ends_with("...");
  return is_usage ? text.find_first_of(" \n", at) : end;
}

std::string filled(const std::string& text, size_t columns, size_t indent) {
  const std::string program = typed("");
  std::string all, line;
  size_t level = indent;  // where the rest of a line begins; further in than a line of a tree
  bool begun = false;     // does the line have a word?
  const auto end_line = [&](size_t spaces) {
    all += line + "\n";
    line.assign(spaces, ' ');
    begun = false;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t word = std::min(text.find_first_not_of(' ', at), text.size()),
                 close = text.find(']', word);
    const bool has_bracket =
        word < text.size() && text[word] == '[' && close < text.find('\n', word);
    const size_t after = text.compare(word, program.size(), program) == 0
                             ? end_of_command(text, word)
                             : text.find_first_of(" \n", has_bracket ? close : word);
    const size_t end = std::min(after, text.size());
    const std::string piece = text.substr(at, end - at);
    if (at == 0 || text[at - 1] == '\n') level = word - at > indent ? word - at + 2 : indent;
    if (begun && columns_of(line + piece) > columns) {
      end_line(level);
      line += text.substr(word, end - word);
    } else {
      line += piece;
    }
    begun = begun || end > word;
    at = end;
    if (at < text.size() && text[at] == '\n' && ++at > 0) end_line(0);
  }
  return all + line;
}

// That of a process that mpirun started is 0 x 0, and what mpirun shows of it is no terminal.
static bool shows_lines(int descriptor) {
  winsize size{};
  return isatty(descriptor) != 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 &&
         (size.ws_col > 0 || launched_processes() == 0);
}

size_t shown_columns() { return shows_lines(STDOUT_FILENO) ? help_columns() : std::string::npos; }

size_t help_columns() {
  const size_t known = known_columns(STDOUT_FILENO);
  return known > 0 ? known : 80;
}

size_t known_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  const long columns = given != nullptr ? std::strtol(given, nullptr, 10) : 0;
  return columns > 0 && columns < 10000 ? static_cast<size_t>(columns) : 0;
}

Console::Console()
    : terminal_(shows_lines(STDOUT_FILENO)),
      obeys_(terminal_ && !is_dumb()),
      colours_(obeys_ && !set_and_not_empty("NO_COLOR")) {}

Console::~Console() {
  if (live_shown_) std::fputs("\n", stdout);
  std::fflush(stdout);
}

void Console::show(const std::string& text, bool is_live, bool is_text) {
  const std::lock_guard lock(mutex_);
  if (live_shown_) std::fputs("\r\033[K", stdout);
  live_shown_ = is_live;
  std::string shown = text;  // of a text, a pipe gets the bytes
  const std::string before = std::exchange(held_, "");
  if (!is_text) {
    shown = harmless(before, false) + harmless(text, colours_);
  } else if (terminal_) {
    held_ = before + text;
    const size_t whole = held_.size() - open_end(held_);
    shown = harmless(std::string_view(held_).substr(0, whole), false);
    held_.erase(0, whole);
  }
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
}

void Console::line(const std::string& text) { show(text + "\n", false); }
void Console::write(const std::string& text) { show(text, false, true); }
void Console::clear_live() { show("", false); }
void Console::line(const std::vector<Item>& items) { line(fitted(items, columns())); }
void Console::live(const std::vector<Item>& items) {
  obeys_ ? show(fitted(items, columns()), true) : line(items);
}
void Console::paragraph(const std::string& text) { line(wrapped(text, columns(), 7)); }

size_t Console::columns() const {
  if (!terminal_) return std::string::npos;
  const size_t known = known_columns(STDOUT_FILENO);
  return known > 0 ? known - 1 : 79;
}

std::string Console::coloured(const char* code, const std::string& text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

Metrics::Metrics(const std::filesystem::path& file, int64_t resume_after_step)
    : folder_(file.parent_path()),
      lines_(file, [&](const std::string& line) { return keep(line, resume_after_step); }) {
  if (foreign_ > 0)
    log_message(file.string(), ": ", foreign_, " lines left out that are not metrics of a step");
  if (old_ > 0) remove_samples(folder_, resume_after_step + 1);
  table_.begin_process(resume_after_step);
}

bool Metrics::keep(const std::string& line, int64_t last_step) {
  const auto found = parse_metrics(line);
  ++old_;
  if (!found) ++foreign_;
  if (!found || found->step > last_step) return false;
  table_.add(*found);
  return true;
}

void Metrics::write(const nlohmann::ordered_json& object) {
  lines_.write(object);
  if (const auto line = parse_metrics(json_line(object))) table_.add(*line);
}

void Metrics::write_validation(const nlohmann::ordered_json& object) {
  const auto last = table_.last_validation(), next = parse_metrics(json_line(object));
  const bool same = last && next && last->step == next->step && last->val_set == next->val_set &&
                    std::abs(*last->val_loss - next->val_loss.value_or(INFINITY)) < 1e-12;
  if (!same) write(object);
}

void Metrics::write_sample(int64_t step, const std::string& text) {
  const auto& samples = table_.samples();
  save_sample(folder_, step, text);
  if (samples.empty() || samples.back() != step)
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
