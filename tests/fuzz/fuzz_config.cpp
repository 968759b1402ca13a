// Command lines and config files. The parts of an input are a config file, "%% arguments" of
// `train`, and "%% other", arguments of a command with options of every other kind; one a line.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/io/foreign.h"
#include "tests/fuzz/fuzz.h"
#include "train/cli/command_line.h"

namespace ink::fuzz {
namespace {

Arguments lines_of(const std::string& text) {
  Arguments lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What f() writes to the standard output.
template <class F>
std::string output_of(F&& f) {
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  struct Restore {
    std::streambuf* buffer;
    ~Restore() { std::cout.rdbuf(buffer); }
  } const restore{before};
  f();
  return out.str();
}

// The program prints errors through printable(); nothing for none.
template <class F>
std::optional<std::string> printed_error(std::string_view input, F&& f) {
  try {
    f();
    return {};
  } catch (const Error& error) {
    const std::string text = printable(error.what());
    check_text(text, input);
    return text;
  }
}

// The settings that `train` would run with, as it prints them, or the error.
std::string settings(std::string_view input, Arguments arguments, const File& file) {
  arguments.insert(arguments.end(), {"--config", file.path().string(), "--print_config"});
  std::string text;
  const auto error =
      printed_error(input, [&] { text = output_of([&] { train_command(arguments); }); });
  return error ? "error: " + *error : text;
}

void check_train(std::string_view input, const Arguments& arguments, const std::string& config) {
  static File file;
  file.write(config);
  const std::string text = settings(input, arguments, file);
  if (text.rfind("# ", 0) != 0) return;                  // an error, or help
  if (text.find("\ufffd") != std::string::npos) return;  // perhaps a name that is no UTF-8
  file.write(text);
  const std::string again = settings(input, {}, file);
  expect(again == text, "the printed settings give others: " + text + "\n" + again);
}

void check_other(std::string_view input, const Arguments& arguments) {
  std::string name;
  std::vector<std::string> values, pair;
  int64_t count = 1;
  double share = 0.5;
  bool loud = false, help = false;
  CommandOptions command("other", "Has options of all kinds.");
  command.add("NAME", &name, "what the command is of");
  command.add("--values,--rand", &values, "numbers", {.delimiter = ','});
  command.add("--pair", &pair, "two of them", {.most_values = 2});
  command.add("--count", &count, "how many", {.shows_default = true, .limits = {1, 1000}});
  command.add("--share", &share, "how much of it", {.limits = {.above = 0, .below = 1}});
  command.flag("--loud", loud, "say so");
  const auto error =
      printed_error(input, [&] { output_of([&] { help = !command.parse(arguments); }); });
  if (error || help) return;
  expect(count >= 1 && count <= 1000, "a count outside its limits");
  expect(share > 0 && share < 1, "a share outside its limits");
  expect(pair.size() <= 2, "three values of two");
  expect(loud <= command.given("--loud"), "a flag that nobody gave");
}

}  // namespace

void check_input(std::string_view input) {
  auto sections = sections_of(input);
  if (sections.count("other") > 0) check_other(input, lines_of(sections["other"]));
  if (sections.count("other") == 0 || sections.size() > 1)
    check_train(input, lines_of(sections["arguments"]), sections[""]);
}

}  // namespace ink::fuzz
