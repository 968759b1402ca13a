#include "autograd/base/parallel.h"
#include "train/cli/command_line.h"

int main(int argc, char** argv) {
  ink::set_wait_policy(argv);
  return ink::run_command_line(argc, argv);
}
