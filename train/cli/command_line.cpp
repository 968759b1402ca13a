#include "train/cli/command_line.h"

#include <fmt/format.h>
#include <omp.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <latch>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "autograd/base/parallel.h"
#include "autograd/base/text.h"
#include "autograd/gemm/gemm.h"
#include "autograd/inspect/machine.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/log.h"
#include "data/data_files.h"
#include "data/file.h"
#include "train/cli/console.h"
#include "train/cli/other_names.h"
#include "train/cli/signals.h"
#include "train/parallel/processes.h"
#include "train/saved_run.h"

namespace ink {
namespace {

struct Command {
  const char* help;
  int (*run)(const Arguments&) = nullptr;  // null: not needed to train
};

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> table = {
      {"train", {"train a GPT on the built-in stories or on your text", train_command}},
      {"sample", {"let a trained model write", sample_command}},
      {"eval", {"measure a trained model's loss on the whole validation set", eval_command}},
      {"bench", {"measure a training step: time, memory, and where they go"}},
      {"report", {"draw a run's loss curve, or write its metrics as a table", report_command}},
      {"look", {"write a page that shows one forward pass, step by step"}},
      {"draw", {"show the ops of a training step, or of one op, as text or SVG"}},
      {"gradcheck", {"check the gradients of every op and layer numerically"}},
      {"info", {"show this build, or what a checkpoint holds", info_command}},
      {"lesson", {"learn step by step, from a tape of scalars to a GPT"}},
      {"walkthrough", {"lessons on attention, step by step, with PyTorch's digits"}},
      {"tokenizer", {"learn a vocabulary from texts; texts to ids and back"}},
      {"prepare", {"texts of any size as token ids, to train on"}},
      {"suggest", {"find sizes to train on a text, for this machine and a time"}},
      {"exercise", {"learn by doing: functions to write, with checks"}},
#ifndef INKLING_NO_SEEDHUNT
      {"seedhunt", {"find a PyTorch program's seed from numbers it printed"}},
#endif
  };
  return table;
}

// The file of this program. It is not /proc/self/exe where a loader was asked to run it (ld.so
// inkling ...).
std::filesystem::path program_file() {
  const auto here = reinterpret_cast<uintptr_t>(&program_file);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {  // "begin-end r-xp 0 08:01 42    /the/file"
    TextStream range(line);
    uintptr_t begin = 0, end = 0;
    range >> std::hex >> begin;
    range.ignore(1);
    range >> end;
    if (begin <= here && here < end && line.find('/') != std::string::npos)
      return line.substr(line.find('/'));
  }
  return std::filesystem::read_symlink("/proc/self/exe");
}

// Goes on as the program inkling-tools, with the name by which this one was called; or through the
// loader that was asked to run this one.
int become_tools(int argc, char** argv) {
  const std::filesystem::path program = program_file();
  std::filesystem::path tools = std::filesystem::path(program).replace_filename("inkling-tools");
  // The link's text: qemu-user answers it as for a program without qemu, but its file is qemu.
  const std::filesystem::path executed = std::filesystem::read_symlink("/proc/self/exe");
  std::error_code error;
  if (program == executed || std::filesystem::equivalent(program, executed, error)) {
    ::execv(tools.c_str(), argv);
  } else {
    std::ifstream file("/proc/self/cmdline");
    std::vector<std::string> words;  // the loader and its options, and then the program's own
    for (std::string word; std::getline(file, word, '\0');) {
      if (std::filesystem::equivalent(word, program, error)) break;
      words.push_back(word);
    }
    file.close();
    words.push_back(tools.string());
    words.insert(words.end(), argv + 1, argv + argc);
    std::vector<char*> started;
    for (std::string& word : words) started.push_back(word.data());
    started.push_back(nullptr);
    ::execv("/proc/self/exe", started.data());
  }
  const std::string why = std::strerror(errno);
  throw Error(tools.string() + ": " + why + "; build it (target inkling_tools), or copy it there");
}

void print_help(std::ostream& out) {
  const size_t columns = help_columns();
  const std::string usage = typed("COMMAND [options]     (COMMAND --help shows them)");
  out << "inkling: trains GPTs, from scratch\n\n"
      << filled("usage: " + usage, columns, 7) << "\n\n";
  for (const auto& [name, command] : commands())
    out << filled(fmt::format("  {:<12} {}", name, command.help), columns, 15) << "\n";
}

std::string program_name = "inkling";

}  // namespace

