#include "train/cli/command_line.h"

#include <fmt/format.h>
#include <omp.h>

#include <fcntl.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <latch>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>

#include "autograd/base/log.h"
#include "autograd/gemm/gemm.h"
#include "autograd/inspect/machine.h"
#include "autograd/io/foreign.h"

namespace ink {
namespace {

struct Command {
  int (*run)(const Arguments&);
  const char* help;
};

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> table = {
      {"train", {train_command, "train a GPT on the built-in stories or on your text"}},
      {"sample", {sample_command, "let a trained model write"}},
      {"eval", {eval_command, "measure a trained model's loss on the whole validation set"}},
      {"bench", {bench_command, "measure a training step: time, memory, and where they go"}},
      {"gradcheck", {gradcheck_command, "check the gradients of every op and layer numerically"}},
      {"info", {info_command, "show this build, or what a checkpoint holds"}},
      {"walkthrough",
       {walkthrough_command, "lessons on attention, step by step, with PyTorch's digits"}},
#ifndef INKLING_NO_SEEDHUNT
      {"seedhunt", {seedhunt_command, "find a PyTorch program's seed from numbers it printed"}},
#endif
  };
  return table;
}

void print_help(std::ostream& out) {
  out << fmt::format(
      "inkling: trains GPTs, from scratch\n\nusage: {}     (COMMAND --help shows them)\n\n",
      typed("COMMAND [options]"));
  for (const auto& [name, command] : commands())
    out << fmt::format("  {:<12} {}\n", name, command.help);
}

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

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// Arguments with '-' as '_' within option names; throws on names that the command does not have.
Arguments normalised(const CLI::App& app, const Arguments& arguments) {
  const std::vector<std::string> names = option_names(app);
  Arguments result;
  std::set<const CLI::Option*> seen;
  for (const std::string& argument : arguments) {
    if (argument.rfind("--", 0) != 0 || argument.size() == 2) {
      result.push_back(argument);
      continue;
    }
    const size_t end = std::min(argument.find('='), argument.size());
    std::string name = argument.substr(2, end - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    const CLI::Option* option = app.get_option_no_throw("--" + name);
    if (option == nullptr) {
      throw UsageError(fmt::format("there is no option {}{}", argument.substr(0, end),
                                   suggestion(name, names, "--")));
    }
    if (!seen.insert(option).second) throw UsageError("--" + name + " is given twice");
    const std::string value = end < argument.size() ? argument.substr(end + 1) : "true";
    if (option->get_expected_max() == 0 && value != "true" && value != "false")
      throw UsageError(fmt::format("--{}: expected true or false, got '{}'", name, value));
    result.push_back("--" + name + argument.substr(end));
  }
  return result;
}

// CLI11 takes a config file's unknown names for its own error; ours names the nearest.
void check_config_file(const CLI::App& app, const Arguments& arguments) {
  if (app.get_config_ptr() == nullptr) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string file;
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
    if (arguments[i].rfind("--config=", 0) == 0) file = arguments[i].substr(9);
    if (file.empty()) continue;
    const std::vector<std::string> names = option_names(app);
    for (const CLI::ConfigItem& item : app.get_config_formatter()->from_file(file)) {
      if (std::find(names.begin(), names.end(), item.name) != names.end()) continue;
      throw UsageError(fmt::format("{}: there is no setting {}{}", file, item.name,
                                   suggestion(item.name, names)));
    }
  }
}

std::string program_name = "inkling";

}  // namespace

