#include <unistd.h>

#include <cstdlib>

#include "train/command_line.h"

// Threads that wait for others spin for 20 ms by default (libgomp), and a step takes twice the time
// where another program wants a core. OpenMP reads its environment once, when it is loaded: so set
// it and start over, which takes 3 ms. Waiting 0.1 ms costs nothing where all cores are free.
static void spin_briefly(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);
  execv("/proc/self/exe", argv);  // returns only if it cannot: then nothing is lost but time
}

int main(int argc, char** argv) {
  spin_briefly(argv);
  return ink::run_command_line(argc, argv);
}
