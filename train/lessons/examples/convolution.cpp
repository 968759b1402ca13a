// A convolutional network that tells shapes apart, in pictures of 8 x 8 that it draws itself.
//
// inkling has no convolution. This program makes one out of ops that exist, a layer out of that,
// and checks the gradients of the layer before it trains. It succeeds (exit status 0) if 95 % of
// the pictures that it never saw are told apart. LeCun et al. 1989.
#include <inkling/autograd/ops.h>
#include <inkling/nn/gradcheck_module.h>
#include <inkling/nn/linear.h>
#include <inkling/train/optimizer.h>
#include <inkling/train/schedule.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace ink;

/// x (B, C, H, W), weight (O, C, k, k) -> (B, O, H - k + 1, W - k + 1):
///   y[b,o,i,j] = sum over c, u, v of weight[o,c,u,v] x[b,c,i+u,j+v].
/// unfold is a view: every k x k window of x, without a copy. The sum is a matrix product, which
/// brings the gradients along.
Tensor conv2d(const Tensor& x, const Tensor& weight) {
  const int64_t k = weight.size(2);
  const Tensor windows = unfold(unfold(x, 2, k, 1), 3, k, 1);  // (B, C, H', W', k, k)
  return einsum("bcijuv,ocuv->boij", {windows, weight});
}

/// The largest of every 2 x 2 block: (B, C, H, W) -> (B, C, H / 2, W / 2).
Tensor max_pool2d(const Tensor& x) { return amax(unfold(unfold(x, 2, 2, 2), 3, 2, 2), {4, 5}); }

/// 3 x 3 filters, with zeros around the picture, so that it keeps its size.
struct Conv2d : Module {
  Parameter weight, bias;
  Conv2d(int64_t in, int64_t out)
      : weight(randn({out, in, 3, 3}) * std::sqrt(2.0 / (9.0 * in))), bias(zeros({out, 1, 1})) {}
  Tensor operator()(const Tensor& x) const { return conv2d(pad(x, {1, 1, 1, 1}), weight) + bias; }
  INK_FIELDS(weight, bias)
};

struct Net : Module {
  Conv2d conv_1{1, 8}, conv_2{8, 16};
  Linear head{16, 4};
  /// Logits (B, 4) of pictures (B, 1, 8, 8).
  Tensor operator()(const Tensor& x) const {
    const Tensor features = conv_2(max_pool2d(relu(conv_1(x))));  // (B, 16, 4, 4)
    return head(amax(relu(features), {2, 3}));                    // wherever the shape is
  }
  INK_FIELDS(conv_1, conv_2, head)
};

// A bar across, a bar down, a cross or a square, 5 x 5, somewhere in the picture.
const std::vector<std::string> kShapes = {"..........#####..........", "..#....#....#....#....#..",
                                          "..#....#..#####..#....#..", "######...##...##...######"};

struct Pictures {
  Tensor x;      // (n, 1, 8, 8)
  Tensor shape;  // (n)
};

Pictures draw(int64_t n) {
  const Tensor shape = randint(4, {n}), corner = randint(4, {n, 2});
  std::vector<double> ink(static_cast<size_t>(n) * 64);
  for (int64_t i = 0; i < n; ++i) {
    const std::string& drawn = kShapes[static_cast<size_t>(shape[i].item<int64_t>())];
    const int64_t top = corner[i][0].item<int64_t>(), left = corner[i][1].item<int64_t>();
    for (int64_t p = 0; p < 25; ++p)
      if (drawn[static_cast<size_t>(p)] == '#')
        ink[static_cast<size_t>(64 * i + 8 * (top + p / 5) + left + p % 5)] = 1;
  }
  return {from_vector(ink, {n, 1, 8, 8}).to(f32) + randn({n, 1, 8, 8}) * 0.3, shape};
}

}  // namespace

int main(int, char** argv) {
  set_wait_policy(argv);  // threads with nothing to do sleep
  manual_seed(1);
  Conv2d small(2, 3);
  const GradcheckReport report = gradcheck_module(small, randn({2, 2, 4, 4}));
  std::cout << report << "\n";
  if (!report.ok) return 1;

  const Pictures seen = draw(1000), unseen = draw(500);
  Net model;
  const int steps = 300;
  AdamW optimizer(model.named_parameters(), {.grad_clip = 1});
  const Schedule lr = warmup_cosine(1e-2, 1e-4, 20, steps);
  for (int step = 0; step < steps; ++step) {
    const Tensor batch = randint(seen.x.size(0), {32});
    const Tensor loss = cross_entropy(model(seen.x.index(batch)), seen.shape.index(batch));
    loss.backward();
    optimizer.set_lr(lr(step));
    optimizer.step();
    optimizer.zero_grad();
    if (step % 100 == 0) std::printf("step %3d  loss %.3f\n", step, loss.item());
  }

  const NoGrad no_grad;
  const double right = mean((argmax(model(unseen.x), -1) == unseen.shape).to(f32)).item();
  std::printf("right: %.1f %% of the pictures that it never saw\n", 100 * right);
  return right >= 0.95 ? 0 : 1;
}
