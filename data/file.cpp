#include "data/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "autograd/io/foreign.h"

namespace ink {
namespace {

// A file open for reading.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& file, int flags = 0)
      : fd_(open_file(file, O_RDONLY | flags)) {
    const int failed = ::fstat(fd_, &status_);
    if (failed != 0 || S_ISDIR(status_.st_mode)) {
      ::close(fd_);  // no destructor runs for a constructor that throws
      detail::fail(
          {file.string(), failed ? ": cannot read" : ": expected a file, got a directory"});
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }

  int get() const { return fd_; }
  bool regular() const { return S_ISREG(status_.st_mode); }
  size_t size() const { return static_cast<size_t>(status_.st_size); }

 private:
  int fd_;
  struct stat status_ {};
};

}  // namespace

std::string read_file(const std::filesystem::path& file) {
  const Descriptor opened(file);
  // The size is a hint: a pipe has none, and a file can grow while it is read.
  std::string text(opened.size() + 1, '\0');
  size_t used = 0;
  while (true) {
    if (used == text.size()) text.resize(2 * used);
    const ssize_t got = ::read(opened.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    INK_CHECK(got >= 0, file.string(), ": cannot read: ", std::strerror(errno));
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  INK_CHECK(used > 0, file.string(), ": the file is empty");
  text.resize(used);
  return text;
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const Descriptor opened(file, O_NONBLOCK);  // a pipe is refused, not waited for
  INK_CHECK(opened.regular(), file.string(),
            ": expected a regular file, which can be mapped into memory");
  INK_CHECK(opened.size() > 0, file.string(), ": the file is empty");
  void* const start = ::mmap(nullptr, opened.size(), PROT_READ, MAP_PRIVATE, opened.get(), 0);
  INK_CHECK(start != MAP_FAILED, file.string(), ": cannot map into memory: ", std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(start), opened.size()};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace ink
