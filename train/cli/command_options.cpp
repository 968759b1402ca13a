#include "train/cli/command_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "autograd/base/text.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/file.h"
#include "train/cli/command_line.h"
#include "train/cli/config_file.h"
#include "train/cli/console.h"
#include "train/cli/help_text.h"
#include "train/cli/other_names.h"
#include "train/saved_run.h"

namespace ink {

// What a command takes.
struct CommandOption {
  std::vector<std::string> names = {};  // without dashes
  bool is_own = false;                  // an argument of the command itself, which has no dashes
  bool takes_any = false;               // any text, which may be the name of a file or folder
  std::string type = {};                // INT, FLOAT, TEXT, or nothing for a flag
  std::string initial = {};             // what it is by default
  bool shows_initial = false;
  std::string help = {}, group = {};
  int64_t least_values = 1, most_values = 1;
  // Takes values; throws on one that it cannot have.
  std::function<void(const std::string& label, const Arguments& values)> take = {};

  bool is_number() const { return type == "INT" || type == "FLOAT"; }
};

// An option as the command line or a config file gives it.
struct GivenOption {
  const CommandOption* option;
  std::string label;  // as errors name it
  Arguments values;
  std::string sets = {};  // of a foreign name: what the value is, where x is the one given

  bool is_derived() const { return !sets.empty() && sets != "x"; }
  // Whatever the value that was given?
  bool is_fixed() const { return is_derived() && sets.find("x ") == std::string::npos; }
};

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
  } else {
    const std::optional<double> number = plain_number(text);
    value = number.value_or(0);
    whole = number.has_value();
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

// Is this word such an option as llm.c has, "-b"? Where several values may stand, it is none.
bool is_short_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

// Bytes of the dashes in front that documents have in place of "--".
size_t other_dashes(const std::string& word) {
  size_t bytes = 0;
  for (const std::string_view dash : {"\u2014", "\u2013", "\u2012", "\u2212"})
    while (std::string_view(word).substr(bytes).starts_with(dash)) bytes += dash.size();
  return bytes;
}

// Is it meant for a flag, which does not take it?
bool is_yes_or_no(const std::string& word) {
  return word == "yes" || word == "no" || word == "on" || word == "off";
}

// Throws if this is a value of another program's, and says what to type.
void check_foreign_value(const GivenOption& one, const std::string& command) {
  if (one.values.empty()) return;
  const OtherName* row = other_name(one.option->names[0], one.values.back(), command);
  if (row != nullptr && *row->value != '\0' && row->answer == Answer::told)
    throw UsageError(fmt::format("{} is '{}': {}", one.label, printable(one.values.back(), 60),
                                 with_typed(row->text, typed(""))));
}

// A number as a word of the command line.
std::string number_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 0x1p53;
  return whole ? std::to_string(static_cast<int64_t>(value)) : fmt::format("{}", value);
}

// A config file where no option names it, as nanoGPT has it.
bool is_config_file(const std::string& word) {
  return word.ends_with(".py") || word.ends_with(".toml");
}

// Is it a text of Python with letters before it, such as f'out-{seed}'?
bool is_formatted(const std::string& text) {
  const size_t quote = text.find_first_of("'\"");
  return (quote == 1 || quote == 2) && text.find_first_not_of("bBfFrRuU") == quote;
}

