// The code of README.md, compiled and run; and a check that it is the same code.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "autograd/basic_ops.h"
#include "autograd/inspect/gradcheck.h"
#include "nn/linear.h"

namespace ink {
namespace {

// quick_gelu: y = x s, s = 1 / (1 + exp(-1.702 x))   dx = dy s (1 + 1.702 x (1 - s))
Tensor quick_gelu(const Tensor& x) {
  const Tensor y = x.detach() * sigmoid(x.detach() * 1.702);
  return record("quick_gelu", {x}, y, [x = Saved::input(x)](const Tensor& dy) -> Grads {
    const Tensor s = sigmoid(*x * 1.702);
    return {dy * s * (1 + *x * 1.702 * (1 - s))};
  });
}

struct Gated : Module {
  Linear gate, value;
  explicit Gated(int64_t n) : gate(n, n), value(n, n) {}
  Tensor operator()(const Tensor& x) const { return sigmoid(gate(x)) * quick_gelu(value(x)); }
  INK_FIELDS(gate, value)
};

TEST(Readme, Tensors) {
  Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  x.requires_grad_();
  Tensor y = sum(exp(x) * x);
  y.backward();
  std::cout << x.grad() << "\n";
  EXPECT_NEAR(x.grad().tolist()[3], std::exp(4) * 5, 1e-3);
}

TEST(Readme, Gradcheck) {
  Gated layer(4);
  layer.to(f64);
  auto inputs = layer.parameters();
  inputs.push_back(randn({3, 4}, f64).requires_grad_());
  GradcheckReport report = gradcheck([&](const auto& x) { return layer(x.back()); }, inputs);
  std::cout << report << "\n";
  EXPECT_TRUE(report.ok);
}

// README breaks lines where they read best.
std::string without_space(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

std::string read_file(const std::string& name) {
  std::ifstream in(INKLING_SOURCE_DIR "/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Readme, ItsCodeIsTheCodeAbove) {
  const std::string readme = read_file("README.md"),
                    here = without_space(read_file("tests/cli/test_readme.cpp"));
  int blocks = 0;
  for (size_t at = readme.find("```cpp\n"); at != std::string::npos;
       at = readme.find("```cpp\n", at + 1)) {
    const size_t start = at + 7, end = readme.find("```", start);
    const std::string code = without_space(readme.substr(start, end - start));
    EXPECT_NE(here.find(code), std::string::npos) << code;
    ++blocks;
  }
  EXPECT_EQ(blocks, 4);
}

}  // namespace
}  // namespace ink
