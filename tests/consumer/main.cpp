// Defines an op and a layer outside of inkling, checks their gradients, trains them with AdamW and
// a schedule, saves and loads them, trains a GPT with the Trainer, and sees errors arrive as
// exceptions. Holds the GPU's backend only if it links it.
#include <inkling/autograd/autograd.h>
#include <inkling/data/tokenizer.h>
#include <inkling/nn/linear.h>
#include <inkling/train/optimizer.h>
#include <inkling/train/schedule.h>
#include <inkling/train/trainer.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

using ink::Grads, ink::Tensor;

// y = x^2.   dx = 2 x dy
Tensor squared(const Tensor& x) {
  return ink::record(
      "squared", {x}, (x * x).detach(),
      [x = ink::Saved::input(x)](const Tensor& dy) -> Grads { return {dy * *x * 2.0}; });
}

struct Twice : ink::Module {
  ink::Linear first, second;
  Twice() : first(4, 3), second(3, 2) {}
  Tensor operator()(const Tensor& x) const { return second(squared(first(x))); }
  INK_FIELDS(first, second)
};

#ifdef LINKS_CUDA
constexpr bool links_cuda = true;
#else
constexpr bool links_cuda = false;
#endif

// A loop of one's own; says whether the loss fell, and whether a saved model gives the same result.
bool trains_saves_and_loads(const std::filesystem::path& folder) {
  Twice model;
  const Tensor x = ink::randn({32, 4}), target = square(x).narrow(1, 0, 2);
  ink::AdamW optimizer(ink::decay_matrices(model.named_parameters(), 0.01), {.grad_clip = 1});
  const ink::Schedule lr = ink::warmup_cosine(1e-2, 1e-3, 5, 50);
  double first = 0, last = 0;
  for (int64_t step = 0; step < 50; ++step) {
    optimizer.set_lr(lr(step));
    const Tensor loss = ink::mse_loss(model(x), target);
    loss.backward();
    optimizer.step(loss);
    optimizer.zero_grad();
    last = loss.item();
    if (step == 0) first = last;
  }
  ink::save(folder / "twice.safetensors", model.state_dict());
  Twice again;
  again.load_state_dict(ink::load(folder / "twice.safetensors"));
  return last < 0.7 * first && ink::equal(again(x), model(x));
}

// A run of the Trainer's, resumed.
bool resumes_a_run(const std::filesystem::path& folder) {
  ink::TrainConfig config;
  config.n_layer = 1;
  config.n_embd = 32;
  config.block_size = 16;
  config.out_dir = folder / "run";
  {
    ink::Trainer trainer(config);
    trainer.step();
    trainer.save("ckpt");
  }
  config.init_from = "resume";
  ink::Trainer trainer(config);
  trainer.step();
  return trainer.steps_done() == 2;
}

int main() {
  if ((ink::cuda_backend != nullptr) != links_cuda) {
    std::cout << "expected " << (links_cuda ? "the" : "no") << " CUDA backend\n";
    return 1;
  }
  if (ink::ByteTokenizer().vocab_size() != 256) return 1;
  Twice model;
  model.to(ink::f64);
  std::vector<Tensor> inputs = model.parameters();
  inputs.push_back(ink::randn({5, 4}, ink::f64).requires_grad_());
  const auto report =
      ink::gradcheck([&](const std::vector<Tensor>& x) { return model(x.back()); }, inputs);
  std::cout << report << "\n";
  try {
    ink::matmul(ink::ones({3, 4}), ink::ones({5, 6}));
    return 1;
  } catch (const ink::Error& error) {
    std::cout << error.what() << "\n";
  }
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "inkling-consumer";
  std::filesystem::create_directories(folder);
  const bool right = report.ok && trains_saves_and_loads(folder) && resumes_a_run(folder);
  std::filesystem::remove_all(folder);
  return right ? 0 : 1;
}
