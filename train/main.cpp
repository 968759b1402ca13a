#include "train/command_line.h"

int main(int argc, char** argv) { return ink::run_command_line(argc, argv); }
