#include "data/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/formats.h"

namespace ink {
namespace {

// A file open for reading.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& file, int flags = 0)
      : fd_(open_file(file, O_RDONLY | flags)) {
    const int failed = ::fstat(fd_, &status_);
    const bool folder = S_ISDIR(status_.st_mode);
    if (failed != 0 || folder || S_ISCHR(status_.st_mode) || S_ISBLK(status_.st_mode)) {
      ::close(fd_);  // no destructor runs for a constructor that throws
      detail::fail({file.string(), failed   ? ": cannot read"
                                   : folder ? ": expected a file, got a directory"
                                            : ": expected a file, got a device"});
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

std::string read_all(const Descriptor& opened, const std::filesystem::path& file) {
  // The size is a hint: a pipe has none, and a file can grow while it is read.
  std::string text(opened.size() + 1, '\0');
  size_t used = 0;
  while (true) {
    if (used == text.size()) text.resize(2 * used);
    const ssize_t got =
        uninterrupted([&] { return ::read(opened.get(), text.data() + used, text.size() - used); });
    INK_CHECK(got >= 0, file.string(), ": cannot read: ", std::strerror(errno));
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  INK_CHECK(used > 0, file.string(), ": the file is empty");
  text.resize(used);
  return text;
}

// Returns nothing and sets errno if the file cannot be mapped; an empty one never can be.
std::span<const std::byte> map_all(const Descriptor& opened) {
  void* const start = ::mmap(nullptr, opened.size(), PROT_READ, MAP_PRIVATE, opened.get(), 0);
  if (start == MAP_FAILED) return {};
  return {static_cast<const std::byte*>(start), opened.size()};
}

}  // namespace

bool has_path(const std::filesystem::path& name) {
  std::error_code unknown;
  return std::filesystem::exists(name, unknown);
}
bool has_file(const std::filesystem::path& name) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(name, unknown);
}
bool has_folder(const std::filesystem::path& name) {
  std::error_code unknown;
  return std::filesystem::is_directory(name, unknown);
}
bool is_read_once(const std::filesystem::path& name) {
  for (const char* const own : {"/dev/std", "/dev/fd/", "/proc/self/fd/"})
    if (name.native().starts_with(own)) return true;
  std::error_code unknown;
  return std::filesystem::is_other(name, unknown);  // neither a regular file nor a folder
}

std::string read_file(const std::filesystem::path& file) {
  return read_all(Descriptor(file), file);
}

std::string read_text(const std::filesystem::path& file) {
  return std::string(TextFile(file).view());
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const Descriptor opened(file, O_NONBLOCK);  // a pipe is refused, not waited for
  INK_CHECK(opened.regular(), file.string(),
            ": expected a regular file, which can be mapped into memory");
  INK_CHECK(opened.size() > 0, file.string(), ": the file is empty");
  bytes_ = map_all(opened);
  INK_CHECK(!bytes_.empty(), file.string(), ": cannot map into memory: ", std::strerror(errno));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

TextFile::TextFile(const std::filesystem::path& file) {
  const Descriptor opened(file);
  if (opened.regular()) mapped_ = MappedFile(map_all(opened));
  // Files of /proc are regular, have a size of 0, and hold text.
  if (mapped_.bytes().empty()) read_ = read_all(opened, file);
  check_is_text(file, view());
  INK_CHECK(!view().empty(), file.string(), ": the file is empty");
}

std::string_view TextFile::view() const {
  const auto bytes = mapped_.bytes();
  std::string_view text = read_;
  if (!bytes.empty()) text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return text.substr(byte_order_mark(text));
}

void TextFile::release(size_t begin, size_t end) const {
  if (!mapped_.bytes().empty()) release_mapped(mapped_.bytes(), begin, end);
}

int lock_alone(int opened, const std::filesystem::path& file) {
  if (uninterrupted([&] { return ::flock(opened, LOCK_EX | LOCK_NB); }) == 0) return 0;
  const int reason = errno;
  if (reason != ENOSYS && reason != EOPNOTSUPP && reason != ENOLCK) return reason;
  log_message(file.string(),
              ": this file system has no locks; that no other process writes there is left to you");
  return 0;
}

void release_mapped(std::span<const std::byte> mapped, size_t begin, size_t end) {
  // Pages around may have come with them: reading a page brings in those of 64 KB by default.
  constexpr size_t kAround = size_t{64} << 10;
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t from = (first + (begin < kAround ? 0 : begin - kAround)) / page * page,
                  to = first + std::min(end + kAround, mapped.size());
  // A failure costs memory, nothing else.
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

}  // namespace ink
