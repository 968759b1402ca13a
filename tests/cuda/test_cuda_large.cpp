// Tensors of more than 2^31 elements on a GPU: kernels that count in 32 bits go wrong there. Looked
// at are both ends and the elements around the 2^31-th. Needs a real GPU with 30 GB to spare.
#include <gtest/gtest.h>

#include <vector>

#include "autograd/memory/device_backend.h"
#include "autograd/ops.h"

namespace ink {
namespace {

constexpr Device gpu{Device::CUDA, 0};
constexpr int64_t kRows = 65539, kCols = 32771;  // odd: rows begin at every alignment
constexpr int64_t kMany = kRows * kCols, kEdge = int64_t{1} << 31;
static_assert(kMany > kEdge + 2 * kCols);

class CudaLarge : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
    if (describe(gpu) == "emulated GPU") GTEST_SKIP() << "the emulated GPU has 4 GB";
    try {  // kept by the allocator for what follows
      static_cast<void>(empty({int64_t{30'000'000'000}}, {boolean, gpu}));
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  void TearDown() override {
    if (cuda_device_count() > 0) empty_cache(gpu);
  }
  const FieldGuard<Device> device_{&Context::default_device, gpu};
};

const std::vector<int64_t>& places() {
  static const std::vector<int64_t> all = {0,         1,     kCols,     kEdge - 2,
                                           kEdge - 1, kEdge, kEdge + 1, kMany - 1};
  return all;
}
// The element at a place, in row-major order, of a tensor of kMany elements or more.
double at(const Tensor& x, int64_t place) { return x.view({-1}).narrow(0, place, 1).item(); }

// What pattern() holds: exact in bf16.
double expected(int64_t row, int64_t col) { return static_cast<double>(8 * (row % 5) + col % 7); }
double expected(int64_t place) { return expected(place / kCols, place % kCols); }
Tensor cycle(int64_t n, int64_t period, double step) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = step * static_cast<double>(i % period);
  return from_vector(values).to(bf16).to(gpu);
}
Tensor pattern() { return cycle(kRows, 5, 8).view({kRows, 1}) + cycle(kCols, 7, 1); }

TEST_F(CudaLarge, Fill) {
  Tensor x = zeros({kMany + 1}, boolean);
  x.narrow(0, 0, kMany).fill_(1);
  for (const int64_t place : places()) EXPECT_EQ(at(x, place), 1) << place;
  EXPECT_EQ(at(x, kMany), 0);
}

TEST_F(CudaLarge, AddWithBroadcasting) {
  const Tensor x = pattern();
  for (const int64_t place : places()) EXPECT_EQ(at(x, place), expected(place)) << place;
  const Tensor twice = x + x;
  for (const int64_t place : places()) EXPECT_EQ(at(twice, place), 2 * expected(place)) << place;
}

TEST_F(CudaLarge, Copy) {
  const Tensor x = pattern();
  Tensor y = x.clone();
  for (const int64_t place : places()) EXPECT_EQ(at(y, place), expected(place)) << place;
  y = Tensor();
  const Tensor turned = x.T().contiguous();
  for (const int64_t place : places())
    EXPECT_EQ(at(turned, place), expected(place % kRows, place / kRows)) << place;
  const Tensor converted = (x > 30).to(bf16);
  for (const int64_t place : places())
    EXPECT_EQ(at(converted, place), expected(place) > 30) << place;
}

// Ones at the places that are looked at, zeros elsewhere.
TEST_F(CudaLarge, Sum) {
  Tensor x = zeros({kMany}, bf16);
  for (const int64_t place : places()) x.narrow(0, place, 1).fill_(1);
  EXPECT_EQ(sum(x).item(), static_cast<double>(places().size()));
  EXPECT_EQ(amax(x).item(), 1);
  EXPECT_EQ(argmax(x.narrow(0, 2 * kCols, kMany - 2 * kCols)).item(), kEdge - 2 - 2 * kCols);
  for (const int64_t dim : {0, 1}) {
    const Tensor sums = sum(x.view({kRows, kCols}), {dim}).to(cpu_device);
    std::vector<double> wanted(static_cast<size_t>(sums.numel()));
    for (const int64_t place : places())
      ++wanted[static_cast<size_t>(dim == 0 ? place % kCols : place / kCols)];
    EXPECT_EQ(sums.tolist(), wanted) << "along dimension " << dim;
  }
}

TEST_F(CudaLarge, Gather) {
  const Tensor x = pattern();
  std::vector<int64_t> backwards(static_cast<size_t>(kCols));
  for (size_t i = 0; i < backwards.size(); ++i) backwards[i] = kCols - 1 - static_cast<int64_t>(i);
  const Tensor ids = from_vector(backwards).to(gpu).expand({kRows, kCols});
  const Tensor y = gather(x, 1, ids);
  for (const int64_t place : places())
    EXPECT_EQ(at(y, place), expected(place / kCols, kCols - 1 - place % kCols)) << place;
}

TEST_F(CudaLarge, SoftmaxOverRows) {
  const Tensor x = pattern() / 8, y = softmax(x);
  for (const int64_t row : {int64_t{0}, kEdge / kCols - 1, kEdge / kCols, kRows - 1}) {
    const FieldGuard<Device> on_cpu(&Context::default_device, cpu_device);
    const auto values = y.select(0, row).to(cpu_device).tolist(),
               wanted = softmax(x.select(0, row).to(cpu_device)).tolist();
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], wanted[i], 0.01 * wanted[i]) << "row " << row << ", element " << i;
  }
}

}  // namespace
}  // namespace ink
