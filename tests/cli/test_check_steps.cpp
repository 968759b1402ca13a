// train --check: fused ops and their definitions, side by side.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "autograd/engine/observer.h"
#include "tests/support/run_program.h"
#include "train/cli/check_steps.h"

namespace ink {
namespace {

constexpr const char* kTiny =
    " --n_layer 2 --n_head 2 --n_embd 16 --block_size 16 --batch_size 3 --threads 1";

TrainConfig tiny() {
  TrainConfig config;
  config.n_layer = 2, config.n_head = 2, config.n_embd = 16;
  config.block_size = 16, config.batch_size = 3;
  return config;
}

void scale(const Tensor& x, float factor) {
  auto* values = static_cast<float*>(x.storage()->data);  // a kernel's write: no new version
  for (int64_t i = 0; i < x.numel(); ++i) values[i] *= factor;
}

// A kernel that is wrong, forward or backward. Its definition is right.
struct WrongKernel : Observer {
  WrongKernel(std::string op, bool in_backward) : name(std::move(op)), backward(in_backward) {}
  std::string name;
  bool backward;
  void op(const char* which, const std::vector<Tensor>&, const std::vector<Tensor>& outputs,
          bool recorded) override {
    if (!backward && recorded && which == name && !composed()) scale(outputs.back(), 1.1F);
  }
  void after_vjp(const Node& node, const Grads& grads) override {
    if (backward && node.name == name && !composed()) scale(grads[0], 1.1F);
  }
};

std::string check_with(const std::string& op, bool backward) {
  WrongKernel wrong(op, backward);
  const Observe observe(wrong);
  testing::internal::CaptureStdout();
  bool same = true;
  {
    Console console;
    same = check_steps(tiny(), std::nullopt, 3, console);
  }
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(same) << text;
  return text;
}

TEST(Check, NamesAWrongKernelOfTheForward) {
  for (const std::string op : {"layer_norm", "gelu_linear", "causal_attention", "linear",
                               "add_layer_norm", "linear_cross_entropy", "embedding"}) {
    const std::string text = check_with(op, false);
    EXPECT_NE(text.find("They part at the output of " + op + " ("), std::string::npos)
        << op << ": " << text;
  }
}

TEST(Check, NamesAWrongKernelOfTheBackward) {
  for (const std::string op :
       {"layer_norm", "gelu_linear", "causal_attention", "linear", "linear_cross_entropy"}) {
    // The input of the first layer_norm goes into an add_layer_norm, too.
    const bool shared = op == "layer_norm";
    const std::string named = shared ? "add_layer_norm (3, 16, 16) or layer_norm (" : op + " (";
    const std::string text = check_with(op, true);
    EXPECT_NE(text.find("They part at the backward of " + named), std::string::npos)
        << op << ": " << text;
  }
}

TEST(Program, CheckWritesNothing) {
  const TempFolder folder;
  const std::string out_dir = (folder / "out").string();
  for (const std::string more : {"", " --dtype bfloat16", " --dropout 0.1 --bias",
                                 " --gradient_accumulation_steps 2 --recompute",
                                 // of queries and keys, gradients are 0 but for rounding
                                 " --model llama --sliding_window 1 --dropout 0.2"}) {
    const Ran ran = run_program("train --check --out_dir " + out_dir + kTiny + more);
    EXPECT_EQ(ran.code, 0) << more << ran.out << ran.err;
    EXPECT_NE(ran.out.find("Fused ops and their definitions agree"), std::string::npos) << ran.out;
  }
  EXPECT_FALSE(std::filesystem::exists(out_dir));
  EXPECT_EQ(run_program("train --check --composed --out_dir " + out_dir).code, 2);
  const Ran piped = run_program("train --check --data /dev/stdin --out_dir " + out_dir);
  EXPECT_EQ(piped.code, 2);
  EXPECT_NE(piped.err.find("--check reads the data twice"), std::string::npos) << piped.err;
}

TEST(Program, CheckLooksAtARunThatIsThere) {
  const TempFolder folder;
  const std::string options = " --out_dir " + (folder / "out").string() + kTiny;
  ASSERT_EQ(run_program("train --max_iters 2 --eval_iters 1" + options).code, 0);
  const Ran ran = run_program("train --check --init_from resume" + options);
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("\n3 "), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace ink
