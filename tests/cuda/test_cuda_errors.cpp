// What goes wrong on a CUDA device where the host does not look: ids that lead nowhere. The op is
// done without them, and the next wait for the device says so.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/kernels/kernel.h"
#include "autograd/ops.h"
#include "autograd/replay.h"
#include "tests/cuda/on_cuda.h"
#include "tests/support/error_of.h"

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

// What it leads to is zeros, or left out of a sum.
TEST_F(CudaErrors, IndexOutOfRange) {
  const Tensor x = randn({4, 6});
  const auto told = [](const std::function<Tensor()>& op) {
    return error_of([&] { static_cast<void>(op().tolist()); });
  };
  EXPECT_EQ(told([&] {
              return gather(x, 1, ids({0, 1, 6, 3}).view({4, 1}));
            }),
            "gather: index 6 is out of range for dimension 1 of (4, 6)");
  EXPECT_EQ(told([&] {
              return index_select(x, 0, ids({0, -1, 3}));
            }),
            "index_select: index -1 is out of range for dimension 0 of (4, 6)");
  EXPECT_EQ(told([&] {
              return x.index(ids({0, -4, 3, 4}));
            }),
            "index: index 4 is out of range for dimension 0 of (4, 6)");
  EXPECT_EQ(told([&] {
              return x.index(ids({0, -5, 3}));
            }),
            "index: index -5 is out of range for dimension 0 of (4, 6)");
  EXPECT_EQ(told([&] {
              return one_hot(ids({0, 9, 3}), 4);
            }),
            "one_hot: index 9 is out of range for dimension 1 of (3, 4)");
  EXPECT_EQ(told([&] {
              return scatter_add(x, 0, ids({1, 7}).view({2, 1}), ones({2, 1}));
            }),
            "scatter_add: index 7 is out of range for dimension 0 of (4, 6)");
  // Each dimension by itself: (1, 7) is not (2, 1).
  const Tensor rows = ids({1, 0, -4}), columns = ids({7, 5, -6});
  EXPECT_EQ(told([&] {
              return x.index({rows, columns});
            }),
            "index: index 7 is out of range for dimension 1 of (4, 6)");
  EXPECT_EQ(told([&] {
              return x.index({rows, ids({-7, 5, -6})});
            }),
            "index: index -7 is out of range for dimension 1 of (4, 6)");
  EXPECT_EQ(told([&] {
              return x.unsqueeze(0).index({Slice(), ids({7, 3, -4}), rows});
            }),
            "index: index 7 is out of range for dimension 1 of (1, 4, 6)");
  EXPECT_EQ(told([&] {
              return index_put(x, {rows, columns}, zeros({3}));
            }),
            "index_put: index 7 is out of range for dimension 1 of (4, 6)");
  const Tensor fitting = ids({0, 5, -6});
  EXPECT_EQ(x.index({rows, fitting}).tolist(),
            x.to(cpu_device).index({rows.to(cpu_device), fitting.to(cpu_device)}).tolist());

  const Tensor y = index_select(x, 0, ids({3, 4, 0}));
  const Tensor sums = scatter_add(zeros({4}), 0, ids({1, 4, 1, -1, 3}), ones({5}));
  EXPECT_EQ(error_of([&] { synchronize(cuda_device); }),
            "index_select: index 4 is out of range for dimension 0 of (4, 6)");
  EXPECT_EQ(y.select(0, 1).tolist(), std::vector<double>(6, 0));
  EXPECT_EQ(y.select(0, 2).tolist(), x.select(0, 0).tolist());
  EXPECT_EQ(sums.tolist(), (std::vector<double>{0, 2, 0, 1}));
}

