// The command line: one function for each command, and what they share.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/base/device.h"
#include "autograd/io/foreign.h"
#include "data/tokenizer.h"
#include "train/cli/command_options.h"

namespace ink {

struct DataFiles;  // data/data_files.h
struct SavedRun;   // train/saved_run.h

/// Exit codes: 0; 1 if something failed; 2 for a wrong command line. A signal that stops it gives
/// 128 and its number, as in a shell: 130 after Ctrl-C, 143 after kill, 129 after a hang-up.
enum ExitCode { kOk = 0, kFailed = 1, kUsage = 2, kSignal = 128 };

/// A program with all commands: dispatches on the first word. Never throws; each error is a line of
/// stderr.
int run_command_line(int argc, char** argv);  // all_commands.cpp

/// The same with the commands that training needs, and those given. Others are left to the program
/// inkling-tools beside this one, which is built when one of them is first asked for.
using Commands = std::map<std::string, int (*)(const Arguments&)>;
int run_commands(int argc, char** argv, const Commands& others);

/// What a user types to run a command of this program, with the name by which it was called.
std::string typed(const std::string& command);
/// "--out_dir FOLDER" as a user types it; with "=" where the value looks like an option.
std::string option_typed(const std::string& option, const std::string& value);

/// " --data FILE" and " --val_data FILE" for what is read once: what a command that goes on with a
/// run has to name again.
std::string data_typed(const TrainConfig& config);
/// The files that a config names. Where they are those of a run, and the user named none, an error
/// says whose they are; it ends with `advice`, or with the option that names their new place.
DataFiles files_of_run(const SavedRun& run, const TrainConfig& config, const char* advice = "");

// The commands; the arguments are those after the command's name.
int train_command(const Arguments& arguments);   // train_command.cpp
int sample_command(const Arguments& arguments);  // model_commands.cpp
int eval_command(const Arguments& arguments);
int info_command(const Arguments& arguments);
int gradcheck_command(const Arguments& arguments);  // gradcheck_command.cpp
int lesson_command(const Arguments& arguments);     // lesson_command.cpp
int walkthrough_command(const Arguments& arguments);
int exercise_command(const Arguments& arguments);   // exercise_command.cpp
int seedhunt_command(const Arguments& arguments);   // seedhunt_command.cpp
int bench_command(const Arguments& arguments);      // bench_command.cpp
int report_command(const Arguments& arguments);     // report_command.cpp
int look_command(const Arguments& arguments);       // look_command.cpp
int tokenizer_command(const Arguments& arguments);  // tokenizer_command.cpp
int prepare_command(const Arguments& arguments);    // prepare_command.cpp
int draw_command(const Arguments& arguments);       // draw_command.cpp
int suggest_command(const Arguments& arguments);    // suggest_command.cpp

/// What went wrong, for people: also what the system calls bad_alloc.
std::string explained(const std::exception& error);
/// parse_device; throws UsageError.
Device parsed_device(const std::string& name);
/// config.check(); throws UsageError.
void check_usage(const TrainConfig& config);
/// An error if the command was given an option that does nothing beside the others: --tokenizer for
/// the built-in stories, --task_digits for a text, --momentum for adamw; else empty.
std::string unused_option(const CommandOptions& command, const TrainConfig& config);
/// The tokenizer that a command's --tokenizer names: byte, or one of a file, folder or run. Throws
/// UsageError for one that is learned from a text.
std::shared_ptr<const Tokenizer> tokenizer_to_encode(const std::string& command,
                                                     const std::string& name);
/// Throws, naming the option, if it names a file that cannot be written.
void check_writable(const char* option, const std::string& file);
/// The same where standard output has something else: "-" is refused.
void check_is_file(const char* option, const std::string& file);
/// Throws UsageError, naming the option, if its file is one of those that the command reads.
void check_not_read(const char* option, const std::string& file,
                    const std::vector<std::filesystem::path>& read);
/// Throws UsageError, naming the option, if its file has the ending of another picture than SVG.
void check_is_svg(const char* option, const std::string& file);
/// Does this name standard output ("-", /dev/stdout)? Then nothing else is written there.
bool is_stdout(const std::string& file);
/// Writes a file that an option names, and says so, if it is not standard output.
void write_output(const char* option, const std::string& file, const std::string& text);
/// Throws UsageError, naming the option, if it names something that is there and no folder.
void check_folder(const char* option, const std::string& name);

/// Sets the number of CPU threads; 0: OMP_NUM_THREADS, or else one per core.
void use_threads(int64_t threads);

/// Warns on standard error if OpenBLAS computes products with kernels for an older processor than
/// this one, and says what to do.
void warn_of_slow_blas();

}  // namespace ink
