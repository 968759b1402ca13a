#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/gpt.h"

namespace ink {

std::vector<Exercise> exercises() {
  return {chain_rule_exercise({}),
          broadcasting_exercise({}),
          matmul_exercise({}),
          embedding_exercise({}),
          softmax_exercise({}),
          cross_entropy_exercise({}, {}),
          layer_norm_exercise({}, {}),
          tape_exercise({}),
          attention_exercise({}),
          attention_backward_exercise({}),
          dropout_exercise({}, {}),
          adamw_exercise({}),
          rotary_exercise({}),
          cache_exercise({}),
          gpt_exercise({}),
          merges_exercise({}, {})};
}

}  // namespace ink
