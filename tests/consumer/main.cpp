// Defines an op and a layer outside of inkling, checks their gradients, and sees errors arrive as
// exceptions. Holds the GPU's backend only if it links it.
#include <autograd/device_backend.h>
#include <autograd/gradcheck.h>
#include <autograd/ops.h>
#include <data/tokenizer.h>
#include <nn/linear.h>

#include <iostream>
#include <vector>

using ink::Grads, ink::Tensor;

// y = x^2.   dx = 2 x dy
Tensor square(const Tensor& x) {
  return ink::record(
      "square", {x}, (x * x).detach(),
      [x = ink::Saved::input(x)](const Tensor& dy) -> Grads { return {dy * *x * 2.0}; });
}

struct Twice : ink::Module {
  ink::Linear first, second;
  Twice() : first(4, 3), second(3, 2) {}
  Tensor operator()(const Tensor& x) const { return second(square(first(x))); }
  INK_FIELDS(first, second)
};

#ifdef LINKS_CUDA
constexpr bool links_cuda = true;
#else
constexpr bool links_cuda = false;
#endif

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
  return report.ok ? 0 : 1;
}
