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
          merges_exercise({}, {}),
          rms_norm_exercise({}, {}),
          swiglu_exercise({}, {}),
          clipping_exercise({}),
          top_p_exercise({}),
          accumulation_exercise({}),
          strides_exercise({}, {}),
          loader_exercise({}),
          ranks_exercise({}),
          versions_exercise({}, {}),
          checkpointing_exercise({}),
          flops_exercise({}, {}),
          gpu_add_exercise({}),
          gpu_softmax_exercise({}),
          gpu_product_exercise({}),
          gpu_sum_exercise({})};
}

}  // namespace ink
