#include "nn/llama.h"

#include "autograd/ops.h"
#include "nn/init.h"

namespace ink {

void Llama::init_weights() {
  const double residual_std = draw_layers();
  for (const LlamaBlock& block : model.layers) {
    init::normal_(block.self_attn.o_proj.weight, 0, residual_std);
    init::normal_(block.mlp.down_proj.weight, 0, residual_std);
  }
}

Tensor Llama::loss(const Tensor& ids, const Tensor& targets, Reduction reduction) const {
  const AuxiliaryLoss auxiliary;
  const Tensor x = model(ids);
  const double z = training ? z_loss : 0;
  const Tensor loss = llama_config.logit_softcap > 0
                          ? cross_entropy(head(x), targets, -100, reduction, z)
                          : linear_cross_entropy(x, lm_head.weight, targets, -100, reduction, z);
  return auxiliary.added_to(loss, targets, reduction);
}

std::vector<Tensor> Llama::attention_weights(const Tensor& ids) const {
  INK_CHECK(ids.dim() == 2 && ids.size(0) == 1, "attention_weights: expected ids (1, T), got ",
            ids.shape());
  const NoGrad no_grad;
  std::vector<Tensor> weights;
  Tensor x = model.embed_tokens(ids);
  for (const LlamaBlock& block : model.layers) {
    weights.push_back(
        block.self_attn.weights(block.input_layernorm(x), model.rotary_emb).select(0, 0));
    const auto [sum, branch] = block(x, {}, model.rotary_emb, nullptr);
    x = branch.added_to(sum);
  }
  return weights;
}

}  // namespace ink
