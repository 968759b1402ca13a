// What goes wrong on a CUDA device where the host does not look: ids that lead nowhere. The op is
// done without them, and the next wait for the device says so.
#include "autograd/ops.h"
#include "error_of.h"
#include "tests/on_cuda.h"

namespace ink {
namespace {

class CudaErrors : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  static Tensor ids(const std::vector<int64_t>& values) {
    return from_vector(values).to(cuda_device);
  }
  const OnCuda guard_;
};

TEST_F(CudaErrors, TargetOutOfRange) {
  const Tensor logits = randn({5, 65});
  Tensor loss;
  EXPECT_EQ(error_of([&] {
              loss = cross_entropy(logits, ids({1, 2, -100, 70, 64}));
              static_cast<void>(loss.item());
            }),
            "cross_entropy: target 70 at position 3 is out of range for 65 classes");
  EXPECT_TRUE(std::isfinite(loss.item())) << "it is told once";
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits, ids({-1, 2, 3, 4, 5}));
              synchronize(cuda_device);
            }),
            "cross_entropy: target -1 at position 0 is out of range for 65 classes");
  synchronize(cuda_device);
}

// It counts as ignored, on rows of a warp and on rows of a block.
TEST_F(CudaErrors, TargetOutOfRangeIsLeftOut) {
  for (const int64_t n : {64, 5000}) {
    const Tensor logits = randn({3, n}).requires_grad_();
    const Tensor losses = cross_entropy(logits, ids({2, n, 1}), -100, Reduction::none);
    const Tensor others = cross_entropy(logits, ids({2, -100, 1}), -100, Reduction::none);
    const Tensor dlogits = grad({losses}, {logits}, {ones({3})})[0];
    EXPECT_EQ(error_of([&] { synchronize(cuda_device); }),
              "cross_entropy: target " + std::to_string(n) + " at position 1 is out of range for " +
                  std::to_string(n) + " classes");
    EXPECT_TRUE(same_bits(losses, others));
    EXPECT_EQ(sum(abs(dlogits.select(0, 1))).item(), 0);
    EXPECT_GT(sum(abs(dlogits.select(0, 2))).item(), 0);
  }
}

TEST_F(CudaErrors, IdOutOfRange) {
  const Tensor table = randn({4, 6}).requires_grad_();
  const Tensor y = embedding(ids({3, 4, 0}), table);
  const Tensor dtable = grad({y}, {table}, {ones({3, 6})})[0];
  EXPECT_EQ(error_of([&] { synchronize(cuda_device); }),
            "embedding: id 4 at position 1 is out of range for 4 rows");
  EXPECT_EQ(y.select(0, 1).tolist(), std::vector<double>(6, 0));
  EXPECT_EQ(y.select(0, 0).tolist(), table.select(0, 3).tolist());
  EXPECT_EQ(sum(dtable, {1}).tolist(), (std::vector<double>{6, 0, 0, 6}));
}

TEST_F(CudaErrors, TheFirstOpIsTold) {
  const Tensor table = randn({4, 6});
  embedding(ids({-3}), table);
  cross_entropy(table, ids({0, 9, 1, 2}));
  EXPECT_EQ(error_of([&] { synchronize(cuda_device); }),
            "embedding: id -3 at position 0 is out of range for 4 rows");
  synchronize(cuda_device);
}

}  // namespace
}  // namespace ink
