#include "train/cli/help_text.h"

#include <algorithm>

#include "train/cli/console.h"

namespace ink {

std::string help_text(const std::string& usage, const std::string& description,
                      const std::vector<HelpEntry>& entries, size_t columns) {
  // On a narrow terminal, the text of an option is below its name.
  const size_t indent = columns >= 70 ? 28 : 6;
  std::string all =
      filled(description, columns, 0) + "\n" + filled("Usage: " + usage, columns, 7) + "\n";
  std::vector<std::string> groups;
  for (const HelpEntry& entry : entries)
    if (std::find(groups.begin(), groups.end(), entry.group) == groups.end())
      groups.push_back(entry.group);
  for (const std::string& group : groups) {
    all += "\n" + group + ":\n";
    for (const HelpEntry& entry : entries) {
      if (entry.group != group) continue;
      std::string line = "  " + entry.left;
      if (line.size() >= indent) {
        all += line + "\n";
        line = "";
      }
      line.resize(indent, ' ');
      all += filled(line + entry.text, columns, indent) + "\n";
    }
  }
  return all;
}

}  // namespace ink
