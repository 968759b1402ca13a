// inkling seedhunt: with which seed did a PyTorch program run?
#include <fmt/format.h>

#include <atomic>
#include <string>
#include <vector>

#include "train/cli/command_line.h"
#include "train/cli/console.h"
#include "train/cli/seedhunt.h"
#include "train/cli/waiting.h"

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

// With the share of seeds tried, and the time left, on the live line.
std::vector<uint32_t> found(Console& console, uint64_t skip,
                            const std::vector<OutputSet>& outputs) {
  std::atomic<double> done = 0;
  const Waiting waiting(console, [&](double seconds) {
    const double share = done;
    const std::string left = share > 0 ? clock_text(seconds * (1 - share) / share) : "?";
    return std::vector<Item>{{fmt::format("{:5.1f} %", 100 * share), 0},
                             {" of 2^32 seeds tried", 2},
                             {fmt::format(", {} left", left), 1}};
  });
  return seedhunt(skip, outputs, {.progress = [&](double share) { done = share; }});
}

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
  Console console;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<uint32_t> seeds = found(console, static_cast<uint64_t>(given.skip), outputs);
  for (const uint32_t seed : seeds) console.line(fmt::format("seed {}", seed));
  const char* verdict = seeds.empty()
                            ? "no seed fits: are the numbers consecutive, and --skip right?"
                        : seeds.size() == 1 ? "the only one of 2^32 that fits"
                                            : "several fit: give more numbers";
  console.line(fmt::format("{} ({:.0f} s)", verdict, seconds_since(start)));
  return seeds.empty() ? kFailed : kOk;
}

}  // namespace ink
