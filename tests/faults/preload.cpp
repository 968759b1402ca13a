// Preloaded into the program under test: makes one of its calls on files fail, or kills it there.
//
//   LD_PRELOAD=libfaults.so FAULTS_AT=17 FAULTS_KIND=kill inkling train ...
//
// FAULTS_AT: which call, from 0; the later ones succeed. FAULTS_KIND: kill; the number of an error;
// full: no space from this call on; short: a write takes half. FAULTS_UNDER: only calls on files
// under this folder count. FAULTS_LOCK: the number of an error that each lock there gives, as on a
// file system without locks. FAULTS_COUNT: a file that gets the number of calls at the end, and
// that of those until the first checkpoint was in place.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::atomic<long> calls = 0;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string path_of(int fd) {
  char name[4096];
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
  return std::string(name, length > 0 ? static_cast<size_t>(length) : 0);
}

enum Call { kOther, kInterruptible, kTakesSpace };
enum class Fate { kSucceeds, kFails, kShort };

// errno is set where the call is to fail. Signals come between some calls only, and a full disk
// matters to some only.
Fate fate(const std::string& path, Call call = kOther) {
  static const std::string under = variable("FAULTS_UNDER"), kind = variable("FAULTS_KIND");
  static const long at = variable("FAULTS_AT").empty() ? -1 : std::stol(variable("FAULTS_AT"));
  if (under.empty() || path.compare(0, under.size(), under) != 0) return Fate::kSucceeds;
  const long number = calls++;
  if (kind == "full" && at >= 0 && number >= at && call == kTakesSpace) {
    errno = ENOSPC;
    return Fate::kFails;
  }
  if (number != at || kind == "full") return Fate::kSucceeds;
  if (kind == "kill") raise(SIGKILL);
  if (kind == "short") return Fate::kShort;
  errno = std::atoi(kind.c_str());
  const bool can = errno != EINTR || call != kOther;
  return can ? Fate::kFails : Fate::kSucceeds;
}
bool fails(const std::string& path, Call call = kOther) { return fate(path, call) == Fate::kFails; }

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

std::atomic<long> first_save = 0;

struct Report {
  ~Report() {
    if (variable("FAULTS_COUNT").empty()) return;
    std::FILE* file = std::fopen(variable("FAULTS_COUNT").c_str(), "w");
    std::fprintf(file, "%ld %ld", calls.load(), first_save.load());
    std::fclose(file);
  }
} report;

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fails(path, flags & O_CREAT ? kTakesSpace : kInterruptible)) return -1;
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}
int open64(const char*, int, ...) __attribute__((alias("open")));  // the same on 64-bit systems
int flock(int fd, int operation) {
  const std::string under = variable("FAULTS_UNDER"), error = variable("FAULTS_LOCK");
  if (error.empty() || path_of(fd).compare(0, under.size(), under) != 0)
    return next<int(int, int)>("flock")(fd, operation);
  errno = std::stoi(error);
  return -1;
}
ssize_t read(int fd, void* bytes, size_t count) {
  const Fate how = fate(path_of(fd), kInterruptible);
  if (how == Fate::kFails) return -1;
  if (how == Fate::kShort) count = (count + 1) / 2;
  return next<ssize_t(int, void*, size_t)>("read")(fd, bytes, count);
}
ssize_t pread(int fd, void* bytes, size_t count, off_t at) {
  const Fate how = fate(path_of(fd), kInterruptible);
  if (how == Fate::kFails) return -1;
  if (how == Fate::kShort) count = (count + 1) / 2;
  return next<ssize_t(int, void*, size_t, off_t)>("pread")(fd, bytes, count, at);
}
ssize_t pread64(int, void*, size_t, off_t) __attribute__((alias("pread")));
ssize_t write(int fd, const void* bytes, size_t count) {
  const Fate how = fate(path_of(fd), kTakesSpace);
  if (how == Fate::kFails) return -1;
  if (how == Fate::kShort) count = (count + 1) / 2;
  return next<ssize_t(int, const void*, size_t)>("write")(fd, bytes, count);
}
int fsync(int fd) { return fails(path_of(fd), kTakesSpace) ? -1 : next<int(int)>("fsync")(fd); }
int ftruncate(int fd, off_t size) {
  return fails(path_of(fd), kInterruptible) ? -1 : next<int(int, off_t)>("ftruncate")(fd, size);
}
int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));
// Linux frees the descriptor even then.
int close(int fd) {
  const bool failed = fails(path_of(fd), kInterruptible);
  const int reason = errno;
  const int result = next<int(int)>("close")(fd);
  if (!failed) return result;
  errno = reason;
  return -1;
}
int rename(const char* from, const char* to) {
  if (fails(from)) return -1;
  const int result = next<int(const char*, const char*)>("rename")(from, to);
  const std::string name = to;
  const bool is_save = name.size() > 5 && name.substr(name.size() - 5) == "/ckpt";
  if (is_save && first_save == 0) first_save = calls.load();
  return result;
}
int mkdir(const char* path, mode_t mode) {
  return fails(path, kTakesSpace) ? -1 : next<int(const char*, mode_t)>("mkdir")(path, mode);
}
int unlink(const char* path) { return fails(path) ? -1 : next<int(const char*)>("unlink")(path); }
int rmdir(const char* path) { return fails(path) ? -1 : next<int(const char*)>("rmdir")(path); }
int remove(const char* path) { return fails(path) ? -1 : next<int(const char*)>("remove")(path); }
int unlinkat(int folder, const char* path, int flags) {
  const std::string whole = path[0] == '/' ? path : path_of(folder) + "/" + path;
  return fails(whole) ? -1 : next<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const std::string whole = path[0] == '/' ? path : path_of(folder) + "/" + path;
  if (fails(whole, kInterruptible)) return -1;
  return next<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode);
}
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));

}  // extern "C"