// The nearest name, if it is near.
std::vector<std::string> nearest(const std::string& unknown,
                                 const std::vector<std::string>& names) {
  const auto nearer = [&](const std::string& a, const std::string& b) {
    return edit_distance(unknown, a) < edit_distance(unknown, b);
  };
  const auto found = std::min_element(names.begin(), names.end(), nearer);
  const size_t most = unknown.size() < 5 ? 1 : std::max<size_t>(2, unknown.size() / 3);
  if (unknown.size() > 100 || found == names.end() || edit_distance(unknown, *found) > most)
    return {};
  const std::string both = unknown.substr(0, 4) + found->substr(0, 4);
  if (both == "max_min_" || both == "min_max_") return {};  // the opposite
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

// The names that it ends with: "my_seed" with "seed". "save_model" is something else than "model",
// and so is "dev_data" where there is "val_data".
std::vector<std::string> ended(const std::string& unknown, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (unknown.ends_with("_" + name) && name != "model" &&
        (name != "data" || std::find(names.begin(), names.end(), "val_data") == names.end()))
      found.push_back(name);
  return found;
}

// What other programs call so, of these names. "trainer.max_iters" is "max_iters".
std::vector<std::string> named_otherwise(const std::string& unknown,
                                         const std::vector<std::string>& names) {
  const std::string bare = unknown.substr(unknown.rfind('.') + 1);
  const auto is_ours = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name.substr(0, name.find('='))) != names.end();
  };
  if (bare != unknown && is_ours(bare)) return {bare};
  std::vector<std::string> found;
  for (const OtherProgram& program : other_programs()) {
    for (const OtherName& row : program.names) {
      const bool is_name = row.answer == Answer::like || row.answer == Answer::same;
      if (!has_name(row, bare) || !is_name || !found.empty()) continue;
      TextStream ours(row.text);
      for (std::string name; ours >> name;)
        if (is_ours(name)) found.push_back(name);
    }
  }
  return found;
}

}  // namespace

std::string suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const char* prefix) {
  std::vector<std::string> found = named_otherwise(unknown, names);
  if (found.empty()) found = completed(unknown, names);
  if (found.empty()) found = nearest(unknown, names);
  if (found.empty()) found = ended(unknown, names);
  std::string small = unknown;
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (found.empty() && small != unknown) return suggestion(small, names, prefix);
  std::string text;
  for (size_t i = 0; i < found.size(); ++i)
    text += (i == 0 ? "" : i + 1 < found.size() ? ", " : " or ") + (prefix + found[i]);
  return text.empty() ? "" : fmt::format("; did you mean {}?", text);
}

struct CommandOptions::Parser {
  std::string command, description;
  std::string group = "Options";
  std::deque<CommandOption> options = {};
  std::set<const CommandOption*> given = {}, of_line = {};  // of_line: on the command line
  const CommandOption* config = nullptr;  // the option that names a file of options
  std::string config_file = {};           // empty: none
  std::set<std::string> answered = {};    // foreign names of the command line
  std::set<std::string> kept = {};        // settings that keep their defaults
  // Foreign names that were taken, with what they are here, and those that were left out, by why.
  std::vector<std::pair<std::string, std::string>> taken = {}, left_out = {};

  std::vector<std::string> names() const;
  const CommandOption* find(const std::string& name) const;
  std::string help() const;
  void take(const GivenOption& one) const;
  void take_own(const Arguments& own) const;
  std::string option_for(const std::string& word) const;
  // own: gets the words that belong to no option.
  std::vector<GivenOption> read_arguments(const Arguments& arguments, Arguments& own);
  std::vector<GivenOption> read_config_file();
  bool does_itself(const OtherName& row) const;
  bool translate(const std::string& label, const std::string& name,
                 const std::optional<std::string>& value, std::vector<GivenOption>& all);
  void calculate(GivenOption& one, const std::map<const CommandOption*, const GivenOption*>& holds);
  [[noreturn]] void fail_unknown(const std::string& label, const std::string& name,
                                 const std::optional<std::string>& value) const;
  void say_what_was_translated() const;
};

CommandOptions::CommandOptions(const std::string& command, const std::string& description)
    : parser_(new Parser{command, description}) {
  parser_->options.push_back({.names = {"help"}, .help = "print this help", .least_values = 0});
}
CommandOptions::~CommandOptions() = default;

void CommandOptions::group(const std::string& name) { parser_->group = name; }