std::string for_shell(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 ||
           std::string_view("_./+-=:,@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string typed(const std::string& command) { return for_shell(program_name) + " " + command; }

std::string suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const char* prefix) {
  const auto nearer = [&](const std::string& a, const std::string& b) {
    return edit_distance(unknown, a) < edit_distance(unknown, b);
  };
  const auto nearest = std::min_element(names.begin(), names.end(), nearer);
  if (nearest == names.end() ||
      edit_distance(unknown, *nearest) > std::max<size_t>(2, unknown.size() / 3))
    return "";
  return fmt::format("; did you mean {}{}?", prefix, *nearest);
}

Device parsed_device(const std::string& name) {
  try {
    return parse_device(name);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

struct CommandOptions::Parser {
  CLI::App app;
};

CommandOptions::CommandOptions(const std::string& command, const std::string& description)
    : parser_(new Parser{CLI::App(description, typed(command))}) {}
CommandOptions::~CommandOptions() = default;

namespace {

// A number as people write it; throws on what is none, or more than the type holds.
template <class T>
T number_of(const std::string& name, const std::string& text, const Limits& limits) {
  T value{};
  bool whole = false;
  if constexpr (std::is_same_v<T, int64_t>) {
    const char* end = text.data() + text.size();
    const auto [stopped, problem] = std::from_chars(text.data(), end, value);
    whole = problem == std::errc() && stopped == end;
  } else if (text.find_first_not_of("0123456789+-.eE") == std::string::npos && !text.empty()) {
    char* stopped = nullptr;  // libc++ 14 has no from_chars for double
    value = std::strtod(text.c_str(), &stopped);
    whole = *stopped == '\0';
  }
  const std::string range = range_text(limits);
  if (!whole || !std::isfinite(static_cast<double>(value))) {
    throw UsageError(fmt::format("--{}: expected {}{}, got '{}'", name,
                                 std::is_same_v<T, int64_t> ? "an integer" : "a number",
                                 range.empty() ? "" : ", " + range, printable(text, 60)));
  }
  try {
    check_limits("--" + name, limits, value);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return value;
}

}  // namespace

void CommandOptions::add(const std::string& names, Value value, const std::string& help,
                         const Rules& rules) {
  const std::string range = range_text(rules.limits);
  const std::string line = range.empty() ? help : fmt::format("{} [{}]", help, range);
  const auto add_one = [&]<class T>(T* to) -> CLI::Option* {
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
      const std::string name = names.substr(2);
      const auto take = [=, limits = rules.limits](const CLI::results_t& words) {
        *to = number_of<T>(name, words.back(), limits);
        return true;
      };
      CLI::Option* option = parser_->app.add_option(names, take, line);
      option->type_name(std::is_same_v<T, int64_t> ? "INT" : "FLOAT");
      if (rules.shows_default) option->default_str(fmt::format("{}", *to));
      return option;
    } else {
      CLI::Option* option = parser_->app.add_option(names, *to, line);
      if (rules.shows_default) option->capture_default_str();
      return option;
    }
  };
  CLI::Option* option = std::visit(add_one, value);
  if (rules.most_values > 0) option->expected(1, rules.most_values);
  if (rules.delimiter != 0) option->delimiter(rules.delimiter);
}

void CommandOptions::flag(const std::string& name, bool& value, const std::string& help) {
  parser_->app.add_flag(name, value, help);
}

void CommandOptions::add_fields(TrainConfig& config, const std::set<std::string>& left_out) {
  for_each_field(config, [&]<class Field>(const char* name, Field& field, const char* help,
                                          const Limits& limits) {
    if (left_out.count(name) > 0) return;
    const std::string option = std::string("--") + name;
    if constexpr (std::is_same_v<Field, bool>) {
      flag(option + "{true}", field, help);
    } else {
      add(option, &field, help, {.shows_default = true, .limits = limits});
    }
  });
}

void CommandOptions::take_config_file(const std::string& help) {
  parser_->app.set_config("--config", "", help);
}

bool CommandOptions::given(const std::string& name) const { return parser_->app.count(name) > 0; }

bool CommandOptions::parse(const Arguments& given) {
  CLI::App& app = parser_->app;
  try {
    const Arguments arguments = normalised(app, given);
    check_config_file(app, arguments);
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));
    return true;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    throw UsageError(text);
  }
}

namespace {

// OpenMP ends the program where the system refuses a thread; this asks first.
void check_threads(int64_t threads) {
  static int64_t allowed = 1;
  if (threads <= allowed) return;
  std::vector<std::thread> made;
  std::latch done(1);
  try {
    while (std::ssize(made) + 1 < threads) made.emplace_back([&] { done.wait(); });
  } catch (const std::system_error&) {
  }
  const int64_t most = std::ssize(made) + 1;
  done.count_down();
  for (std::thread& thread : made) thread.join();
  INK_CHECK(most >= threads, "threads: the system allows ", most, " of ", threads,
            "; choose fewer --threads, or raise the limit (ulimit -u, ulimit -v)");
  allowed = threads;
}

}  // namespace

void use_threads(int64_t threads) {
  if (threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) threads = physical_cores();
  check_threads(threads > 0 ? threads : omp_get_max_threads());
  if (threads > 0) omp_set_num_threads(static_cast<int>(threads));
  take_gemm_memory(omp_get_max_threads());
}

namespace {

// A file that a program opens must not become its standard output.
void open_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) std::abort();
}

// What went wrong, for people.
std::string explained(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "out of memory; choose smaller sizes, or fewer --threads";
  if (const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return of_file->path1().string() + ": " + of_file->code().message();
  return error.what();
}

// The exit code of a command whose output may have been lost. Nobody need be told who closed it.
int with_output_written(int code) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.good()) return code;
  if (errno != EPIPE)
    std::cerr << "inkling: standard output: cannot write"
              << (errno != 0 ? std::string(": ") + std::strerror(errno) : "") << "\n";
  return code == kOk ? kFailed : code;
}

}  // namespace

int run_command_line(int argc, char** argv) {
  open_standard_descriptors();
  set_log_callback(
      [](const std::string& message) { std::cerr << "inkling: " << printable(message) << "\n"; });
  if (argc > 0) program_name = argv[0];
  const std::string name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "help" || name == "--help" || name == "-h") {
    print_help(name.empty() ? std::cerr : std::cout);
    return name.empty() ? kUsage : with_output_written(kOk);
  }
  try {
    const auto found = commands().find(name);
    if (found == commands().end()) {
      std::vector<std::string> names;
      for (const auto& [known, command] : commands()) names.push_back(known);
      std::cerr << printable(fmt::format("inkling: there is no command {}{}\nTry: {}\n", name,
                                         suggestion(name, names), typed("--help")));
      return kUsage;
    }
    use_threads(0);
    return with_output_written(found->second.run(Arguments(argv + 2, argv + argc)));
  } catch (const UsageError& error) {
    std::cerr << printable(
        fmt::format("inkling {}: {}\nTry: {}\n", name, error.what(), typed(name + " --help")));
    return kUsage;
  } catch (const std::exception& error) {
    std::cerr << printable(fmt::format("inkling {}: {}\n", name, explained(error)));
    return kFailed;
  }
}

}  // namespace ink
