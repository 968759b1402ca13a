// Two moons: to which of two half circles does a point belong?
//
// The smallest whole program: data, a network, a loop, a figure. It succeeds (exit status 0) if
// 98 % of the points that it never saw are told apart.
#include <inkling/autograd/ops.h>
#include <inkling/nn/activation.h>
#include <inkling/nn/linear.h>
#include <inkling/train/optimizer.h>
#include <inkling/train/schedule.h>

#include <cstdio>
#include <numbers>

namespace {

using namespace ink;

struct Points {
  Tensor x;     // (n, 2)
  Tensor moon;  // (n): 0 or 1
};

Points draw(int64_t n) {
  const Tensor moon = randint(2, {n});
  const Tensor angle = rand({n}) * std::numbers::pi, side = moon * 2.0 - 1.0;
  // The lower moon is the upper one turned upside down, and moved to the right.
  const Tensor x = moon - side * cos(angle), y = 0.5 * moon - side * sin(angle);
  return {stack({x, y}, 1) + randn({n, 2}) * 0.1, moon};
}

double accuracy(const Sequential& model, const Points& points) {
  const NoGrad no_grad;
  return mean((argmax(model(points.x), -1) == points.moon).to(f32)).item();
}

}  // namespace

int main(int, char** argv) {
  set_wait_policy(argv);  // threads with nothing to do sleep
  manual_seed(1);
  const Points seen = draw(500), unseen = draw(1000);
  Sequential model{Linear(2, 32), Tanh(), Linear(32, 32), Tanh(), Linear(32, 2)};
  std::printf("%lld parameters\n", static_cast<long long>(model.num_parameters()));

  const int steps = 600;
  AdamW optimizer(model.named_parameters(), {.grad_clip = 1});
  const Schedule lr = warmup_cosine(1e-2, 1e-4, 20, steps);
  for (int step = 0; step < steps; ++step) {
    const Tensor batch = randint(seen.x.size(0), {64});
    const Tensor loss = cross_entropy(model(seen.x.index(batch)), seen.moon.index(batch));
    loss.backward();
    optimizer.set_lr(lr(step));
    optimizer.step();
    optimizer.zero_grad();
    if (step % 150 == 0) std::printf("step %3d  loss %.3f\n", step, loss.item());
  }
  const double right = accuracy(model, unseen);
  std::printf("right: %.1f %% of the points that it never saw\n", 100 * right);
  return right >= 0.98 ? 0 : 1;
}
