#include "autograd/base/parallel.h"

#include <unistd.h>

#include <cstdlib>

namespace ink {

void set_wait_policy(char** argv) {
  for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (std::getenv(name) != nullptr) return;
  }
  setenv("GOMP_SPINCOUNT", "1000", 1);
  setenv("KMP_BLOCKTIME", "1", 1);  // ms
  execv("/proc/self/exe", argv);    // returns only if it fails; the program is then only slower
}

}  // namespace ink
