#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops.h"

namespace ink {
namespace {

TEST(Graph, SharedLeafCollectsBothPaths) {
  Tensor x = tensor({1.0, 2.0, 3.0});
  x.requires_grad_();
  const Tensor y = exp(x) * x + x;
  sum(y).backward();
  const auto dx = x.grad().tolist();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(dx[i], std::exp(i + 1) * (i + 2) + 1, 1e-4);
}

TEST(Graph, ChainOfAMillionNodesIsBuiltWalkedAndFreed) {
  {
    Tensor x = ones({1});
    x.requires_grad_();
    Tensor y = x;
    for (int i = 0; i < 1000000; ++i) y = y + x;
    EXPECT_GE(Node::live, 1000000);
    y.backward();
    EXPECT_EQ(x.grad().item(), 1000001);
    Tensor unwalked = x;
    for (int i = 0; i < 1000000; ++i) unwalked = exp(unwalked * unwalked);
  }
  EXPECT_EQ(Node::live, 0);
}

}  // namespace
}  // namespace ink
