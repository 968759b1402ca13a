#include "autograd/io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"

namespace ink {

static int flush(int fd) {
  return uninterrupted([&] { return ::fsync(fd); });
}

// The number of a file that is open already: what a shell sent it to goes on, and is not replaced.
// -1: the name is another.
static int number_of(const std::string& name) {
  if (name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  constexpr std::string_view kFolder = "/dev/fd/";
  if (!name.starts_with(kFolder)) return -1;
  const char *const begin = name.data() + kFolder.size(), *const end = name.data() + name.size();
  int number = -1;
  return std::from_chars(begin, end, number).ptr == end ? number : -1;
}

AtomicFile::AtomicFile(const std::filesystem::path& target) : target_(target) {
  if (const int open = number_of(target); open >= 0) {
    fd_ = ::fcntl(open, F_DUPFD_CLOEXEC, 0);
    INK_CHECK(fd_ >= 0, target.string(), ": cannot write: ", std::strerror(errno));
    return;
  }
  std::error_code error;  // ignored: if something is wrong with the name, open() says what
  const auto status = std::filesystem::status(target, error);
  INK_CHECK(!is_directory(status), target.string(), ": cannot write: it is a folder");
  if (exists(status) && !is_regular_file(status)) {
    INK_CHECK(::access(target.c_str(), W_OK) == 0, target.string(),
              ": cannot write: ", std::strerror(errno));
    return;  // write() opens it, because the reader of a pipe takes its closing for the end
  }
  if (exists(status) && is_symlink(target, error)) target_ = canonical(target, error);
  temporary_ = target_.string() + ".tmp";
  fd_ = open_file(temporary_, O_WRONLY | O_CREAT | O_TRUNC, target_);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, size_t count) {
  if (fd_ < 0) fd_ = open_file(target_, O_WRONLY);
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = uninterrupted([&] { return ::write(fd_, at, count); });
    INK_CHECK(written >= 0, target_.string(), ": cannot write: ", std::strerror(errno));
    at += written;
    count -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) return;
  INK_CHECK(flush(fd_) == 0, target_.string(), ": cannot write: ", std::strerror(errno));
  const auto rename = [&] { return ::rename(temporary_.c_str(), target_.c_str()); };
  INK_CHECK(uninterrupted(rename) == 0, target_.string(),
            ": cannot replace: ", std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
  sync_folder(target_.has_parent_path() ? target_.parent_path() : ".");
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = open_file(folder, O_RDONLY | O_DIRECTORY);
  const int failed = flush(fd);
  const int reason = errno;
  ::close(fd);
  // Some file systems cannot fsync folders.
  INK_CHECK(failed == 0 || reason == EINVAL, folder.string(),
            ": cannot write: ", std::strerror(reason));
}

}  // namespace ink
