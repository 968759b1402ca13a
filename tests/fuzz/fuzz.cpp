#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "data/splitmix.h"

namespace ink::fuzz {

void found(const std::string& what) {
  std::fprintf(stderr, "found: %s\n", what.c_str());
  std::abort();
}

size_t utf8_length(std::string_view text, size_t at) {
  struct Row {
    unsigned char first, last, second, second_last;
    size_t length;
  };
  static constexpr std::array<Row, 9> kRows = {{{0x00, 0x7f, 0, 0, 1},
                                                {0xc2, 0xdf, 0x80, 0xbf, 2},
                                                {0xe0, 0xe0, 0xa0, 0xbf, 3},
                                                {0xe1, 0xec, 0x80, 0xbf, 3},
                                                {0xed, 0xed, 0x80, 0x9f, 3},
                                                {0xee, 0xef, 0x80, 0xbf, 3},
                                                {0xf0, 0xf0, 0x90, 0xbf, 4},
                                                {0xf1, 0xf3, 0x80, 0xbf, 4},
                                                {0xf4, 0xf4, 0x80, 0x8f, 4}}};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  for (const Row& row : kRows) {
    if (byte(0) < row.first || byte(0) > row.last) continue;
    if (text.size() - at < row.length) return 0;
    if (row.length > 1 && (byte(1) < row.second || byte(1) > row.second_last)) return 0;
    for (size_t i = 2; i < row.length; ++i)
      if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
    return row.length;
  }
  return 0;
}

void check_text(std::string_view text, std::string_view input, Lines lines) {
  const auto expect_of = [&](bool holds, const char* what) {
    if (!holds) found("a text that " + std::string(what) + ": " + std::string(text));
  };
  expect_of(text.size() <= (lines == Lines::one ? 500 : 2000), "is too long");
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control = byte < 0x20 || byte == 0x7f ||
                         (length == 2 && byte == 0xc2 && (text[at + 1] & 0x60) == 0);  // C1
    expect_of(length > 0, "is no UTF-8");
    expect_of(!control || (byte == '\n' && lines == Lines::many), "has a control character");
    at += length;
  }
  // An input may hold the better part of such a word, which an escape makes whole: \xba + sic.
  constexpr std::pair<const char*, const char*> kForeign[] = {{"[json.exception", "json."},
                                                              {"std::", "::"},
                                                              {"vector::", "::"},
                                                              {"CLI::", "::"},
                                                              {"basic_string", "ic_str"}};
  for (const auto& [word, part] : kForeign)
    expect_of(text.find(word) == text.npos || input.find(part) != input.npos, "is a library's own");
}

std::map<std::string, std::string> sections_of(std::string_view input) {
  std::map<std::string, std::string> sections;
  std::string name;
  for (size_t at = 0; at < input.size();) {
    const size_t end = std::min(input.find('\n', at), input.size());
    const std::string_view line = input.substr(at, end - at);
    const size_t next = std::min(end + 1, input.size());
    if (line.substr(0, 3) == "%% ") {
      name = line.substr(3);
      sections[name];
    } else {
      sections[name] += input.substr(at, next - at);
    }
    at = next;
  }
  return sections;
}

uint64_t hash_of(std::string_view bytes) {
  uint64_t hash = bytes.size();
  for (const char byte : bytes) hash = splitmix::mix(hash ^ static_cast<unsigned char>(byte));
  return hash;
}

namespace {

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    expect(written > 0, "cannot write an input");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

File::File()
    : fd_(::memfd_create("input", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {
  expect(fd_ >= 0, "cannot make a file in memory");
}

File::~File() { ::close(fd_); }

void File::write(std::string_view bytes) {
  expect(::ftruncate(fd_, 0) == 0 && ::lseek(fd_, 0, SEEK_SET) == 0, "cannot empty an input");
  write_all(fd_, bytes);
}

void write_file(const std::filesystem::path& file, std::string_view bytes) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  expect(fd >= 0, "cannot make " + file.string());
  write_all(fd, bytes);
  ::close(fd);
}

}  // namespace ink::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  // Folders of tests, too, need not wait for a disk.
  static const bool in_memory =
      std::filesystem::exists("/dev/shm") && setenv("TMPDIR", "/dev/shm", 0) == 0;
  static_cast<void>(in_memory);
  ink::fuzz::check_input(ink::fuzz::view_of(bytes, size));
  return 0;
}