void CommandOptions::add(const std::string& names, Value value, const std::string& help,
                         const Rules& rules) {
  const bool one_choice = rules.limits.choices.size() == 1;
  const std::string range = one_choice ? "" : range_text(rules.limits, true);
  CommandOption option{.is_own = names[0] != '-',
                       .shows_initial = rules.shows_default,
                       .help = range.empty() ? help : fmt::format("{} [{}]", help, range),
                       .group = parser_->group};
  TextStream each(names);
  for (std::string name; std::getline(each, name, ',');)
    option.names.push_back(option.is_own ? name : name.substr(2));
  std::visit(
      [&]<class T>(T* to) {
        constexpr bool is_list = std::is_same_v<T, Arguments>,
                       is_text = std::is_same_v<T, std::string>;
        option.takes_any = (is_list || is_text) && rules.limits.choices.empty();
        option.type = is_list || is_text ? "TEXT" : std::is_same_v<T, int64_t> ? "INT" : "FLOAT";
        if constexpr (!is_list) option.initial = fmt::format("{}", *to);
        if constexpr (is_list)
          option.most_values = rules.most_values > 0 ? rules.most_values : INT64_MAX;
        option.take = [=](const std::string& label, const Arguments& values) {
          if constexpr (is_list || is_text) {
            for (const std::string& text : values) {
              if (text.empty() && !rules.may_be_empty)
                throw UsageError(label + ": expected a value, got an empty one");
              try {
                check_limits(label, rules.limits, text);
              } catch (const Error& error) {
                throw UsageError(error.what() + suggestion(text, rules.limits.choices, ""));
              }
            }
            if constexpr (is_list) {
              *to = values;
            } else {
              *to = values.back();
            }
          } else {
            *to = number_of<T>(label, values.back(), rules.limits);
          }
        };
      },
      value);
  if (rules.delimiter != 0)
    option.take = [one_by_one = option.take, mark = rules.delimiter](const std::string& label,
                                                                     const Arguments& values) {
      Arguments all;
      for (const std::string& text : values) {
        TextStream pieces(text + mark);
        for (std::string piece; std::getline(pieces, piece, mark);) all.push_back(piece);
      }
      one_by_one(label, all);
    };
  parser_->options.push_back(std::move(option));
}

void CommandOptions::flag(const std::string& name, bool& value, const std::string& help) {
  parser_->options.push_back(
      {.names = {name.substr(2)},
       .initial = value ? "true" : "",  // the help shows it: a flag alone would mean off
       .shows_initial = true,
       .help = help,
       .group = parser_->group,
       .least_values = 0,
       .most_values = 0,
       .take = [&value](const std::string& label, const Arguments& values) {
         const std::string text = values.empty() ? "true" : values.back();
         const std::optional<bool> given = truth_of(text);
         if (!given)
           throw UsageError(
               fmt::format("{}: expected true or false, got '{}'", label, printable(text, 60)));
         value = *given;
       }});
}

void CommandOptions::add_fields(TrainConfig& config, const std::set<std::string>& left_out) {
  // By the first field of each.
  static const std::map<std::string, std::string> groups = {{"data", "Data"},
                                                            {"n_layer", "Model"},
                                                            {"max_iters", "Training"},
                                                            {"out_dir", "Output"},
                                                            {"device", "Machine"}};
  const std::string before = parser_->group;
  for_each_field(
      config,
      [&]<class Field>(const char* name, Field& field, const char* help, const Limits& limits) {
        if (const auto found = groups.find(name); found != groups.end()) group(found->second);
        if (left_out.count(name) > 0) return;
        const std::string option = std::string("--") + name;
        if constexpr (std::is_same_v<Field, bool>) {
          flag(option, field, help);
        } else {
          add(option, &field, help, {.shows_default = true, .limits = limits});
        }
      },
      true);
  group(before);
}

void CommandOptions::take_config_file() {
  add("--config", &parser_->config_file,
      "a file of lines NAME = VALUE, such as nanoGPT's; --config may be left out before FILE.py");
  parser_->config = parser_->find("config");
}

bool CommandOptions::given(const std::string& name) const {
  return parser_->given.count(parser_->find(name.substr(2))) > 0;
}
bool CommandOptions::is_typed(const std::string& name) const {
  return parser_->of_line.count(parser_->find(name.substr(2))) > 0;
}

