#include <iomanip>

#include "data/dataset.h"
#include "train/lessons/exercises/checks/checks.h"
#include "train/lessons/exercises/gpt.h"
#include "train/schedule.h"

namespace ink {
namespace gpt_check {

// ---- right parts, of which mistakes change one thing

struct How {
  bool mask = true, own_heads = true, proj = true;                        // attention
  bool attention_adds = true, mlp_adds = true, norm = true, gelu = true;  // block
  bool positions = true, last_norm = true, all_blocks = true;             // logits
};

Tensor attention(const SmallBlock& p, const Tensor& x, const How& how = {}) {
  const int64_t B = x.size(0), T = x.size(1), C = x.size(2), d = C / p.heads;
  Tensors heads;
  for (const Tensor& part : split(p.qkv(x), C, 2))
    heads.push_back(how.own_heads ? part.view({B, T, p.heads, d}).transpose(1, 2)
                                  : part.reshape({B, p.heads, T, d}));
  const Tensor y =
      scaled_dot_product_attention(heads[0], heads[1], heads[2], {.is_causal = how.mask});
  const Tensor joined = (how.own_heads ? y.transpose(1, 2) : y).reshape({B, T, C});
  return how.proj ? p.proj(joined) : joined;
}
Tensor block(const SmallBlock& p, const Tensor& x, const How& how = {}) {
  const Tensor mixed = attention(p, how.norm ? p.ln_1(x) : x, how);
  const Tensor y = how.attention_adds ? x + mixed : mixed;
  const Tensor wide = p.up(how.norm ? p.ln_2(y) : y);
  const Tensor mlp = p.down(how.gelu ? gelu(wide) : wide);
  return how.mlp_adds ? y + mlp : mlp;
}
Tensor logits(const SmallGpt& model, const Tensor& ids, const How& how = {}) {
  Tensor x = model.wte(ids);
  if (how.positions) x = x + model.wpe(arange(ids.size(1)));
  for (const SmallBlock& p : model.h) {
    x = block(p, x, how);
    if (!how.all_blocks) break;
  }
  return model.lm_head(how.last_norm ? model.ln_f(x) : x);
}
Tensor loss(const Tensor& x, const Tensor& targets) {
  return cross_entropy(x.reshape({-1, x.size(-1)}), targets.reshape({-1}));
}

// ---- from cases to the functions

SmallGpt made(int64_t heads) {
  SmallGpt model(7, 5, 4, heads, 2);
  uint64_t seed = 1;
  const NoGrad no_grad;
  for (Tensor& x : model.parameters()) x.copy_(noise(seed++, x.shape()) * 0.5);
  return model;
}

// inputs: x, heads
using OfBlock = std::function<Tensor(const SmallBlock&, const Tensor&)>;
Answer of_block(const OfBlock& f) {
  return [f](const Tensors& in) -> Tensors {
    const SmallGpt model = made(static_cast<int64_t>(in[1].item()));
    return {f(model.h[0], in[0]).detach()};
  };
}
// inputs: ids
using OfModel = std::function<Tensor(const SmallGpt&, const Tensor&)>;
Answer of_model(const OfModel& f) {
  return [f](const Tensors& in) -> Tensors { return {f(made(2), in[0]).detach()}; };
}
// inputs: ids, targets. outputs: the losses of three steps, all parameters afterwards
using OfStep = std::function<Tensor(const SmallGpt&, AdamW&, const Tensor&, const Tensor&)>;
Answer of_step(const OfStep& f) {
  return [f](const Tensors& in) -> Tensors {
    const SmallGpt model = made(2);
    AdamW optimizer(model.named_parameters(), {.lr = 0.01});
    Tensors losses, parameters;
    for (int i = 0; i < 3; ++i)
      losses.push_back(f(model, optimizer, in[0], in[1]).detach().reshape({1}));
    for (const Tensor& x : model.parameters()) parameters.push_back(x.detach().reshape({-1}));
    return {cat(losses), cat(parameters)};
  };
}

Answer block_with(Tensor (*f)(const SmallBlock&, const Tensor&, const How&), const How& how) {
  return of_block([=](const SmallBlock& p, const Tensor& x) { return f(p, x, how); });
}
Answer logits_with(const How& how) {
  return of_model(
      [how](const SmallGpt& model, const Tensor& ids) { return logits(model, ids, how); });
}
// actions: 'z' zero_grad, 'b' backward, 's' step
Answer step_with(const std::string& actions) {
  return of_step(
      [actions](const SmallGpt& model, AdamW& optimizer, const Tensor& ids, const Tensor& targets) {
        const Tensor result = loss(logits(model, ids), targets);
        for (const char action : actions) {
          if (action == 'z') optimizer.zero_grad();
          if (action == 'b') result.backward();
          if (action == 's') optimizer.step();
        }
        return result;
      });
}

// ---- the tasks

Task attention_task(const GptParts& parts) {
  const auto of = [](const std::string& name, const Shape& shape, double heads) {
    return Case{name, {noise(20, shape), scalar(heads)}};
  };
  return {"gpt_attention",
          {"y"},
          of_block(parts.attention),
          block_with(attention, {}),
          {of("two heads", {1, 5, 4}, 2), of("one head", {1, 5, 4}, 1),
           of("a single position", {1, 1, 4}, 2), of("batches", {3, 4, 4}, 2)},
          {{block_with(attention, {.mask = false}),
            "There is no mask: positions look at what comes after them."},
           {block_with(attention, {.own_heads = false}),
            "view({B, heads, T, C / heads}) mixes positions: view({B, T, heads, ...}), then "
            "transpose."},
           {block_with(attention, {.proj = false}), "proj, the last linear layer, is missing."}}};
}

Task block_task(const GptParts& parts) {
  return {
      "gpt_block",
      {"y"},
      of_block(parts.block),
      block_with(block, {}),
      {{"one text", {noise(21, {1, 5, 4}), scalar(2)}},
       {"a single position", {noise(22, {1, 1, 4}), scalar(2)}},
       {"batches", {noise(23, {2, 3, 4}), scalar(2)}}},
      {{block_with(block, {.attention_adds = false, .mlp_adds = false}),
        "There are no residuals: both attention and MLP are added to what came in."},
       {block_with(block, {.attention_adds = false}),
        "The first residual is missing: attention is added to x."},
       {block_with(block, {.mlp_adds = false}),
        "The second residual is missing: the MLP is added to what attention left."},
       {block_with(block, {.norm = false}), "Attention and MLP read ln_1(x) and ln_2(x), not x."},
       {block_with(block, {.gelu = false}),
        "There is no gelu between up and down, so that both are one linear layer."}}};
}

Task logits_task(const GptParts& parts) {
  return {"gpt_logits",
          {"y"},
          of_model(parts.logits),
          logits_with({}),
          {{"one text", {tensor({{3, 1, 6, 2, 0}})}},
           {"the same character five times", {tensor({{4, 4, 4, 4, 4}})}},
           {"two short texts", {tensor({{1, 2}, {6, 5}})}},
           {"a single character", {tensor({{2}})}}},
          {{logits_with({.positions = false}),
            "There are no positions: add wpe(arange(T)), or the model sees no order."},
           {logits_with({.last_norm = false}), "ln_f, the norm before lm_head, is missing."},
           {logits_with({.all_blocks = false}), "Only the first block runs. All of model.h do."}}};
}

Task loss_task(const GptParts& parts) {
  return {"gpt_loss",
          {"loss"},
          answer(parts.loss),
          answer(loss),
          {{"one text", {noise(24, {1, 4, 7}), tensor({{3, 1, 6, 2}})}},
           {"batches", {noise(25, {2, 3, 7}), tensor({{0, 0, 1}, {5, 6, 2}})}},
           {"a single position", {noise(26, {1, 1, 7}), tensor({{4}})}}},
          {{answer([](const Tensor& x, const Tensor& y) { return loss(x, y) * y.numel(); }),
            "This is the sum over all positions. The loss is their mean."},
           {answer([](const Tensor& x, const Tensor& y) { return loss(x, y) * y.size(1); }),
            "This is the mean over texts of sums. The loss is the mean over all B T positions."},
           {answer([](const Tensor& x, const Tensor& y) {
              return loss(x.select(1, -1), y.select(1, -1));
            }),
            "Only the last position counts here. Every position predicts its next character."}}};
}

Task step_task(const GptParts& parts) {
  return {
      "gpt_step",
      {"loss", "parameters"},
      of_step(parts.step),
      step_with("zbs"),
      {{"three steps", {tensor({{3, 1, 6, 2, 0}}), tensor({{1, 6, 2, 0, 5}})}},
       {"a batch", {tensor({{3, 1}, {6, 2}}), tensor({{1, 4}, {2, 0}})}}},
      {{step_with("bs"), "zero_grad is missing: the gradients of all steps add up."},
       {step_with("zb"),
        "The parameters stay as they are: backward fills the gradients, and then step uses them."},
       {step_with("szb"),
        "step comes before backward: it uses the gradients of the step before."}}};
}

// ---- training

constexpr double kGoal = 0.9;

// The mean loss of the last 50 steps; every batch is new text, so nothing is learnt by heart.
bool trains(const GptParts& parts, std::ostream& out) {
  const ContextGuard guard;
  context().default_dtype = f32;
  manual_seed(1);
  const FablesDataset data;
  const int64_t B = 8, T = 64, steps = 500;
  const SmallGpt model(data.tokenizer().vocab_size(), T, 64, 4, 2);
  AdamW optimizer(decay_matrices(model.named_parameters(), 0.1), {.beta2 = 0.99, .grad_clip = 1});
  const Schedule lr = warmup_cosine(6e-3, 6e-4, 20, steps);
  out << "\nAll parts are right. Training on stories: " << model.num_parameters()
      << " parameters\n";
  double last = 0, best_possible = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const Batch batch = data.train_batch(1, static_cast<uint64_t>(step), B, T);
    optimizer.set_lr(lr(step));
    const double now =
        parts.step(model, optimizer, from_vector(batch.x, {B, T}), from_vector(batch.y, {B, T}))
            .item();
    if (step >= steps - 50) {
      last += now / 50;
      for (const float p : batch.best_possible) best_possible += p / (50.0 * B * T);
    }
    if (step % 100 == 0 || step == steps - 1)
      out << "  step " << step << "  loss " << std::fixed << std::setprecision(2) << now
          << std::defaultfloat << std::endl;
  }
  const bool reached = last < kGoal;
  out << "The last 50 steps: " << std::fixed << std::setprecision(3) << last
      << (reached ? ", below " : ", expected below ") << kGoal << " (best possible "
      << best_possible << ")\n"
      << std::defaultfloat;
  return reached;
}

}  // namespace gpt_check

Exercise gpt_exercise(const GptParts& parts) {
  using namespace gpt_check;
  return {"15_gpt",
          "lesson 7",
          {"Write the parts in the order in which the check names them, and run it after each. "
           "Shapes first: what is (B, T, C) and what is (B, heads, T, d)?",
           "split(p.qkv(x), C, 2) gives q, k and v. part.view({B, T, heads, C / "
           "heads}).transpose(1, 2) splits heads, and y.transpose(1, 2).reshape({B, T, C}) "
           "joins them again.",
           "A block is x + attention(norm(x)), then x + mlp(norm(x)). A step is forward, "
           "zero_grad, backward, step."},
          {"nn/attention.h", "Tensor operator()(const Tensor& x, KVCache* cache",
           "It is your function with a cache. Attention reads q, k and v where they lie in the "
           "product of qkv: splitting heads copies nothing."},
          {attention_task(parts), block_task(parts), logits_task(parts), loss_task(parts),
           step_task(parts)},
          ".cpp",
          [parts](std::ostream& out) { return trains(parts, out); },
          /*is_a_row=*/true};
}

}  // namespace ink
