#include "train/lessons/notebook.h"

#include <algorithm>
#include <iomanip>
#include <utility>

#include "autograd/base/text.h"
#include "autograd/print.h"
#include "autograd/random/generator.h"

namespace ink {

namespace {

std::string joined(const Shape& x) {
  std::string text;
  for (int64_t d = 0; d < x.size(); ++d) text += (d ? ", " : "") + std::to_string(x[d]);
  return text;
}

}  // namespace

Text::Text(const Shape& x) : value("torch.Size([" + joined(x) + "])") {}

Text::Text(const std::map<std::string, int64_t>& x) {
  for (const auto& [key, number] : x)
    value += (value.empty() ? "{'" : ", '") + key + "': " + std::to_string(number);
  value += "}";
}

std::string fixed(double x, int digits) {
  TextStream out;
  out << std::fixed << std::setprecision(digits) << x;
  return out.str();
}

std::string tuple(const Shape& x) { return "(" + joined(x) + (x.size() == 1 ? ",)" : ")"); }

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void detail::run_apart(const std::function<void()>& f) {
  const ContextGuard guard;
  const Restore<PrintOptions> options(print_options(), {});
  struct GeneratorGuard {
    std::vector<uint8_t> state = default_generator().get_state();
    ~GeneratorGuard() { default_generator().set_state(state); }
  } generator;
  f();
}

std::vector<Lesson> lessons() {
  std::vector<Lesson> list = {lesson_0(),  lesson_1(),  lesson_2(), lesson_3(), lesson_4(),
                              lesson_5(),  lesson_6(),  lesson_7(), lesson_8(), lesson_9(),
                              lesson_10(), lesson_11(), lesson_12()};
  for (Lesson& walkthrough : walkthroughs()) list.push_back(std::move(walkthrough));
  return list;
}

std::vector<Lesson> walkthroughs() {
  return {attention_from_scratch(), self_attention_sentence(), padding_and_cache(),
          average_to_attention(), the_averaging_trick()};
}

// ---- the page

namespace {

size_t indent_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// Goes through the lines of a source and makes a page of them.
class Typesetter {
 public:
  Typesetter(const std::string& source, std::vector<Printed> printed, int steps)
      : printed_(std::move(printed)), steps_(steps) {
    TextStream in(source);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  std::vector<Piece> pieces() {
    size_t i = 0;
    for (; i < lines_.size() && lines_[i].starts_with("//"); ++i)
      add(i == 0 ? Piece::title : Piece::prose,
          lines_[i].substr(std::min<size_t>(3, lines_[i].size())));
    while (i < lines_.size() && !lines_[i].starts_with("  // ---- ")) ++i;
    for (; i < lines_.size() && lines_[i] != "};" && !done_; ++i) set(i);
    std::string& end = pieces_.back().text;
    end.erase(end.find_last_not_of('\n') + 1);
    return std::move(pieces_);
  }

 private:
  void set(size_t i) {
    const std::string& line = lines_[i];
    if (line.starts_with("  // ---- ")) {
      done_ = ++step_ > steps_;
      if (!done_) add(Piece::title, line.substr(10));
    } else if (line.starts_with("  void step_")) {
      base_ = 4;
    } else if (base_ == 4 && line == "  }") {
      base_ = 2;
    } else if (line.empty()) {
      if (!pieces_.empty() && pieces_.back().kind != Piece::title) add(pieces_.back().kind, "");
    } else if (line.substr(indent_of(line)).starts_with("//") && indent_of(line) == base_) {
      add(Piece::prose, line.substr(std::min(base_ + 3, line.size())));
    } else {
      add(Piece::code, line.substr(std::min(base_, indent_of(line))));
      if (ends_statement(i)) add_output(static_cast<int>(i) + 1);
    }
  }

  // Does line i end a declaration at the outermost indentation?
  bool ends_statement(size_t i) const {
    const char last = lines_[i].back();
    size_t next = i + 1;
    while (next < lines_.size() && lines_[next].empty()) ++next;
    return (last == ';' || last == '}') && next < lines_.size() &&
           indent_of(lines_[next]) <= base_ && !(lines_[next] == std::string(base_, ' ') + "}");
  }

  void add_output(int line) {
    while (next_ < printed_.size() && printed_[next_].line <= line && printed_[next_].step == step_)
      add(Piece::output, printed_[next_++].text);
  }

  void add(Piece::Kind kind, const std::string& text) {
    const bool goes_on = !pieces_.empty() && pieces_.back().kind == kind && kind != Piece::title;
    if (goes_on) {
      pieces_.back().text += "\n" + text;
      return;
    }
    if (text.empty()) return;
    if (!pieces_.empty()) {  // blank lines at the end of a piece are left to the next one
      std::string& before = pieces_.back().text;
      before.erase(before.find_last_not_of('\n') + 1);
    }
    pieces_.push_back({kind, text});
  }

  std::vector<std::string> lines_;
  std::vector<Printed> printed_;
  int steps_, step_ = 0;
  size_t base_ = 2, next_ = 0;  // the indentation of what is read; the next output
  bool done_ = false;
  std::vector<Piece> pieces_;
};

// The files of the library in a text: autograd/ops.h.
std::vector<std::string> files_in(const std::string& text) {
  std::vector<std::string> files;
  TextStream words(text);
  for (std::string word; words >> word;) {
    const size_t begin = word.find_first_not_of("("), end = word.find_last_not_of("),.:;");
    if (begin == std::string::npos || end == std::string::npos || end < begin) continue;
    word = word.substr(begin, end + 1 - begin);
    const bool in_folder = word.starts_with("autograd/") || word.starts_with("nn/") ||
                           word.starts_with("data/") || word.starts_with("train/");
    if (in_folder && (word.ends_with(".h") || word.ends_with(".cpp"))) files.push_back(word);
  }
  return files;
}

}  // namespace

int64_t code_lines(const std::string& text) {
  int64_t count = 0;
  TextStream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t at = indent_of(line);
    count += at < line.size() && line.compare(at, 2, "//") != 0;
  }
  return count;
}

std::vector<PartOfBridge> bridge_parts(const std::string& source) {
  std::vector<PartOfBridge> parts;
  std::string title, before, step;
  bool in_step = false;
  const auto end_part = [&] {
    if (step.find("Here: ") != std::string::npos) {
      const int64_t lines = code_lines(before);  // a step has two lines around its code
      parts.push_back({title, lines > 0 ? lines : code_lines(step) - 2, files_in(step)});
    }
    before.clear();
    step.clear();
  };
  TextStream in(source);
  for (std::string line; std::getline(in, line) && line != "};";) {
    if (line.starts_with("  // ---- ")) {
      end_part();
      title = line.substr(10);
    } else if (!title.empty()) {
      in_step = in_step || line.starts_with("  void step_");
      (in_step ? step : before) += line + "\n";
      in_step = in_step && line != "  }";
    }
  }
  end_part();
  return parts;
}

std::vector<Piece> page(const Lesson& lesson, int n) {
  return Typesetter(lesson.source, lesson.run(n), n).pieces();
}

}  // namespace ink