std::string typed(const std::string& command) { return for_shell(program_name) + " " + command; }

std::string option_typed(const std::string& option, const std::string& value) {
  return option + (value.starts_with("--") || value == "-h" ? "=" : " ") + for_shell(value);
}

std::string data_typed(const TrainConfig& config) {
  const auto again = [](const std::vector<std::string>& files, const char* option) {
    return std::any_of(files.begin(), files.end(), is_read_once) ? option : "";
  };
  return again(config.data, " --data FILE") +
         std::string(again(config.val_data, " --val_data FILE"));
}

DataFiles files_of_run(const SavedRun& run, const TrainConfig& config, const char* advice) {
  try {
    return data_files(config.data, config.val_data);
  } catch (const Error& error) {
    if (config.data != run.config.data || config.val_data != run.config.val_data) throw;
    const std::string what = error.what();  // begins with the option
    const bool was_pipe = std::any_of(config.data.begin(), config.data.end(), is_read_once);
    if (was_pipe)  // of another text, eval measures all
      advice =
          "; with a file that holds the same, train --init_from resume --data FILE --final_eval "
          "whole goes on, and measures what it validates on";
    const char* place = what.starts_with("--val_data") ? "; name its new place: --val_data PLACE"
                                                       : "; name its new place: --data PLACE";
    detail::fail({run.folder.string(), " was trained with ", what, *advice ? advice : place});
  }
}

std::string explained(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const std::length_error*>(&error) != nullptr)
    return "out of memory; choose smaller sizes, or fewer --threads";
  if (const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return of_file->path1().string() + ": " + of_file->code().message();
  return error.what();
}

Device parsed_device(const std::string& name) {
  return as_usage("--", [&] { return parse_device(name); });
}

void check_usage(const TrainConfig& config) {
  parsed_device(config.device);
  as_usage("", [&] { config.check(); });
}

std::string unused_option(const CommandOptions& command, const TrainConfig& config) {
  const std::string task = config.task(), &optimizer = config.optimizer;
  const bool is_text = !config.data.empty() && task.empty();
  struct Option {
    const char* name;
    bool is_used;
    std::string why;
    bool may_be_of_file = false;  // a config file may hold settings for several runs
  };
  const bool has_momentum = optimizer != "adamw" && optimizer != "adam" && optimizer != "lion";
  TrainConfig defaults;
  defaults.model = config.model;
  const nlohmann::json mine = to_json(config), initial = to_json(defaults);
  const std::string rope = mine.value("rope_scaling", "default"),
                    of_scaling = "it is for --rope_scaling ";
  for (const auto& [name, is_used, why, may_be_of_file] :
       {Option{"tokenizer", is_text, "it is for --data FILE"},
        {"val_data", is_text || task.empty(), "it is for --data FILE"},
        {"val_fraction", task == "modular" || (is_text && config.val_data.empty()),
         is_text ? "--val_data names what to validate on"
                 : "it is for --data FILE or task:modular"},
        {"task_digits", !task.empty(), "it is for --data task:NAME"},
        {"pack", is_text, "it is for --data FOLDER, prepared data"},
        {"momentum", has_momentum, "it is for --optimizer sgd or muon", true},
        {"beta1", optimizer != "sgd", "sgd has --momentum", true},
        {"beta2", optimizer != "sgd", "sgd has no second moment", true},
        {"decay_fraction", config.schedule_name == "wsd", "it is for --schedule wsd", true},
        {"shard_optimizer", launched_processes() > 0,
         "it is for several processes, which mpirun starts", true},
        {"wire_dtype", launched_processes() > 0 || config.batch_parts != 1,
         "it is for several parts of a batch, or processes", true},
        {"rope_scaling",
         rope == "default" || mine.value("rope_factor", 0.0) != 1 ||
             mine.value("attention_factor", 0.0) != 0,
         "--rope_factor is 1", true},
        {"rope_factor", rope != "default", of_scaling + "linear, llama3 or yarn", true},
        {"original_max_position_embeddings", rope == "llama3" || rope == "yarn",
         of_scaling + "llama3 or yarn", true},
        {"low_freq_factor", rope == "llama3", of_scaling + "llama3", true},
        {"high_freq_factor", rope == "llama3", of_scaling + "llama3", true},
        {"beta_fast", rope == "yarn", of_scaling + "yarn", true},
        {"beta_slow", rope == "yarn", of_scaling + "yarn", true},
        {"attention_factor", rope == "yarn", of_scaling + "yarn", true}}) {
    const std::string option = std::string("--") + name;
    if (!is_used && (may_be_of_file ? command.is_typed(option) : command.given(option)) &&
        mine.contains(name) && mine.at(name) != initial.at(name))
      return fmt::format("{} does nothing here: {}; leave it out", option, why);
  }
  return "";
}

