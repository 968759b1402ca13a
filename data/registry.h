// Registry: what a run can name, such as its model: what the library has, and what a program adds.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/check.h"

namespace ink {

/// By name, what makes a thing: a function, or several. Add before there are threads.
template <class Make>
class Registry {
 public:
  /// what: "model", in errors and in the name of the function that adds.
  Registry(std::string what, std::map<std::string, Make> own)
      : what_(std::move(what)), table_(std::move(own)) {}

  /// Throws if there is one of that name, or if a command line or a file could not hold the name.
  void add(const std::string& name, Make make) {
    INK_CHECK(!name.empty(), "add_", what_, ": expected a name, got none");
    const bool breaks = name[0] == '-' || std::any_of(name.begin(), name.end(), [](char c) {
                          return c == 127 || (c >= 0 && c <= ' ');
                        });
    INK_CHECK(!breaks, "add_", what_, ": expected a name for a command line, without spaces and a ",
              "- in front, got \"", name, "\"");
    const bool added = table_.emplace(name, std::move(make)).second;
    INK_CHECK(added, "add_", what_, ": the name ", name, " is taken; choose another");
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : table_) names.push_back(entry.first);
    return names;
  }
  /// Null if there is none of that name.
  const Make* find(const std::string& name) const {
    const auto found = table_.find(name);
    return found == table_.end() ? nullptr : &found->second;
  }

 private:
  std::string what_;
  std::map<std::string, Make> table_;
};

}  // namespace ink
