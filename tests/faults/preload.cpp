// Preloaded into the program under test: makes one of its calls that change files fail, or kills it
// there.
//
//   LD_PRELOAD=libfaults.so FAULTS_AT=17 FAULTS_KIND=kill inkling train ...
//
// FAULTS_AT: which call, from 0; the later ones succeed. FAULTS_KIND: kill, or the number of an
// error. FAULTS_COUNT: a file that gets the number of calls at the end. FAULTS_UNDER: only calls on
// files under this folder count.
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

// Is it the turn of this call to fail? errno is set then. Signals come between some calls only.
bool fails(const std::string& path, bool interruptible = false) {
  static const std::string under = variable("FAULTS_UNDER"), kind = variable("FAULTS_KIND");
  static const long at = variable("FAULTS_AT").empty() ? -1 : std::stol(variable("FAULTS_AT"));
  if (under.empty() || path.compare(0, under.size(), under) != 0) return false;
  if (calls++ != at) return false;
  if (kind == "kill") raise(SIGKILL);
  errno = std::atoi(kind.c_str());
  return errno != EINTR || interruptible;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

struct Report {
  ~Report() {
    if (variable("FAULTS_COUNT").empty()) return;
    std::FILE* file = std::fopen(variable("FAULTS_COUNT").c_str(), "w");
    std::fprintf(file, "%ld", calls.load());
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
  const bool writes = (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
  return writes && fails(path, true) ? -1
                                     : next<int(const char*, int, ...)>("open")(path, flags, mode);
}
int open64(const char*, int, ...) __attribute__((alias("open")));  // the same on 64-bit systems
ssize_t write(int fd, const void* bytes, size_t count) {
  return fails(path_of(fd), true)
             ? -1
             : next<ssize_t(int, const void*, size_t)>("write")(fd, bytes, count);
}
int fsync(int fd) { return fails(path_of(fd), true) ? -1 : next<int(int)>("fsync")(fd); }
int rename(const char* from, const char* to) {
  return fails(from) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}
int mkdir(const char* path, mode_t mode) {
  return fails(path) ? -1 : next<int(const char*, mode_t)>("mkdir")(path, mode);
}
int unlink(const char* path) { return fails(path) ? -1 : next<int(const char*)>("unlink")(path); }
int remove(const char* path) { return fails(path) ? -1 : next<int(const char*)>("remove")(path); }
int unlinkat(int folder, const char* path, int flags) {
  const std::string whole = path[0] == '/' ? path : path_of(folder) + "/" + path;
  return fails(whole) ? -1 : next<int(int, const char*, int)>("unlinkat")(folder, path, flags);
}

}  // extern "C"
