// The options of one command. Each is declared once, which gives its help, its checks and its
// value.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "autograd/base/check.h"
#include "train/config.h"

namespace ink {

/// An error in the command line; the text says what was expected.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// f(), whose errors are of usage, with this before their text.
template <class F>
auto as_usage(const std::string& before, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw UsageError(before + error.what());
  }
}

using Arguments = std::vector<std::string>;

class CommandOptions {
 public:
  /// Where an option's value is stored; before parse() it holds the default.
  using Value = std::variant<std::string*, int64_t*, double*, std::vector<std::string>*>;
  struct Rules {
    bool shows_default = false;  // in the help
    Limits limits = {};          // shown in the help, too
    int most_values = 0;         // of a list; 0: any number
    char delimiter = 0;          // between the values of a list in one word
    bool may_be_empty = false;   // of a text
  };

  CommandOptions(const std::string& command, const std::string& description);
  ~CommandOptions();

  /// Names: "--rand,--values"; a name without dashes is the command's own argument.
  void add(const std::string& names, Value value, const std::string& help, const Rules& rules);
  void add(const std::string& names, Value value, const std::string& help) {
    add(names, value, help, Rules{});
  }
  /// The group of the options that are added next, in the help. The first is "Options".
  void group(const std::string& name);
  /// Adds an option without a value.
  void flag(const std::string& name, bool& value, const std::string& help);
  /// Adds an option for each field of a config except those in `left_out`, in groups of their own.
  void add_fields(TrainConfig& config, const std::set<std::string>& left_out = {});
  /// Adds --config FILE, a file of "name = value" lines, or FILE.py alone. The command line
  /// overrides it: a value that is not used may be one that this program cannot have.
  void take_config_file();

  /// Reads arguments, and the config file that they name, into the values. '-' and '_' are the same
  /// within names. Names of other programs are taken or answered (other_names.h), and one line says
  /// so; but where it is the `first` of two times, no line is written, and numbers that follow from
  /// others wait. For an unknown name the error suggests others. An option given twice is an error.
  /// Integers are decimal, and a number is never rounded, clamped or wrapped. Throws UsageError.
  /// Returns false if help was printed instead. Otherwise --threads, or 0 where there is none, is
  /// the number of threads from now on (use_threads).
  bool parse(const Arguments& arguments, bool first = false);
  /// What follows from settings of these names follows from their defaults, whatever is given.
  void keep(const std::set<std::string>& names);
  /// Did the command line, or its config file, give this option?
  bool given(const std::string& name) const;
  /// Did the command line itself?
  bool is_typed(const std::string& name) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

/// "; did you mean NAME?" or "; did you mean NAME or NAME?": what other programs call so, what
/// begins so, or else the nearest; nothing if no name is near. A value may stand after the name:
/// "device=cuda".
std::string suggestion(const std::string& unknown, const std::vector<std::string>& names,
                       const char* prefix = "");

}  // namespace ink
