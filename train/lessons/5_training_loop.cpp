// A training loop: load, forward, backward, clip, step
//
// The same five steps train every network, from this one to a GPT. Afterwards you can write them
// without looking, and say what goes wrong when one is missing. The task: points lie on two moons,
// two half circles that reach into each other. The network says on which one a point lies.
#include <numbers>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "nn/activation.h"
#include "nn/clip_grad.h"
#include "nn/linear.h"
#include "train/lessons/notebook.h"
#include "train/optimizer.h"

namespace ink {
namespace {

struct Lesson5 : Notebook {
  // ---- 1. The data
  Tensor points, moons;  // positions (400, 2), and for each the number of its moon (400)

  void step_1() {
    // Training magnifies rounding errors, which differ from one processor to the next. In f64 they
    // stay far below the digits printed here, so that you see the same digits. context() holds the
    // settings of the current thread.
    context().default_dtype = f64;
    manual_seed(1);
    const int64_t n = 200;  // points on each moon
    const Tensor angle = linspace(0, std::numbers::pi, n);
    const Tensor upper = stack({cos(angle), sin(angle)}, 1);
    const Tensor lower = stack({1 - cos(angle), 0.5 - sin(angle)}, 1);
    points = cat({upper, lower}) + randn({2 * n, 2}) * 0.1;
    moons = cat({zeros({n}, i64), ones({n}, i64)});
    print("points", tuple(points.shape()), "moons", tuple(moons.shape()));
  }

  // ---- 2. The model and the loop
  Sequential model;

  void step_2() {
    model = Sequential{Linear(2, 16), Tanh(), Linear(16, 16), Tanh(), Linear(16, 2)};
    print("parameters:", model.num_parameters());

    // The model gives two logits per point, and the loss is their cross-entropy. A model that only
    // guesses has a loss of log 2 = 0.69. AdamW is an optimizer: at each step it moves every
    // parameter by up to about lr, the learning rate, however large or small its gradients are. It
    // goes by averages of the gradients so far.
    AdamW optimizer(model.named_parameters(), {.lr = 1e-2});
    for (int step = 0; step < 400; ++step) {
      // Load a random batch. Its gradient costs less than that of all points, and on average it
      // is the same.
      const Tensor batch = randint(points.size(0), {32});
      const Tensor x = points.index(batch), target = moons.index(batch);
      // Forward, from inputs to one number.
      const Tensor loss = cross_entropy(model(x), target);
      // Backward, from that number to a gradient for every parameter. Those of the step before
      // are cleared first, because gradients add up.
      optimizer.zero_grad();
      loss.backward();
      // Clip. All gradients together are one long vector. If it is longer than 1, it is scaled
      // down to 1, so that one odd batch cannot outweigh many others in these averages. norm is its
      // length before.
      const Tensor norm = clip_grad_norm_(model.parameters(), 1.0);
      // Step: every parameter moves against its gradient.
      optimizer.step();
      if (step % 100 == 0)
        print("step", step, "loss", fixed(loss.item(), 3), "norm", fixed(norm.item(), 2));
    }
  }

  // ---- 3. What it has learnt
  double accuracy() const {
    const NoGrad no_grad;  // nothing will be differentiated, so no graph is recorded
    return mean((argmax(model(points), -1) == moons).to(f64)).item();
  }

  void step_3() {
    // Each point belongs to the moon with the larger logit.
    print("right:", fixed(100 * accuracy(), 1), "% of the points");

    // Here is the plane from (-1.5, 1.5) to (2.5, -1), with a # where the model says moon 1.
    std::string map;
    for (double y = 1.5; y > -1.1; y -= 0.25) {
      const Tensor x = linspace(-1.5, 2.5, 61);
      const Tensor row = argmax(model(stack({x, full_like(x, y)}, 1)), -1);
      if (!map.empty()) map += '\n';
      for (const int64_t moon : row.tolist<int64_t>()) map += moon == 1 ? '#' : '.';
    }
    print(map);

    // To try: leave out zero_grad. Old gradients then add to new ones, and the loss of step 300 is
    // ten times as large. Leave out clip_grad_norm_ or the Tanh layers, one at a time, and compare
    // the losses. Then take SGD instead of AdamW, and find its best learning rate. It moves every
    // parameter by lr times its gradient.
  }
};

}  // namespace

Lesson lesson_5() {
  using N = Lesson5;
  return lesson<N>("5_training_loop", {&N::step_1, &N::step_2, &N::step_3});
}

}  // namespace ink
