#include "train/cli/command_line.h"

namespace ink {

int run_command_line(int argc, char** argv) {
  const Commands others = {
      {"bench", bench_command},       {"look", look_command},
      {"draw", draw_command},         {"gradcheck", gradcheck_command},
      {"lesson", lesson_command},     {"walkthrough", walkthrough_command},
      {"exercise", exercise_command}, {"tokenizer", tokenizer_command},
      {"prepare", prepare_command},   {"suggest", suggest_command},
#ifndef INKLING_NO_SEEDHUNT
      {"seedhunt", seedhunt_command},
#endif
  };
  return run_commands(argc, argv, others);
}

}  // namespace ink
