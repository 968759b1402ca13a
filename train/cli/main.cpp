#include "autograd/base/parallel.h"
#include "train/cli/command_line.h"

// A sanitizer has its own first function.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <sys/mman.h>
#include <unistd.h>

namespace {

// OpenBLAS allocates this much when it is loaded, and retries for ever if it cannot (ulimit -v). So
// the program checks first: this function runs before the constructors of its libraries.
void check_address_space(int, char**, char**) {
  constexpr size_t kBytes = size_t{256} << 20;
  void* memory =
      mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) {
    munmap(memory, kBytes);
    return;
  }
  constexpr char kError[] =
      "inkling: cannot have 256 MB of address space, which OpenBLAS takes; raise the limit "
      "(ulimit -v)\n";
  static_cast<void>(!write(STDERR_FILENO, kError, sizeof kError - 1));
  _exit(1);
}
[[gnu::used,
  gnu::section(".preinit_array")]] void (*const check_first)(int, char**,
                                                             char**) = check_address_space;

}  // namespace
#endif

int main(int argc, char** argv) {
  ink::set_wait_policy(argv);
#ifdef INKLING_ALL_COMMANDS
  return ink::run_command_line(argc, argv);
#else
  return ink::run_commands(argc, argv, {});
#endif
}
