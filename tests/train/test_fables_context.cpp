// Slow: the built-in language needs a memory. A GPT of the default size that sees eight characters
// trains until it learns no more, and stays clearly above the loss that is possible.
#include <gtest/gtest.h>

#include <iostream>

#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "data/dataset.h"
#include "nn/gpt.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace ink {
namespace {

constexpr int64_t kContext = 8, kRows = 16, kLength = 256;

struct Windows {
  Tensor x, y;  // (n, 8): windows side by side from everywhere in the stories
  /// Mean over the last target of each, which has all eight characters before it.
  double best_possible;
};

Windows windows_of(const Batch& batch) {
  const int64_t n = batch.batch_size * batch.block_size / kContext;
  double best_possible = 0;
  for (int64_t i = 0; i < n; ++i)
    best_possible += batch.best_possible[static_cast<size_t>(i * kContext + kContext - 1)];
  return {from_vector(batch.x, Shape{n, kContext}), from_vector(batch.y, Shape{n, kContext}),
          best_possible / static_cast<double>(n)};
}

double last_loss(const GPT& model, const Windows& windows) {
  const NoGrad no_grad;
  const Tensor logits = model(windows.x).select(1, kContext - 1);
  return cross_entropy(logits, windows.y.select(1, kContext - 1)).item();
}

TEST(Fables, EightCharactersOfContextAreNotEnough) {
  const FablesDataset data;
  GPTConfig config;
  config.block_size = kContext;
  config.vocab_size = data.tokenizer().vocab_size();
  config.n_layer = 2;
  config.n_head = 4;
  config.n_embd = 128;
  config.bias = false;
  manual_seed(1);
  GPT model(config);
  AdamW optimizer(decay_matrices(model.named_parameters(), 0.1), {.beta2 = 0.99, .grad_clip = 1});
  constexpr int64_t kSteps = 2500;
  const Schedule lr = warmup_cosine(3e-3, 1e-5, 50, kSteps);
  const Windows held_out = windows_of(data.val_window_batch(0, 200, kLength));
  double halfway = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Windows windows =
        windows_of(data.train_batch(1, static_cast<uint64_t>(step), kRows, kLength));
    const Tensor loss = model.loss(windows.x, windows.y);
    loss.backward();
    optimizer.set_lr(lr(step));
    optimizer.step(loss);
    optimizer.zero_grad();
    if (step == kSteps / 2) halfway = last_loss(model, held_out);
  }
  const double reached = last_loss(model, held_out);
  std::cout << "context 8: " << reached << " nats a character (halfway " << halfway
            << "), best possible with all of it " << held_out.best_possible << "\n";
  EXPECT_LT(halfway / reached, 1.15) << "it was still learning";
  EXPECT_GT(reached, 1.1 * held_out.best_possible);
}

}  // namespace
}  // namespace ink
