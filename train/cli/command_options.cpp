#include "train/cli/command_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <system_error>
#include <type_traits>
#include <utility>

#include "autograd/io/foreign.h"
#include "data/file.h"
#include "train/cli/command_line.h"
#include "train/cli/config_file.h"

namespace ink {
namespace {

// Insertions, deletions and replacements that lead from a to b (Levenshtein 1966).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

// A number as people write it. Throws if the text is not a number or the type cannot hold it.
template <class T>
T number_of(const std::string& label, const std::string& text, const Limits& limits) {
  T value{};
  bool whole = false;
  if constexpr (std::is_same_v<T, int64_t>) {
    const char* end = text.data() + text.size();
    const auto [stopped, problem] = std::from_chars(text.data(), end, value);
    whole = problem == std::errc() && stopped == end;
  } else if (text.find_first_not_of("0123456789+-.eE") == std::string::npos && !text.empty()) {
    char* stopped = nullptr;  // libc++ 14 has no from_chars for double
    errno = 0;
    value = std::strtod(text.c_str(), &stopped);
    whole = *stopped == '\0' && errno == 0;
  }
  const std::string range = range_text(limits);
  if (!whole || !std::isfinite(static_cast<double>(value))) {
    throw UsageError(fmt::format("{}: expected {}{}, got '{}'", label,
                                 std::is_same_v<T, int64_t> ? "an integer" : "a number",
                                 range.empty() ? "" : ", " + range, printable(text, 60)));
  }
  check_limits(label, limits, value);
  return value;
}

// Is this word an option, and not a value such as -5?
bool is_option(const std::string& word) {
  return word == "-h" || (word.size() > 2 && word.compare(0, 2, "--") == 0);
}

// An option as the command line or a config file gives it.
struct Given {
  CLI::Option* option;
  std::string label;  // as errors name it
  std::vector<std::string> values;
};

// The nearest name, if it is near.
std::vector<std::string> nearest(const std::string& unknown,
                                 const std::vector<std::string>& names) {
  const auto nearer = [&](const std::string& a, const std::string& b) {
    return edit_distance(unknown, a) < edit_distance(unknown, b);
  };
  const auto found = std::min_element(names.begin(), names.end(), nearer);
  if (unknown.size() > 100 || found == names.end() ||
      edit_distance(unknown, *found) > std::max<size_t>(2, unknown.size() / 3))
    return {};
  return {*found};
}

// The names that begin like this.
std::vector<std::string> completed(const std::string& unknown,
                                   const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;  // more are no suggestion
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (!unknown.empty() && name.rfind(unknown, 0) == 0) found.push_back(name);
  return found.size() > kMost ? std::vector<std::string>() : found;
}

// What other programs call so, of these names.
std::vector<std::string> named_otherwise(const std::string& unknown,
                                         const std::vector<std::string>& names) {
  std::vector<std::string> found;
  const auto other = other_names().find(unknown);
  if (other == other_names().end()) return found;
  for (const std::string& ours : other->second)
    if (std::find(names.begin(), names.end(), ours.substr(0, ours.find('='))) != names.end())
      found.push_back(ours);
  return found;
}

}  // namespace

std::string suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const char* prefix) {
  std::vector<std::string> found = named_otherwise(unknown, names);
  if (found.empty()) found = completed(unknown, names);
  if (found.empty()) found = nearest(unknown, names);
  std::string text;
  for (size_t i = 0; i < found.size(); ++i)
    text += (i == 0 ? "" : i + 1 < found.size() ? ", " : " or ") + (prefix + found[i]);
  return text.empty() ? "" : fmt::format("; did you mean {}?", text);
}

// CLI11 writes the help and finds names. Values are taken here, because CLI11 takes an empty one for
// none, and brackets for a list.
struct CommandOptions::Parser {
  CLI::App app;
  // Takes an option's values, or, unless `keep`, only checks them; throws on one that it cannot
  // have.
  using Take = std::function<void(const std::string& label, const std::vector<std::string>& values,
                                  bool keep)>;
  std::map<const CLI::Option*, Take> takers = {};
  std::set<const CLI::Option*> given = {};
  std::string config_file = {};  // of options; empty: none

