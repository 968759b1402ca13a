#include "train/lessons/exercises/checks/texts.h"

#include <vector>

#include "autograd/base/text.h"

namespace ink {
namespace {

const std::string kBegin = "// >>> ", kEnd = "// <<<";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  TextStream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string title_of(const std::string& source) {
  return source.substr(3, source.find('\n') - 3);  // without "// "
}

std::string with_holes(const std::string& source) {
  std::string result;
  bool inside = false;
  for (const std::string& line : lines_of(source)) {
    const size_t begin = line.find(kBegin);
    if (begin != std::string::npos) {
      inside = true;
      const std::string indent = line.substr(0, begin);
      result += indent + "// Your part.\n" + indent + line.substr(begin + kBegin.size()) + "\n";
    } else if (line.find(kEnd) != std::string::npos) {
      inside = false;
    } else if (!inside) {
      result += line + "\n";
    }
  }
  return result;
}

std::string solution_of(const std::string& source) {
  std::string result;
  bool started = false;
  for (const std::string& line : lines_of(source)) {
    if (line.starts_with("INK_EXERCISE")) break;
    if (line.find(kBegin) == std::string::npos && line.find(kEnd) == std::string::npos && started)
      result += line + "\n";
    if (line.starts_with("using namespace")) started = true;
  }
  const size_t first = result.find_first_not_of('\n'), last = result.find_last_not_of('\n');
  return result.substr(first, last + 1 - first) + "\n";
}

size_t plain_shared_array(const std::string& text) {
  const std::string word = "__shared__";
  const std::vector<std::string> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string code = lines[i].substr(0, lines[i].find("//"));
    const size_t at = code.find(word);
    if (at == std::string::npos) continue;
    const size_t type = code.find_first_not_of(' ', at + word.size());
    if (type != std::string::npos && code.compare(type, 6, "shared") != 0) return i + 1;
  }
  return 0;
}

std::string in_lines(const std::string& text, const std::string& indent) {
  std::string result, line = indent;
  TextStream words(text);
  for (std::string word; words >> word;) {
    if (line.size() > indent.size() && line.size() + 1 + word.size() > 80) {
      result += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + word;
  }
  return result + line + "\n";
}

size_t line_of(const std::string& text, const std::string& first) {
  const std::vector<std::string> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t indent = lines[i].find_first_not_of(' ');
    if (indent != std::string::npos && lines[i].substr(indent).starts_with(first)) return i + 1;
  }
  return 0;
}

std::string definition_in(const std::string& text, const std::string& first) {
  const size_t number = line_of(text, first);
  if (number == 0) return "";
  const std::vector<std::string> lines = lines_of(text);
  const size_t begin = number - 1;
  const std::string indent(lines[begin].find_first_not_of(' '), ' '), end = indent + "}";
  size_t comment = begin;
  while (comment > 0 && lines[comment - 1].starts_with(indent + "//")) --comment;
  std::string result;
  for (size_t i = comment; i < lines.size(); ++i) {
    result += lines[i] + "\n";
    if (i >= begin &&
        (lines[i] == end || lines[i] == end + ";" || (i == begin && lines[i].back() == '}')))
      return result;
  }
  return "";
}

}  // namespace ink
