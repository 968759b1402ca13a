// inkling seedhunt: with which seed did a PyTorch program run?
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/seedhunt.h"

namespace ink {
namespace {

struct Given {
  int64_t skip = 0, high = 0;
  std::vector<std::string> values;
  int64_t digits = 4;
};

uint64_t whole_number(const std::string& text) {
  if (text.empty() || text.size() > 10 || text.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError("expected whole numbers with --randint, got '" + text + "'");
  return std::stoull(text);
}

std::vector<OutputSet> outputs_of(const Given& given) {
  if (given.values.empty())
    throw UsageError("expected the printed numbers: --rand 0.1245,0.6143,0.4404");
  std::vector<OutputSet> outputs;
  double fitting = 0x1p32;
  for (const std::string& text : given.values) {
    try {
      outputs.push_back(given.high == 0
                            ? printed_rand(text, static_cast<int>(given.digits))
                            : drawn_randint(whole_number(text), static_cast<uint64_t>(given.high)));
    } catch (const Error& error) {
      const std::string what = error.what(), prefix = "seedhunt: ";
      throw UsageError(what.rfind(prefix, 0) == 0 ? what.substr(prefix.size()) : what);
    }
    fitting *= outputs.back().share();
  }
  if (fitting > 1000)
    throw UsageError(fmt::format("about {} seeds would fit; give more numbers than {}",
                                 count_text(fitting), outputs.size()));
  return outputs;
}

// The live line: the share of seeds tried, and the time left.
class SearchProgress {
 public:
  void operator()(double done) {
    const double seconds = elapsed();
    if (!console_.has_live_line() || seconds < shown_ + 0.2) return;
    shown_ = seconds;
    const std::string left = done > 0 ? clock_text(seconds * (1 - done) / done) : "?";
    console_.live({{fmt::format("{:5.1f} %", 100 * done), 0},
                   {" of 2^32 seeds tried", 2},
                   {fmt::format(", {} left", left), 1}});
  }
  void end(const std::string& text) { console_.line(text); }
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  Console console_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double shown_ = 0;
};

}  // namespace

int seedhunt_command(const Arguments& arguments) {
  CommandOptions command("seedhunt",
                         "Finds the seed of a PyTorch program from a few numbers that it drew on "
                         "the CPU and printed.");
  Given given;
  command.add("--rand,--values", &given.values,
              "consecutive numbers of rand, as printed: v1,v2,...", {.delimiter = ','});
  command.add("--randint", &given.high,
              "the numbers come from randint(HIGH), and are given as --values v1,v2,...",
              {.limits = {2, 0x1p63}});
  command.add("--skip", &given.skip, "how many 32-bit outputs were drawn before them",
              {.shows_default = true, .limits = {0, 1e6}});
  command.add("--digits", &given.digits, "digits after the point, as printed",
              {.shows_default = true, .limits = {1, 9}});
  if (!command.parse(arguments)) return kOk;

  const std::vector<OutputSet> outputs = outputs_of(given);
  SearchProgress progress;
  SeedhuntOptions options;
  options.progress = [&](double done) { progress(done); };
  const std::vector<uint32_t> seeds = seedhunt(static_cast<uint64_t>(given.skip), outputs, options);
  for (const uint32_t seed : seeds) progress.end(fmt::format("seed {}", seed));
  const char* verdict = seeds.empty()
                            ? "no seed fits: are the numbers consecutive, and --skip right?"
                        : seeds.size() == 1 ? "the only one of 2^32 that fits"
                                            : "several fit: give more numbers";
  progress.end(fmt::format("{} ({:.0f} s)", verdict, progress.elapsed()));
  return seeds.empty() ? kFailed : kOk;
}

}  // namespace ink