  std::vector<std::string> names();
  CLI::Option* find(const std::string& name);
  void take(const Given& one, bool keep) const;
  void take_own(const Arguments& own);
  // own: gets the words that belong to no option.
  std::vector<Given> read_arguments(const Arguments& arguments, Arguments& own);
  std::vector<Given> read_config_file();
};

CommandOptions::CommandOptions(const std::string& command, const std::string& description)
    : parser_(new Parser{CLI::App(description, typed(command))}) {
  parser_->app.set_help_flag("-h,--help", "print this help");
}
CommandOptions::~CommandOptions() = default;

void CommandOptions::add(const std::string& names, Value value, const std::string& help,
                         const Rules& rules) {
  const std::string range = range_text(rules.limits);
  const std::string line = range.empty() ? help : fmt::format("{} [{}]", help, range);
  const auto add_one = [&]<class T>(T* to) -> CLI::Option* {
    constexpr bool is_list = std::is_same_v<T, std::vector<std::string>>;
    CLI::Option* option = parser_->app.add_option(names, *to, line);
    if constexpr (!is_list)
      if (rules.shows_default) option->default_str(fmt::format("{}", *to));
    parser_->takers[option] = [=](const std::string& label, const std::vector<std::string>& values,
                                  bool keep) {
      if constexpr (is_list || std::is_same_v<T, std::string>) {
        for (const std::string& text : values) {
          if (text.empty() && !rules.may_be_empty)
            throw UsageError(label + ": expected a value, got an empty one");
          check_limits(label, rules.limits, text);
        }
        if (!keep) return;
        if constexpr (is_list) {
          *to = values;
        } else {
          *to = values.back();
        }
      } else {
        const T number = number_of<T>(label, values.back(), rules.limits);
        if (keep) *to = number;
      }
    };
    return option;
  };
  CLI::Option* option = std::visit(add_one, value);
  if (rules.most_values > 0) option->expected(1, rules.most_values);
  if (rules.delimiter != 0)
    parser_->takers[option] = [one_by_one = parser_->takers[option], rules](
                                  const std::string& label, const std::vector<std::string>& values,
                                  bool keep) {
      std::vector<std::string> all;
      for (const std::string& text : values)
        for (const std::string& piece : CLI::detail::split(text, rules.delimiter))
          all.push_back(piece);
      one_by_one(label, all, keep);
    };
}

void CommandOptions::flag(const std::string& name, bool& value, const std::string& help) {
  parser_->takers[parser_->app.add_flag(name, value, help)] =
      [&value](const std::string& label, const std::vector<std::string>& values, bool keep) {
        const std::string text = values.empty() ? "true" : values.back();
        if (text != "true" && text != "false")
          throw UsageError(
              fmt::format("{}: expected true or false, got '{}'", label, printable(text, 60)));
        if (keep) value = text == "true";
      };
}

void CommandOptions::add_fields(TrainConfig& config, const std::set<std::string>& left_out) {
  for_each_field(config, [&]<class Field>(const char* name, Field& field, const char* help,
                                          const Limits& limits) {
    if (left_out.count(name) > 0) return;
    const std::string option = std::string("--") + name;
    if constexpr (std::is_same_v<Field, bool>) {
      flag(option, field, help);
    } else {
      add(option, &field, help, {.shows_default = true, .limits = limits});
    }
  });
}

void CommandOptions::take_config_file() {
  add("--config", &parser_->config_file,
      "a file of lines NAME = VALUE, where NAME is an option of this list without its dashes; the "
      "command line overrides the file");
}

bool CommandOptions::given(const std::string& name) const {
  return parser_->given.count(parser_->find(name.substr(2))) > 0;
}

