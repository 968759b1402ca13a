// A fuzz target as a program without libFuzzer.
//
//   fuzz_NAME [--inputs N] [--seed S] [--words FILE] FILE_OR_FOLDER...
//
// Replays the files, and then N inputs that are made from them. A failing input is kept in
// ./fuzz_NAME.failed, which the program replays like any other file.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=64"; }
#endif

namespace {

namespace fs = std::filesystem;

// What runs now, for whoever ends the program.
std::string kept_in, input, origin;

void keep_input() {
  const int fd = ::open(kept_in.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0 || ::write(fd, input.data(), input.size()) < 0) std::perror(kept_in.c_str());
  ::close(fd);
  std::fprintf(stderr, "failed: %s; the input is in %s\n", origin.c_str(), kept_in.c_str());
}

void on_signal(int signal) {
  if (signal == SIGPROF) std::fprintf(stderr, "found: an input that takes too long\n");
  keep_input();
  std::_Exit(1);
}

void watch() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(keep_input);
#else
  const rlimit memory{size_t{512} << 20, size_t{512} << 20};  // with OpenBLAS's and the stacks
  ::setrlimit(RLIMIT_DATA, &memory);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_signal);
#endif
  for (const int signal : {SIGABRT, SIGPROF}) std::signal(signal, on_signal);
}

void run(std::string text, std::string from) {
  input = std::move(text);
  origin = std::move(from);
  constexpr int kLongest = 2;  // seconds of processor time
  const itimerval limit{{}, {kLongest, 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  // A copy of its own: what reads past its end is noticed.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::vector<fs::path> files_in(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // so that a seed means the same everywhere
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  kept_in = fs::path(argv[0]).filename().string() + ".failed";
  uint64_t inputs = 0, seed = 1;
  std::vector<std::string> seeds, words;
  watch();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--", 0) == 0 && i + 1 < argc) {
      const char* value = argv[++i];
      if (argument == "--inputs") inputs = std::strtoull(value, nullptr, 10);
      if (argument == "--seed") seed = std::strtoull(value, nullptr, 10);
      if (argument == "--words") words = ink::fuzz::read_words(ink::read_file(value));
      continue;
    }
    for (const fs::path& file : files_in(argument)) {
      const bool empty = fs::file_size(file) == 0;
      seeds.push_back(empty ? "" : ink::read_file(file));
      run(seeds.back(), file.string());
    }
  }
  ink::fuzz::Mutator mutator(seeds, words, seed);
  for (uint64_t i = 0; i < inputs; ++i)
    run(mutator.next(), "--seed " + std::to_string(seed) + ", input " + std::to_string(i));
  std::printf("%zu seeds and %llu inputs made from them\n", seeds.size(),
              static_cast<unsigned long long>(inputs));
  return 0;
}
