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

bool begins(const std::string& line, const std::string& prefix) {
  return line.compare(0, prefix.size(), prefix) == 0;
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
    if (begins(line, "INK_EXERCISE")) break;
    if (line.find(kBegin) == std::string::npos && line.find(kEnd) == std::string::npos && started)
      result += line + "\n";
    if (begins(line, "using namespace")) started = true;
  }
  const size_t first = result.find_first_not_of('\n'), last = result.find_last_not_of('\n');
  return result.substr(first, last + 1 - first) + "\n";
}

std::string definition_in(const std::string& text, const std::string& first) {
  const std::vector<std::string> lines = lines_of(text);
  for (size_t begin = 0; begin < lines.size(); ++begin) {
    const size_t indent = lines[begin].find_first_not_of(' ');
    if (indent == std::string::npos || !begins(lines[begin].substr(indent), first)) continue;
    size_t comment = begin;
    while (comment > 0 && begins(lines[comment - 1], std::string(indent, ' ') + "//")) --comment;
    std::string result;
    for (size_t i = comment; i < lines.size(); ++i) {
      result += lines[i] + "\n";
      const std::string end = std::string(indent, ' ') + "}";
      if (i >= begin &&
          (lines[i] == end || lines[i] == end + ";" || (i == begin && lines[i].back() == '}')))
        return result;
    }
  }
  return "";
}

}  // namespace ink