std::shared_ptr<const Tokenizer> tokenizer_to_encode(const std::string& command,
                                                     const std::string& name) {
  if (name.empty()) throw UsageError(command + ": expected --tokenizer byte, a file or a folder");
  if (name == "byte") return std::make_shared<ByteTokenizer>();
  if (name == "char" || name.rfind("bpe:", 0) == 0)
    throw UsageError(
        command + ": --tokenizer " + printable(name, 60) + " would be learned from the text; " +
        (name == "char" ? "train --data TEXT learns the characters by itself, and "
                          "--tokenizer OUT_DIR names those of its run"
                        : "learn it first (inkling tokenizer train) and name its file"));
  return with_prefix("--tokenizer", [&] { return load_tokenizer(name); });
}

void check_writable(const char* option, const std::string& file) {
  if (!file.empty() && file != "-") with_prefix(option, [&] { AtomicFile{file}; });
}

void check_is_file(const char* option, const std::string& file) {
  if (file == "-")
    throw UsageError(std::string(option) +
                     ": standard output has what the command shows; name a file (./- is one)");
  check_writable(option, file);
}

void check_is_svg(const char* option, const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension().string();
  if (!ending.empty() && ending != ".svg")
    throw UsageError(
        fmt::format("{}: expected a name that ends with .svg, because the picture is SVG; got {}",
                    option, printable(file, 200)));
}

void check_not_read(const char* option, const std::string& file,
                    const std::vector<std::filesystem::path>& read) {
  std::error_code ignored;
  for (const std::filesystem::path& other : read)
    if (has_file(other) && std::filesystem::equivalent(file, other, ignored))
      throw UsageError(
          fmt::format("{}: the command reads {}, and would replace it; choose another name", option,
                      printable(file, 200)));
}

bool is_stdout(const std::string& file) { return file == "-" || file == "/dev/stdout"; }

void write_output(const char* option, const std::string& file, const std::string& text) {
  if (is_stdout(file)) {
    std::cout << text;
    return;
  }
  with_prefix(option, [&] { write_file(file, text); });
  std::cout << "Written: " << printable(file) << "\n";
}

void check_folder(const char* option, const std::string& name) {
  std::error_code unknown;
  const bool is_link = std::filesystem::is_symlink(name, unknown),
             is_there = has_path(name) || is_link;
  if (is_there && !has_folder(name))
    throw UsageError(
        fmt::format("{}: expected a folder, {} is none", option, printable(name, 200)));
}

namespace {

// OpenMP ends the program if the system refuses a thread. So this checks first.
void check_threads(int64_t threads, bool by_environment) {
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
            by_environment ? " (OMP_NUM_THREADS)" : "",
            "; choose fewer --threads, or raise the limit (ulimit -u, ulimit -v)");
  allowed = threads;
}

}  // namespace