std::vector<std::string> CommandOptions::Parser::names() const {
  std::vector<std::string> all;
  for (const CommandOption& option : options)
    if (!option.is_own) all.insert(all.end(), option.names.begin(), option.names.end());
  return all;
}

const CommandOption* CommandOptions::Parser::find(const std::string& name) const {
  for (const CommandOption& option : options)
    if (!option.is_own &&
        std::find(option.names.begin(), option.names.end(), name) != option.names.end())
      return &option;
  return nullptr;
}

std::string CommandOptions::Parser::help() const {
  std::string usage = typed(command) + " [options]";
  std::vector<HelpEntry> entries;
  for (const CommandOption& option : options) {
    std::string left;
    for (const std::string& name : option.names)
      left += (left.empty() ? "" : ", ") + std::string(option.is_own ? "" : "--") + name;
    if (option.type == "TEXT" && option.is_own) usage += " [" + left + "]";
    if (!option.type.empty() && !option.is_own) left += " " + option.type;
    if (option.shows_initial && !option.initial.empty()) left += "=" + option.initial;
    if (option.most_values > 1) left += " ...";
    entries.push_back({option.group, left, option.help});
  }
  entries[0].left = "-h, --help";  // the last one
  entries[0].group = group;
  std::rotate(entries.begin(), entries.begin() + 1, entries.end());
  return help_text(usage, description, entries, help_columns());
}

void CommandOptions::Parser::take(const GivenOption& one) const {
  try {
    one.option->take(one.label, one.values);
  } catch (const Error& error) {
    check_foreign_value(one, command);
    throw UsageError(error.what());
  }
  if (one.option->takes_any && !has_path(one.values.back())) check_foreign_value(one, command);
}

// The words that belong to no option are the command's own arguments, in order.
void CommandOptions::Parser::take_own(const Arguments& own) const {
  auto word = own.begin();
  for (const CommandOption& option : options) {
    if (!option.is_own) continue;
    GivenOption argument{&option, option.names[0], {}};
    while (word != own.end() && std::ssize(argument.values) < option.most_values)
      argument.values.push_back(*word++);
    if (!argument.values.empty()) take(argument);
  }
  if (word == own.end()) return;
  throw UsageError(
      fmt::format("expected an option, got '{}'{}", printable(*word, 60), option_for(*word)));
}

// What a word may have been meant for, where it belongs to no option.
std::string CommandOptions::Parser::option_for(const std::string& word) const {
  constexpr std::array settings{".yaml", ".yml", ".json", ".ini", ".cfg"};
  const std::filesystem::path path = word;
  const bool is_file = has_file(path);
  const auto is_ending = [&](const char* ending) { return path.extension() == ending; };
  if (is_file && config != nullptr && std::any_of(settings.begin(), settings.end(), is_ending))
    return "; a config file has lines NAME = VALUE, and its name ends with .py or .toml";
  if (config == nullptr && is_config_file(word))
    return fmt::format("; {} reads no config file: type its settings as options", command);
  if (find("out_dir") != nullptr && has_path(path / kLastCheckpoint))
    return "; to name this run, say --out_dir before it";
  if (find("data") != nullptr && has_path(path)) return "; to read this text, say --data before it";
  if (find("start") == nullptr) return "";
  return given.count(find("start")) > 0 ? "; a text of several words stands in quotes, as in "
                                          "--start 'One day'"
                                        : "; to continue a text, say --start before it";
}

// Does the command do by itself what this name asks for?
bool CommandOptions::Parser::does_itself(const OtherName& row) const {
  const std::string text = row.text;
  return row.answer == Answer::told &&
         (text.find("{" + command + "}") != text.npos ||
          text.find("{" + command + " --out_dir FOLDER}") != text.npos);
}

