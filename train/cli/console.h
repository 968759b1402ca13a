// The output of a run: a live line that is rewritten on a terminal, or plain lines; metrics.jsonl.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/cli/json_lines.h"
#include "train/report/metrics.h"

namespace ink {

/// A part of a line, which begins with what separates it from the part before. Where a line is too
/// long, items are left out whole, those of the highest rank first.
struct Item {
  std::string text;
  int rank = 0;
};

/// The items that fit into so many columns, joined; nothing if not even one does.
std::string fitted(std::vector<Item> items, size_t columns);

/// A text in lines of so many columns, broken after commas, semicolons and colons, and where that
/// is too rarely, at spaces; all lines but the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t columns, size_t indent);

/// A text in lines of so many columns, broken at spaces: a line that continues another begins with
/// `indent` spaces, or two more than the other if that has more. Line ends and spaces of the text's
/// own stay. What is in [] is one word, and so is a command of this program, which can be copied.
std::string filled(const std::string& text, size_t columns, size_t indent);

/// The width of the terminal on standard output; elsewhere that of any line.
size_t shown_columns();

/// The width of the terminal that a descriptor is, or else COLUMNS; 0: neither is known.
size_t known_columns(int descriptor);
/// That of help on standard output: 80 where it is not known.
size_t help_columns();

/// Any thread may call it. On a terminal, control characters and bytes that are no UTF-8 are shown
/// as \xNN, except line ends, tabs and, in what is not a model's text, the codes of colours.
class Console {
 public:
  /// On standard output; colours only on a terminal and unless NO_COLOR is set. Where TERM is dumb,
  /// a terminal has neither colours nor a live line.
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// A line that stays.
  void line(const std::string& text);
  /// The same; a terminal breaks it between its items, as `wrapped` does.
  void paragraph(const std::string& text);
  /// A line of the items that fit; the live line: on a terminal it is replaced by the next one,
  /// elsewhere it stays and has all items.
  void line(const std::vector<Item>& items);
  void live(const std::vector<Item>& items);
  /// A model's text as it comes, without line ends of its own; a character may begin in one piece
  /// and end in the next. Elsewhere than on a terminal, its bytes.
  void write(const std::string& text);
  /// Removes the live line.
  void clear_live();

  std::string bold(const std::string& text) const { return coloured("1", text); }
  std::string dim(const std::string& text) const { return coloured("2", text); }
  std::string green(const std::string& text) const { return coloured("32", text); }
  std::string yellow(const std::string& text) const { return coloured("33", text); }
  bool is_terminal() const { return terminal_; }
  bool has_live_line() const { return obeys_; }
  /// How long a line may be: the terminal's width, or else COLUMNS, or else 80, less the last
  /// column, because a full line may wrap; elsewhere any length.
  size_t columns() const;

 private:
  std::string coloured(const char* code, const std::string& text) const;
  /// Replaces the live line by `text`; the next one replaces that if it `is_live`.
  void show(const std::string& text, bool is_live, bool is_text = false);

  std::mutex mutex_;
  bool terminal_, obeys_, colours_;  // obeys_: does it do what codes say?
  bool live_shown_ = false;
  std::string held_;  // of a text: the beginning of a character
};

/// metrics.jsonl: one JSON object per line, appended; and samples/, a file for each sample. A
/// resumed run keeps the lines up to its step. The other lines are removed all at once or not at
/// all, and then their samples; lines that are not metrics are logged.
class Metrics {
 public:
  Metrics(const std::filesystem::path& file, int64_t resume_after_step);

  /// Throws if the line cannot be written whole.
  void write(const nlohmann::ordered_json& object);
  /// The same for an evaluation; what the last line of this step says is not repeated.
  void write_validation(const nlohmann::ordered_json& object);
  /// Writes the file of a sample and its line. Throws if one of them cannot be written whole.
  void write_sample(int64_t step, const std::string& text);
  /// All lines, also those of earlier processes.
  const MetricsTable& table() const { return table_; }

 private:
  bool keep(const std::string& line, int64_t last_step);

  std::filesystem::path folder_;
  MetricsTable table_;
  int64_t old_ = 0, foreign_ = 0;  // lines that were there; those that are not metrics
  JsonLines lines_;
};

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
/// "3:05" or "1:02:03".
std::string clock_text(double seconds);
/// "812", "53.2k", "1.21M", "2.40G".
std::string count_text(double count);

}  // namespace ink
