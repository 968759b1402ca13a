// Printed tensors against PyTorch's text (golden/print.txt, made by golden/print_fixtures.py), and
// what only this library has: graphs by their op names, undefined tensors, watchers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/fused_ops.h"
#include "autograd/io/log.h"
#include "autograd/print.h"

namespace ink {
namespace {

DType dtype_named(const std::string& name) {
  if (name == "f32") return f32;
  if (name == "f64") return f64;
  if (name == "bf16") return bf16;
  if (name == "i64") return i64;
  INK_CHECK(name == "bool", "fixture: unknown dtype ", name);
  return boolean;
}

template <class T>
T read(std::istream& in) {
  T value{};
  INK_CHECK(in >> value, "fixture: a word is missing");
  return value;
}

// The elements of a `case` line, from `values` or `iota` on.
Tensor read_elements(std::istream& in, const Shape& shape, DType dtype) {
  const auto kind = read<std::string>(in);
  if (kind == "iota") {
    const auto factor = read<double>(in);
    std::vector<double> values;
    for (int64_t i = 0; i < shape.numel(); ++i) {
      values.push_back(static_cast<double>(i) * factor);
    }
    return from_vector(values, shape).to(dtype);
  }
  std::vector<double> floats;
  std::vector<int64_t> integers;
  for (std::string word; in >> word;) {
    if (is_floating(dtype)) {
      floats.push_back(std::strtod(word.c_str(), nullptr));  // also of nan, inf and subnormals
    } else {
      integers.push_back(std::stoll(word));
    }
  }
  return is_floating(dtype) ? from_vector(floats, shape).to(dtype)
                            : from_vector(integers, shape).to(dtype);
}

Tensor read_case(std::istream& in) {
  const DType dtype = dtype_named(read<std::string>(in));
  const bool grad = read<int>(in) != 0;
  Shape shape;
  for (auto dims = read<int64_t>(in); dims > 0; --dims) shape.push_back(read<int64_t>(in));
  return read_elements(in, shape, dtype).requires_grad_(grad);
}

PrintOptions read_options(std::istream& in) {
  PrintOptions options;
  options.precision = read<int>(in);
  options.threshold = read<int64_t>(in);
  options.edgeitems = read<int64_t>(in);
  options.linewidth = read<int>(in);
  const auto mode = read<int>(in);
  if (mode >= 0) options.sci_mode = mode != 0;
  return options;
}

/// Every test leaves the options and the context as it found them.
class Print : public testing::Test {
 protected:
  ~Print() override { print_options() = {}; }
  ContextGuard guard_;
};

TEST_F(Print, AsPyTorch) {
  std::ifstream file(INKLING_SOURCE_DIR "/tests/golden/print.txt");
  ASSERT_TRUE(file.is_open());
  std::string line, what, expected, printed;
  int cases = 0;
  const auto compare = [&] { EXPECT_EQ(printed, expected) << what; };
  while (std::getline(file, line)) {
    if (line.starts_with("|")) {
      if (!expected.empty()) expected += '\n';
      expected += line.substr(std::min<size_t>(2, line.size()));
      continue;
    }
    compare();
    what = line;
    expected.clear();
    printed.clear();
    std::istringstream in(line);
    const auto kind = read<std::string>(in);
    if (kind == "options") {
      print_options() = read_options(in);
    } else if (kind == "default") {
      context().default_dtype = dtype_named(read<std::string>(in));
    } else {
      printed = read_case(in).to_string();
      ++cases;
    }
  }
  compare();
  EXPECT_GE(cases, 150);
}

TEST_F(Print, NamesTheOpThatMadeIt) {
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  EXPECT_EQ((x + x).to_string(), "tensor([2., 4.], grad_fn=<AddBackward0>)");
  EXPECT_EQ(x.to_string(), "tensor([1., 2.], requires_grad=True)");
  EXPECT_EQ((x + x).detach().to_string(), "tensor([2., 4.])");
  const Tensor m = ones({2, 2}).requires_grad_(), b = ones({3, 2, 2}).requires_grad_();
  const auto name = [](const Tensor& y) {
    const std::string text = y.to_string();
    return text.substr(text.find('<'));
  };
  EXPECT_EQ(name(matmul(m, m)), "<MmBackward0>)");
  EXPECT_EQ(name(matmul(x, m)), "<SqueezeBackward4>)");
  EXPECT_EQ(name(matmul(m, x)), "<MvBackward0>)");
  EXPECT_EQ(name(dot(x, x)), "<DotBackward0>)");
  EXPECT_EQ(name(matmul(b, b)), "<UnsafeViewBackward0>)");
  EXPECT_EQ(name(matmul(b, m)), "<UnsafeViewBackward0>)");
  EXPECT_EQ(name(masked_fill(m, m > 0, 2)), "<MaskedFillBackward0>)");
  EXPECT_EQ(name(masked_fill(m, m > 0, tensor(2.0))), "<MaskedFillBackward1>)");
  EXPECT_EQ(name(linear(m, m)), "<MmBackward0>)");
  EXPECT_EQ(name(linear(m, m, x)), "<AddmmBackward0>)");
  EXPECT_EQ(name(linear(b, m, x)), "<UnsafeViewBackward0>)");
  EXPECT_EQ(name(b.view({6, 2})), "<ViewBackward0>)");
  EXPECT_EQ(name(sum(m)), "<SumBackward0>)");
  EXPECT_EQ(name(mean(m, {1})), "<MeanBackward1>)");
  EXPECT_EQ(name(dropout(m, 0.5)), "<MulBackward0>)");
  EXPECT_EQ(name(layer_norm(m)), "<NativeLayerNormBackward0>)");
  EXPECT_EQ(name(scaled_dot_product_attention(b, b, b)), "<SqueezeBackward1>)");
  context().observers.clear();  // the ops below are made up
  const auto pass = [](const Tensor& dy) -> Grads { return {dy}; };
  EXPECT_EQ(record("linear_cross_entropy", {x}, x.clone(), pass).to_string(),
            "tensor([1., 2.], grad_fn=<LinearCrossEntropyBackward0>)");
  EXPECT_EQ(record("sum.over_rows", {x}, x.to(f64), pass).to_string(),
            "tensor([1., 2.], dtype=torch.float64, grad_fn=<SumBackward0>)");
}

TEST_F(Print, ViewsAndUndefined) {
  EXPECT_EQ(Tensor().to_string(), "tensor(undefined)");
  const Tensor x = arange(6).view({2, 3});
  EXPECT_EQ(x.T().to_string(), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
  EXPECT_EQ(x.select(1, 1).to_string(), "tensor([1, 4])");
  const Tensor wide = arange(2).unsqueeze(1).expand({2, int64_t{1} << 40});
  EXPECT_EQ(wide.to_string(),
            "tensor([[0, 0, 0,  ..., 0, 0, 0],\n        [1, 1, 1,  ..., 1, 1, 1]])");
  std::ostringstream out;
  out << x.select(0, 1) << ' ' << Tensor();
  EXPECT_EQ(out.str(), "tensor([3, 4, 5]) tensor(undefined)");
}

TEST_F(Print, IsNotObservedAndRecordsNothing) {
  struct Count : Observer {
    void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
      ++ops;
    }
    int ops = 0;
  } count;
  const Tensor x = ones({40, 40}).T().requires_grad_();
  const int64_t live = Node::live;
  const uint64_t version = x.version();
  const Observe observe(count);
  const std::string text = x.to_string();
  EXPECT_EQ(count.ops, 0);
  EXPECT_EQ(Node::live, live);
  EXPECT_EQ(x.version(), version);
  x.clone();
  EXPECT_EQ(count.ops, 1);  // and watching goes on
}

TEST_F(Print, RefusesSenselessOptions) {
  try {
    set_printoptions({.precision = -1});
    FAIL() << "accepted a precision of -1";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "set_printoptions: expected precision, threshold, edgeitems >= 0 and linewidth > "
                 "0, got -1, 1000, 3, 80");
  }
  EXPECT_EQ(print_options().precision, 4);
}

TEST_F(Print, ChangesOnlyTheOptionsThatAreGiven) {
  set_printoptions({.precision = 2});
  set_printoptions({.sci_mode = false});
  EXPECT_EQ(print_options().precision, 2);
  EXPECT_EQ(print_options().sci_mode, false);
  EXPECT_EQ(print_options().threshold, 1000);
}

// What a callback logs is dropped, and it may set another one, or none.
TEST_F(Print, ALogCallbackMayLog) {
  std::string said;
  set_log_callback([&, calls = 0](const std::string& message) mutable {
    said += message + " ";
    log_message("from the callback");
    if (++calls == 2) set_log_callback([&](const std::string& next) { said += "next " + next; });
    said += "after ";
  });
  for (const char* message : {"a", "b", "c"}) log_message(message);
  set_log_callback({});
  log_message("d");
  EXPECT_EQ(said, "a after b after next c");
}

TEST_F(Print, PrintsAsPythonDoes) {
  testing::internal::CaptureStdout();
  print("x", ones({2, 3}).shape(), true, 1.5, tensor({1, 2}));
  print(Shape{}, Shape{4});
  print();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "x torch.Size([2, 3]) True 1.5 tensor([1, 2])\n"
            "torch.Size([]) torch.Size([4])\n\n");
}

}  // namespace
}  // namespace ink