void use_threads(int64_t threads) {
  const bool by_environment = threads == 0 && std::getenv("OMP_NUM_THREADS") != nullptr;
  if (threads == 0 && !by_environment)
    threads = std::max<int64_t>(1, physical_cores() / processes_on_these_cores());
  if (threads > 0) omp_set_num_threads(static_cast<int>(threads));
  check_threads(openmp_threads(), by_environment);
  take_gemm_memory(openmp_threads());
}

namespace {

// Opens closed standard descriptors, so that no file becomes the program's standard output.
void open_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) std::abort();
}

// An error after the command's name, which may be that of what failed: said once.
std::string after_name(const std::string& command, const std::string& text) {
  return text.starts_with(command + ": ") ? "inkling " + text : "inkling " + command + ": " + text;
}

// Has the reader of standard output closed its end?
bool reader_is_gone() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// The exit code of a command, which is an error if its output was lost. If the reader closed the
// pipe, no message is needed.
int with_output_written(int code) {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.good()) return code;
  const int why = errno;  // 0: an earlier write failed
  if (why != EPIPE && (why != 0 || !reader_is_gone()))
    std::cerr << "inkling: standard output: cannot write"
              << (why != 0 ? std::string(": ") + std::strerror(why) : "") << "\n";
  return code == kOk ? kFailed : code;
}

// Writes lines to standard error; a terminal breaks them between words.
void tell(const std::string& text) {
  const size_t columns = isatty(STDERR_FILENO) != 0 ? known_columns(STDERR_FILENO) : 0;
  const std::string shown = printable(text) + "\n";
  std::cerr << (columns > 0 ? filled(shown, columns, 2) : shown);
}

// What to type where there is no command of this name.
std::string unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, command] : commands()) names.push_back(known);
  const std::filesystem::path file(name);  // a script may have a folder
  const bool is_script = file.extension() == ".py";
  const OtherCommand* other = other_command(is_script ? file.filename().string() : name);
  const bool is_file = is_script && commands().count(file.stem().string()) > 0;
  return fmt::format("inkling: there is no command {}{}\nTry: {}", name,
                     other != nullptr ? "; " + with_typed(other->text, typed(""))
                     : is_file        ? "; type " + typed(file.stem().string())
                                      : suggestion(name, names),
                     typed("--help"));
}

}  // namespace

int run_commands(int argc, char** argv, const Commands& others) {
  open_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // where a file is at the limit of its size, the write fails
  set_log_callback([](const std::string& message) { tell("inkling: " + message); });
  if (argc > 0) program_name = argv[0];
  const std::string name = argc > 1 ? argv[1] : "";
  const auto is_help = [](const std::string& word) {
    return word == "help" || word == "--help" || word == "-h";
  };
  const bool wants_help = is_help(name);
  if (wants_help && argc > 2 && !is_help(argv[2])) {  // a command's; of any other word, the error
    char help[] = "--help";
    std::array<char*, 3> words = {argv[0], argv[2], help};
    return run_commands(3, words.data(), others);
  }
  if (name == "--version") {
    std::cout << "inkling " << INKLING_VERSION << "\n";
    return with_output_written(kOk);
  }
  if (name.empty() || wants_help) {
    print_help(name.empty() ? std::cerr : std::cout);
    return name.empty() ? kUsage : with_output_written(kOk);
  }
  try {
    const auto found = commands().find(name);
    if (found == commands().end()) {
      tell(unknown_command(name));
      return kUsage;
    }
    auto* run = found->second.run;
    if (run == nullptr) {
      const auto other = others.find(name);
      if (other == others.end()) return become_tools(argc, argv);
      run = other->second;
    }
    explain_cut_files();
    return with_output_written(run(Arguments(argv + 2, argv + argc)));
  } catch (const UsageError& error) {
    tell(after_name(name, error.what()) + "\nTry: " + typed(name + " --help"));
    return kUsage;
  } catch (const std::exception& error) {
    tell(after_name(name, explained(error)));
    return kFailed;
  }
}

}  // namespace ink
