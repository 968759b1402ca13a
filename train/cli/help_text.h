// How a command's help is laid out: options by group, in lines of the terminal's width.
#pragma once

#include <string>
#include <vector>

namespace ink {

/// An option as help shows it.
struct HelpEntry {
  std::string group;  // "Training"
  std::string left;   // "--max_iters INT=5000"
  std::string text;
};

/// The entries of each group under its name. Groups come in the order of their first entries.
std::string help_text(const std::string& usage, const std::string& description,
                      const std::vector<HelpEntry>& entries, size_t columns);

}  // namespace ink
