#include "autograd/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "autograd/check.h"

namespace ink {

AtomicFile::AtomicFile(const std::filesystem::path& target)
    : target_(target), temporary_(target.string() + ".tmp") {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  INK_CHECK(fd_ >= 0, temporary_.string(), ": cannot create: ", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(fd_, at, count);
    if (written < 0 && errno == EINTR) continue;
    INK_CHECK(written >= 0, temporary_.string(), ": cannot write: ", std::strerror(errno));
    at += written;
    count -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  INK_CHECK(::fsync(fd_) == 0, temporary_.string(), ": cannot write: ", std::strerror(errno));
  INK_CHECK(::rename(temporary_.c_str(), target_.c_str()) == 0, target_.string(),
            ": cannot replace: ", std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
  sync_folder(target_.has_parent_path() ? target_.parent_path() : ".");
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  INK_CHECK(fd >= 0, folder.string(), ": cannot open: ", std::strerror(errno));
  const int failed = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  // Some file systems know no fsync of folders.
  INK_CHECK(failed == 0 || reason == EINVAL, folder.string(),
            ": cannot write: ", std::strerror(reason));
}

}  // namespace ink