// Takes a name that other programs have, or says what to type here. False: it is not known here.
bool CommandOptions::Parser::translate(const std::string& label, const std::string& name,
                                       const std::optional<std::string>& value,
                                       std::vector<GivenOption>& all) {
  const OtherName* row = other_name(name, value.value_or(""), command);
  if (row == nullptr || row->answer == Answer::like) return false;
  const std::string text = row->text;
  const bool is_this = does_itself(*row);
  if (row->answer == Answer::told && !is_this)
    throw UsageError(fmt::format("there is no {}; {}",
                                 (config_file.empty() ? "option " : "setting ") + label,
                                 with_typed(row->text, typed(""))));
  if (config_file.empty()) answered.insert(name);
  if (is_this || row->answer == Answer::left_out) {
    left_out.emplace_back(is_this ? command + " does it by itself" : with_typed(text, typed("")),
                          label);
    return true;
  }
  if (row->answer == Answer::same) {
    const CommandOption* option = find(row->text);
    if (option == nullptr || !value) return false;
    all.push_back({option, label, {*value}, "x"});
    return true;
  }
  TextStream settings(row->text);
  for (std::string one; std::getline(settings >> std::ws, one, ',');) {
    const size_t middle = one.find(" = ");
    const CommandOption* option = find(one.substr(0, middle));
    if (option == nullptr) return false;
    all.push_back({option, label, {value.value_or("")}, one.substr(middle + 3)});
  }
  return true;
}

// Of a name that no option has, and that is not taken with this value.
void CommandOptions::Parser::fail_unknown(const std::string& label, const std::string& name,
                                          const std::optional<std::string>& value) const {
  std::string values;  // that are taken
  bool takes_any = false;
  for (const OtherProgram& program : other_programs()) {
    for (const OtherName& row : program.names) {
      if (!has_name(row, name) || !holds_for(row, command)) continue;
      const std::string text = row.text;
      const bool sets = row.answer == Answer::same || row.answer == Answer::sets;
      if (sets ? find(text.substr(0, text.find(' '))) == nullptr : row.answer != Answer::left_out)
        continue;
      takes_any = takes_any || *row.value == '\0';
      values += (values.empty() ? "" : " or ") + std::string(row.value);
    }
  }
  if (takes_any ? !value : !values.empty())
    throw UsageError(fmt::format("{}: expected {}, got {}", label, takes_any ? "a value" : values,
                                 value ? "'" + printable(*value, 60) + "'" : "none"));
  throw UsageError("there is no option " + label + suggestion(name, names(), "--"));
}

