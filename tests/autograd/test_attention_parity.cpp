// Attention against PyTorch's, values and all gradients, over a grid of dtypes, masks and sizes
// (golden/attention.safetensors, made by golden/attention_fixtures.py, which tells what it holds).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/io/serialize.h"
#include "autograd/random/generator.h"
#include "tests/support/test_device.h"

namespace ink {
namespace {

struct Case {
  std::string dtype, kind;
  int64_t B, H, H_kv, T, S, d, dv;
  double scale;
  uint64_t seed;

  explicit Case(const std::string& line) {
    std::istringstream(line) >> dtype >> B >> H >> H_kv >> T >> S >> d >> dv >> kind >> scale >>
        seed;
  }
  DType type() const { return dtype == "f32" ? f32 : f64; }
  bool is(const char* prefix) const { return kind.rfind(prefix, 0) == 0; }

  Tensor mask() const {
    const std::string name = kind.substr(kind.find('_') + 1);
    const Shape shape = name == "all"       ? Shape{B, H, T, S}
                        : name == "keys"    ? Shape{B, 1, 1, S}
                        : name == "queries" ? Shape{B, 1, T, 1}
                        : name == "heads"   ? Shape{H, 1, S}
                                            : Shape{T, S};
    if (is("bool")) return rand(shape) > static_cast<double>(0.3f);
    if (!is("bias")) return {};
    const Tensor bias = randn(shape, type());
    if (name != "holes") return bias;
    return masked_fill(bias, rand(shape) > static_cast<double>(0.7f), -INFINITY);
  }

  /// out, dq, dk, dv and, for a bias, its gradient.
  std::vector<Tensor> run() const {
    manual_seed(seed);
    std::vector<Tensor> leaves{randn({B, H, T, d}, type()), randn({B, H_kv, S, d}, type()),
                               randn({B, H_kv, S, dv}, type())};
    AttentionOptions options{.is_causal = kind.find("upper_left") != std::string::npos,
                             .causal_lower_right = kind == "lower_right"};
    if (scale != 0) options.scale = scale;
    const Tensor mask_values = mask();
    if (is("bias")) leaves.push_back(mask_values);
    for (Tensor& x : leaves) x.requires_grad_();
    options.attn_mask = is("bias") ? leaves.back() : mask_values;
    const Tensor out = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], options);
    std::vector<Tensor> results = grad({out}, leaves, {randn({B, H, T, dv}, type())});
    results.insert(results.begin(), out.detach());
    return results;
  }
};

// The numbers of one dtype, in order.
class Stream {
 public:
  explicit Stream(const Tensor& values) : values_(values) {}
  Tensor take(int64_t n) {
    at_ += n;
    return values_.narrow(0, at_ - n, n);
  }
  bool done() const { return at_ == values_.numel(); }

 private:
  Tensor values_;
  int64_t at_ = 0;
};

double largest(const Tensor& x) { return x.numel() == 0 ? 0 : amax(abs(x)).item(); }

// The largest difference from the fixture's numbers over the largest of them. Where the softmax is
// over one key, q and k have no gradient but rounding errors, which may differ.
double difference(const Tensor& result, Stream& fixture) {
  const Tensor x = result.to(f64);
  const double rounding = result.dtype() == f32 ? 1e-5 : 1e-13;
  double top = 0, error = 0;
  if (x.numel() <= 32) {
    const Tensor expected = fixture.take(x.numel());
    top = largest(expected);
    error = largest(x.reshape({-1}) - expected);
  } else {
    const Tensor rows = x.reshape({-1, x.size(-1)});
    const Tensor right = matmul(rows, randn({rows.size(1)}, f64)),
                 left = matmul(randn({rows.size(0)}, f64), rows);
    top = fixture.take(1).item();
    error = std::max({std::abs(largest(x) - top), largest(right - fixture.take(right.numel())),
                      largest(left - fixture.take(left.numel()))});
  }
  return top > rounding || largest(x) > rounding ? error / top : 0;
}

TEST(AttentionParity, EveryCaseOfTheGrid) {
  Metadata metadata;
  const NamedTensors tensors = load_golden("attention.safetensors", &metadata);
  std::map<std::string, Stream> streams;
  for (const auto& [name, values] : tensors) streams.emplace(name, Stream(values.to(f64)));
  std::istringstream lines(metadata.at("cases"));
  std::map<std::string, double> worst;
  int cases = 0;
  for (std::string line; std::getline(lines, line); ++cases) {
    const Case c(line);
    for (const Tensor& result : c.run()) {
      const double error = difference(result, streams.at(c.dtype));
      const double rounding = test_device().is_cpu() ? 1e-5 : 2e-5;  // other orders of the sums
      EXPECT_LE(error, c.dtype == "f32" ? rounding : 1e-10) << line;
      worst[c.dtype] = std::max(worst[c.dtype], error);
    }
  }
  for (const auto& [name, stream] : streams) EXPECT_TRUE(stream.done()) << name;
  EXPECT_EQ(cases, 312);
  std::cout << cases << " cases; largest difference: f32 " << worst["f32"] << ", f64 "
            << worst["f64"] << "\n";
}

}  // namespace
}  // namespace ink