std::vector<std::string> CommandOptions::Parser::names() {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

CLI::Option* CommandOptions::Parser::find(const std::string& name) {
  for (CLI::Option* option : app.get_options())
    if (option->check_lname(name)) return option;
  return nullptr;
}

void CommandOptions::Parser::take(const Given& one, bool keep) const {
  try {
    takers.at(one.option)(one.label, one.values, keep);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

// The words that belong to no option are the command's own arguments, in order.
void CommandOptions::Parser::take_own(const Arguments& own) {
  auto word = own.begin();
  for (CLI::Option* option : app.get_options()) {
    Given own_argument{option, option->get_name(), {}};
    std::vector<std::string>& values = own_argument.values;
    while (option->get_positional() && word != own.end() &&
           std::ssize(values) < option->get_items_expected_max())
      values.push_back(*word++);
    if (!values.empty()) take(own_argument, true);
  }
  if (word != own.end())
    throw UsageError(fmt::format("expected an option, got '{}'", printable(*word, 60)));
}

std::vector<Given> CommandOptions::Parser::read_arguments(const Arguments& arguments,
                                                          Arguments& own) {
  std::vector<Given> all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "-h") {
      all.push_back({find("help"), word, {}});
      continue;
    }
    if (!is_option(word)) {
      if (word.size() > 1 && word[0] == '-')  // one of CLI11's short options
        throw UsageError("there is no option " + printable(word, 60));
      own.push_back(word);
      continue;
    }
    const size_t end = std::min(word.find('='), word.size());
    std::string name = word.substr(2, end - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    CLI::Option* option = find(name);
    if (option == nullptr)
      throw UsageError(fmt::format("there is no option {}{}", printable(word.substr(0, end), 60),
                                   suggestion(name, names(), "--")));
    all.push_back({option, "--" + name, {}});
    std::vector<std::string>& values = all.back().values;
    if (end < word.size()) values.push_back(word.substr(end + 1));
    while (std::ssize(values) < option->get_items_expected_max() && i + 1 < arguments.size() &&
           !is_option(arguments[i + 1]))
      values.push_back(arguments[++i]);
    if (std::ssize(values) < option->get_items_expected_min()) {
      throw UsageError(
          fmt::format("--{}: expected a value, got {}", name,
                      i + 1 < arguments.size() ? printable(arguments[i + 1], 60) : "none"));
    }
  }
  return all;
}

std::vector<Given> CommandOptions::Parser::read_config_file() {
  std::string text;
  try {
    text = read_text(config_file);
  } catch (const Error& error) {
    throw UsageError(std::string("--config: ") + error.what());
  }
  const auto fail = [&](const std::string& why) {
    throw UsageError(fmt::format("{}: {}", config_file, why));
  };
  std::vector<Setting> settings;
  try {
    settings = parse_settings(text);
  } catch (const Error& error) {
    fail(error.what());
  }
  std::vector<Given> all;
  for (const Setting& item : settings) {
    std::string name = item.name;
    std::replace(name.begin(), name.end(), '-', '_');
    CLI::Option* option = find(name);
    if (name == "config" || name == "help") fail(name + " is not a setting of a file");
    if (option == nullptr)
      fail(fmt::format("there is no setting {}{}", printable(item.name, 60),
                       suggestion(name, names())));
    all.push_back({option, config_file + ": " + item.name, item.values});
    if (std::ssize(item.values) > std::max(option->get_items_expected_max(), 1))
      fail(fmt::format("{}: expected one value, got {}", item.name, item.values.size()));
  }
  return all;
}

bool CommandOptions::parse(const Arguments& arguments) {
  Arguments own;
  std::set<const CLI::Option*> seen;
  const auto once = [&](const Given& one) {
    if (!seen.insert(one.option).second) throw UsageError(one.label + " is given twice");
  };
  const std::vector<Given> on_command_line = parser_->read_arguments(arguments, own);
  for (const Given& one : on_command_line) {
    if (one.option->get_lnames().front() == "help") {
      std::cout << parser_->app.help();
      return false;
    }
  }
  for (const Given& one : on_command_line) {
    once(one);
    parser_->take(one, true);
  }
  parser_->take_own(own);
  parser_->given.swap(seen);
  if (parser_->config_file.empty()) return true;
  for (const Given& one : parser_->read_config_file()) {
    once(one);
    parser_->take(one, parser_->given.count(one.option) == 0);
  }
  parser_->given.merge(seen);
  return true;
}

}  // namespace ink