std::vector<GivenOption> CommandOptions::Parser::read_arguments(const Arguments& arguments,
                                                                Arguments& own) {
  std::vector<GivenOption> all;
  const bool takes_own = std::any_of(options.begin(), options.end(),
                                     [](const CommandOption& option) { return option.is_own; });
  const auto next = [&](size_t i) -> std::optional<std::string> {
    if (i + 1 == arguments.size() || is_option(arguments[i + 1])) return {};
    return arguments[i + 1];
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (const size_t dashes = other_dashes(word); dashes > 0 && !takes_own)
      throw UsageError(fmt::format("{}: its dash is one of documents; type --{}",
                                   printable(word, 60), printable(word.substr(dashes), 60)));
    const bool is_llmc = word == "-h" && (next(i) == "0" || next(i) == "1");
    if (word == "-h" && !is_llmc) {
      all.push_back({find("help"), word, {}});
      continue;
    }
    if (!is_option(word) || is_llmc) {
      if (word.size() == 1 || word[0] != '-') {
        const bool is_file = config != nullptr && is_config_file(word);
        is_file ? all.push_back({config, "--config", {word}}) : own.push_back(word);
      } else if (next(i) && translate(word, word, next(i), all)) {
        ++i;
      } else {
        fail_unknown(printable(word, 60), word, next(i));
      }
      continue;
    }
    const size_t end = std::min(word.find('='), word.size());
    std::string name = word.substr(2, end - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    const CommandOption* option = find(name);
    const std::string denied = option == nullptr && name.starts_with("no_") ? name.substr(3) : "";
    const CommandOption* flag = find(denied);
    const OtherName* foreign =
        flag == nullptr && other_name(name, "", command) == nullptr && !denied.empty()
            ? other_name(denied, "false", command)
            : nullptr;
    const bool is_flag = flag != nullptr && flag->most_values == 0;
    if (is_flag || (foreign != nullptr && (foreign->answer == Answer::left_out ||
                                           foreign->value == std::string("false")))) {  // --no-bias
      const std::string label = "--" + name;
      if (end < word.size())
        throw UsageError(fmt::format("{}: expected no value, got '{}'", label,
                                     printable(word.substr(end + 1), 60)));
      if (is_flag) all.push_back({flag, label, {"false"}});
      if (is_flag || translate(label, denied, "false", all)) continue;
    }
    if (option == nullptr) {
      // A flag of which nothing is taken: the word behind it may be another's.
      const OtherName* row = other_name(name, next(i).value_or(""), command);
      const bool is_idle =
          row != nullptr &&
          (does_itself(*row) || (*row->value == '\0' && row->answer == Answer::left_out));
      const bool joined = end < word.size(), apart = !joined && next(i) &&
                                                     !is_config_file(*next(i)) &&
                                                     (!is_idle || truth_of(*next(i)));
      if (!translate(printable(word.substr(0, end), 60), name,
                     joined  ? word.substr(end + 1)
                     : apart ? next(i)
                             : std::nullopt,
                     all))
        fail_unknown(printable(word.substr(0, end), 60), name,
                     joined ? word.substr(end + 1) : next(i));
      i += apart;
      continue;
    }
    all.push_back({option, "--" + name, {}});
    Arguments& values = all.back().values;
    if (end < word.size()) values.push_back(word.substr(end + 1));
    // An argument of the command itself may be 0 or 1, too, or be called yes.
    const bool is_value = next(i) && (takes_own ? truth_of(*next(i)) && next(i)->size() > 1
                                                : truth_of(*next(i)) || is_yes_or_no(*next(i)));
    if (values.empty() && option->most_values == 0 && is_value) values.push_back(arguments[++i]);
    const auto ends = [&] {  // --data input.txt config.py, --data input.txt -b 4
      return (config != nullptr && !values.empty() && !is_config_file(values[0]) &&
              is_config_file(*next(i))) ||
             (option->most_values > 1 && (is_short_option(*next(i)) || other_dashes(*next(i)) > 0));
    };
    while (std::ssize(values) < option->most_values && next(i) && !ends())
      values.push_back(arguments[++i]);
    if (std::ssize(values) < option->least_values) {
      throw UsageError(
          fmt::format("--{}: expected a value, got {}", name,
                      i + 1 < arguments.size() ? printable(arguments[i + 1], 60) : "none"));
    }
  }
  return all;
}

// A pipe can be read once, and options are parsed twice.
static std::string read_config(const std::string& file) {
  static std::map<std::string, std::string> pipes;
  if (!is_read_once(file)) return read_text(file);
  if (pipes.count(file) == 0) pipes[file] = read_text(file);
  return pipes.at(file);
}

std::vector<GivenOption> CommandOptions::Parser::read_config_file() {
  const std::string text = as_usage("--config: ", [&] { return read_config(config_file); });
  const auto fail = [&](const std::string& why) {
    throw UsageError(fmt::format("{}: {}", config_file, why));
  };
  std::vector<Setting> settings;
  const bool is_python = config_file.ends_with(".py");
  try {
    settings = parse_settings(text, is_python);
  } catch (const Error& error) {
    fail(error.what());
  }
  std::vector<GivenOption> all;
  // A name in arithmetic: what the file has said so far, or the default.
  const ValueOf value_of = [&](const std::string& name) -> std::optional<double> {
    const CommandOption* option = find(name);
    if (option == nullptr) return {};
    for (const GivenOption& one : all)
      if (one.option == option && !one.is_derived()) return plain_number(one.values[0]);
    return plain_number(option->initial);
  };
  const auto is_setting = [&](const std::string& name) {
    const OtherName* row = other_name(name, "", command);
    return find(name) != nullptr ||
           (row != nullptr && (row->answer == Answer::same || row->answer == Answer::sets));
  };
  for (const Setting& item : settings) {
    std::string name = item.name;
    std::replace(name.begin(), name.end(), '-', '_');
    const CommandOption* option = find(name);
    if (item.values.empty()) {
      if (name == "*" || is_setting(name))
        fail(fmt::format(
            "{} is imported from another file, and no other file is read; copy its lines to here",
            printable(item.name, 60)));
      continue;
    }
    if (name == "config" || name == "help") fail(name + " is not a setting of a file");
    // NAME = None, or [None], says that nothing is set: the default is taken.
    if (item.is_bare && item.values == Arguments{"None"} && is_setting(name)) {
      left_out.emplace_back("None: the default", printable(item.name, 60));
      continue;
    }
    const size_t before = all.size();
    if (option != nullptr) {
      all.push_back({option, config_file + ": " + item.name, {}});
    } else {
      bool known = answered.count(name) > 0;  // on the command line, which overrides the file
      try {
        if (!known) known = translate(printable(item.name, 60), name, item.values[0], all);
      } catch (const UsageError& error) {
        fail(error.what());
      }
      if (!known)
        fail(fmt::format("there is no setting {}{}", printable(item.name, 60),
                         suggestion(name, names())));
    }
    for (size_t i = before; i < all.size(); ++i) {
      GivenOption& one = all[i];
      if (is_formatted(item.text))
        fail(fmt::format("{}: expected a plain text, got {}", item.name, printable(item.text, 60)));
      if (is_python && item.is_bare && one.option->type == "TEXT" && !one.is_derived())
        fail(fmt::format("{}: expected a text in quotes, got {}", item.name,
                         printable(item.values[0], 60)));
      one.values = item.values;
      if (one.option->is_number() && (item.values.size() > 1 || !plain_number(item.values[0])))
        if (const auto value = calculated(item.text, value_of)) one.values = {number_text(*value)};
      if (std::ssize(one.values) > std::max<int64_t>(one.option->most_values, 1))
        fail(fmt::format("{}: expected one value, got {}", item.name, item.values.size()));
    }
  }
  return all;
}

// The value of a setting that a foreign name gives; its names are options.
void CommandOptions::Parser::calculate(
    GivenOption& one, const std::map<const CommandOption*, const GivenOption*>& holds) {
  if (holds.at(one.option) != &one) return;  // the command line overrides it
  const std::string x = one.values[0], foreign = one.label;
  if (one.is_derived() && !one.option->is_number()) one.values = {one.sets};
  if (one.is_derived() && one.option->is_number()) {
    const ValueOf value_of = [&](const std::string& name) -> std::optional<double> {
      if (name == "x") return plain_number(x);
      const auto found = holds.find(find(name));
      const bool is_given =
          found != holds.end() && !found->second->is_derived() && kept.count(name) == 0;
      return plain_number(is_given ? found->second->values.back() : find(name)->initial);
    };
    const auto value = calculated(one.sets, value_of);
    one.values = {value ? number_text(*value) : x};
    if (one.sets.starts_with("x / ") && value && *value != std::floor(*value))
      if (const auto unit = calculated(one.sets.substr(4), value_of))
        throw UsageError(fmt::format("{} (--{}): expected a multiple of {} {}, got '{}'", one.label,
                                     one.option->names[0], number_text(*unit), one.sets.substr(4),
                                     printable(x, 60)));
  }
  one.label += fmt::format(" (--{})", one.option->names[0]);
  std::string ours = "--" + one.option->names[0];
  for (const std::string& value : one.values) ours += " " + for_shell(value);
  if (taken.empty() || taken.back().first != foreign) {
    taken.emplace_back(foreign, ours);
  } else {
    taken.back().second += " " + ours;
  }
}

void CommandOptions::Parser::say_what_was_translated() const {
  std::string all;
  for (const auto& [label, ours] : taken)
    all += fmt::format("{}{} as {}", all.empty() ? "" : ", ", label, ours);
  if (!all.empty()) log_message("taken: ", all);
  std::set<std::string> said;
  for (const auto& [why, first] : left_out) {
    if (!said.insert(why).second) continue;
    std::string labels;
    for (const auto& [reason, label] : left_out)
      if (reason == why) labels += (labels.empty() ? "" : ", ") + label;
    log_message("left out: ", labels, " (", why, ")");
  }
}

void CommandOptions::keep(const std::set<std::string>& names) { parser_->kept = names; }

bool CommandOptions::parse(const Arguments& arguments, bool first) {
  Parser& parser = *parser_;
  parser.taken.clear();
  parser.left_out.clear();
  parser.answered.clear();
  parser.config_file.clear();
  std::set<std::string> names;
  for (const CommandOption& option : parser.options)
    for (const std::string& name : option.names)
      INK_CHECK(option.is_own || names.insert(name).second, "two options are called --", name,
                "; give the setting of your model another name");
  Arguments own;
  std::vector<GivenOption> of_line = parser.read_arguments(arguments, own), of_file;
  const auto check_once = [](const std::vector<GivenOption>& place) {
    std::map<const CommandOption*, std::string> seen;
    for (const GivenOption& one : place) {
      if (one.is_fixed()) continue;
      const auto [before, is_first] = seen.emplace(one.option, one.label);
      if (!is_first)
        throw UsageError(
            one.label + " is given twice" +
            (one.label == before->second ? "" : ": " + before->second + " is the same"));
    }
  };
  for (const GivenOption& one : of_line) {
    if (one.option == parser.find("help")) {
      std::cout << parser.help();
      return false;
    }
    if (one.option == parser.config) parser.config_file = one.values[0];
  }
  check_once(of_line);
  if (!parser.config_file.empty()) check_once(of_file = parser.read_config_file());
  for (std::vector<GivenOption>* place : {&of_line, &of_file})
    std::erase_if(*place, [&](const GivenOption& one) {
      return first && one.is_derived() && one.option->is_number();
    });
  // The command line overrides the file; in each, what a foreign name sets overrides the rest.
  std::map<const CommandOption*, const GivenOption*> holds;
  for (const std::vector<GivenOption>* place : {&of_file, &of_line})
    for (const bool derived : {false, true})
      for (const GivenOption& one : *place)
        if (one.is_derived() == derived) holds[one.option] = &one;
  for (std::vector<GivenOption>* place : {&of_line, &of_file})
    for (GivenOption& one : *place)
      if (!one.sets.empty()) parser.calculate(one, holds);
  // nanoGPT's --dataset NAME is the folder data/NAME.
  const auto dataset = holds.find(parser.find("dataset"));
  GivenOption folder{parser.find("data"), "", {}};
  if (dataset != holds.end() && holds.count(folder.option) == 0) {
    folder.label = dataset->second->label;
    folder.values = {"data/" + dataset->second->values.back()};
    if (has_folder(folder.values[0])) {
      parser.taken.emplace_back(folder.label, "--data " + for_shell(folder.values[0]));
      holds[folder.option] = &folder;
    }
  }
  parser.given.clear();
  parser.of_line.clear();
  for (std::vector<GivenOption>* place : {&of_line, &of_file})
    for (const GivenOption& one : *place) {
      if (holds[one.option] == &one) parser.take(one);
      parser.given.insert(one.option);
      if (place == &of_line) parser.of_line.insert(one.option);
    }
  if (holds[folder.option] == &folder) parser.take(folder);
  parser.take_own(own);
  const GivenOption* threads = holds[parser.find("threads")];  // null: such an option is not given
  use_threads(threads == nullptr ? 0 : std::stoll(threads->values.back()));
  if (!first) parser.say_what_was_translated();
  return true;
}

}  // namespace ink