// Lines so long that ids are sorted first.
TEST_F(CudaErrors, IndexOutOfRangeAmongMany) {
  std::vector<int64_t> many(5000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i % 7);
  many[4321] = 1000;
  many[77] = -8;
  many[2000] = (int64_t{1} << 32) + 3;  // whose lower half is a valid id
  Tensor sums = scatter_add(zeros({7}), 0, ids(many), ones({5000}));
  const std::string error = error_of([&] { synchronize(cuda_device); });
  EXPECT_TRUE(error == "scatter_add: index 1000 is out of range for dimension 0 of (7,)" ||
              error == "scatter_add: index -8 is out of range for dimension 0 of (7,)" ||
              error == "scatter_add: index 4294967299 is out of range for dimension 0 of (7,)")
      << error;
  EXPECT_EQ(sum(sums).item(), 4997);
}

TEST_F(CudaErrors, NoProbabilities) {
  const Tensor p = softmax(randn({3, 70}));
  p.narrow(0, 2, 1).fill_(NAN);
  const Tensor drawn = sample(p);
  EXPECT_EQ(error_of([&] { static_cast<void>(drawn.tolist()); }),
            "sample: the probabilities of row 2 are not finite, or do not sum to 1");
  EXPECT_EQ(drawn.tolist()[2], 0);
  for (const Shape& shape : {Shape{1, 2049}, Shape{1, 3}}) {
    for (const double value : {1.0, 0.0, -1.0}) {
      sample(zeros(shape) + value);
      EXPECT_EQ(error_of([&] { synchronize(cuda_device); }),
                "sample: the probabilities of row 0 are not finite, or do not sum to 1");
    }
  }
}

// A replay reads ids as they then are, and so finds a bad one.
TEST_F(CudaErrors, RecordedIdsAreChecked) {
  const NoGrad no_grad;
  const ContextGuard guard;
  context().observers.clear();  // nothing is replayed while one looks on
  const Tensor x = randn({5, 3});
  Tensor at = ids({0, 1, 2, 3}), y = zeros({4, 3}), sums = zeros({5});
  const auto work = [&] {
    y.copy_(x.index(at));
    sums.copy_(scatter_add(zeros({5}), 0, at, ones({4})));
  };
  Replay replay(cuda_device, {y, sums});
  for (int64_t i = 0; i < 6; ++i) {
    at.copy_(ids({i % 5, 1, -1, 4}));
    if (i == 4) at.copy_(ids({0, 1, 2, 5}));
    replay.run(work);
    if (i == 4) {
      EXPECT_EQ(error_of([&] { synchronize(cuda_device); }),
                "index: index 5 is out of range for dimension 0 of (5, 3)");
      continue;
    }
    const std::string error = error_of([&] { synchronize(cuda_device); });
    EXPECT_EQ(error, "scatter_add: index -1 is out of range for dimension 0 of (5,)");
    EXPECT_EQ(y.tolist(), x.index(at).tolist());
  }
  EXPECT_TRUE(replay.captured());
}

// The op, the call and what CUDA said of it; and what the kernel was given.
TEST_F(CudaErrors, CallsOfCudaThatFailAreNamed) {
  const ContextGuard guard;
  context().observers.clear();
  Replay replay(cuda_device, {});
  std::string error;
  for (int i = 0; i < 3; ++i)
    replay.run([&] { error = error_of([] { synchronize(cuda_device); }); });
  if (replay.captured()) {  // on a GPU such a capture comes to nothing, and this is done again
    EXPECT_EQ(error, "synchronize: cudaStreamSynchronize: invalid argument");
  }

  void (*twin)(Array&, const Arrays&, double) = [](Array&, const Arrays&, double) {
    detail::fail<DeviceError>({"broken: told"});
  };
  const detail::Kernel<void(Array&, const Arrays&, double)> broken{"broken", nullptr, &twin, true};
  Tensor y = ones({2, 3});
  EXPECT_EQ(error_of([&] {
              broken(y, {Tensor(), ones({5}), y}, 1);
            }),
            "broken: told; given (2, 3) float32 3 tensors, the first (5,) float32");
  EXPECT_EQ(error_of([&] { broken(y, {}, 1); }), "broken: told; given (2, 3) float32 0 tensors");
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
