// `inkling draw`: the ops of a run by module, as text and for Graphviz.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/engine/grad_store.h"
#include "autograd/random/generator.h"
#include "nn/gpt.h"
#include "tests/support/error_of.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/flow/draw_flow.h"

namespace ink {
namespace {

std::vector<FlowOp> ops_of(int64_t layers) {
  manual_seed(1);
  GPTConfig config;
  config.block_size = 6;
  config.vocab_size = 11;
  config.n_layer = layers;
  config.n_head = 2;
  config.n_embd = 8;
  const GPT model(config);
  Flow flow(model);
  const Observe observe(flow);
  GradStore store;
  const Tensor loss = model.loss(zeros({3, 6}, i64), zeros({3, 6}, i64));
  flow.note_kept();
  backward(loss, store);
  return flow.ops();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string line_with(const std::string& text, const std::string& part) {
  for (const std::string& line : lines_of(text))
    if (line.find(part) != std::string::npos) return line;
  return "";
}

size_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

TEST(Draw, TextNumbersTheOpsAndSaysWhatTheyRead) {
  const std::string text = print_flow(ops_of(2));
  for (const std::string& line : lines_of(text)) {
    EXPECT_LE(line.size(), 100u);
    EXPECT_NE(line.back(), ' ');
  }
  EXPECT_TRUE(std::regex_search(text, std::regex(" 1 +wte embedding +\\(3, 6, 8\\)")));
  EXPECT_TRUE(std::regex_search(text, std::regex(" 4 +c_attn linear +3 +\\(3, 6, 24\\)")));
  // The residual stream joins what attention gives to what came before it.
  EXPECT_TRUE(
      std::regex_search(text, std::regex(" 7 +ln_2 add_layer_norm +2, 6 +2 x \\(3, 6, 8\\)")));
  EXPECT_EQ(text.find("the same"), std::string::npos);  // the first block begins otherwise
}

TEST(Draw, RepeatedBlocksAreALine) {
  const std::vector<FlowOp> ops = ops_of(5);
  const std::string text = print_flow(ops);
  EXPECT_NE(text.find("h.2 to h.4: the same as h.1"), std::string::npos);
  EXPECT_EQ(count(text, "c_attn"), 2u);
  EXPECT_EQ(count(print_flow(ops, {.all = true}), "c_attn"), 5u);
  EXPECT_EQ(count(print_flow(ops, {.all = true}), "the same"), 0u);
  EXPECT_NE(print_flow(ops_of(3)).find("h.2: the same as h.1 "), std::string::npos);
  // ... unless they do something else.
  std::vector<FlowOp> changed = ops;
  for (FlowOp& op : changed)
    if (op.module == "h.3.attn.c_attn") op.outputs[0] = Shape{1, 2, 3};
  const std::string other = print_flow(changed);
  EXPECT_NE(other.find("h.2: the same as h.1"), std::string::npos);
  EXPECT_EQ(other.find("h.4"), other.rfind("h.4"));
  EXPECT_EQ(count(other, "c_attn"), 4u);
}

TEST(Draw, ModulesHaveSums) {
  std::vector<FlowOp> ops = ops_of(1);
  double forward = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    ops[i].forward_ms = 1 << i;
    ops[i].backward_ms = 0;
    ops[i].bytes_kept = 1000;
    forward += ops[i].forward_ms;
  }
  const std::string text = print_flow(ops);
  EXPECT_NE(line_with(text, "all").find(std::to_string(static_cast<int>(forward))),
            std::string::npos);
  EXPECT_TRUE(std::regex_search(line_with(text, " attn"), std::regex("3.0 kB +56.00 +0.000$")));
}

TEST(Draw, OneModuleWithWhatItReads) {
  const std::vector<FlowOp> ops = ops_of(2);
  const std::string text = print_flow(ops, {.module = "h.1"});
  EXPECT_NE(line_with(text, "h.0.mlp").find("gelu_linear"), std::string::npos);
  EXPECT_EQ(text.find("lm_head"), std::string::npos);
  EXPECT_EQ(count(text, "c_attn"), 1u);
  EXPECT_EQ(error_of([&] { print_flow(ops, {.module = "h.7"}); }),
            "draw: expected a module with ops, got 'h.7'");
}

TEST(Draw, DotHasABoxForEachOpAndArrowsBetweenThem) {
  const std::vector<FlowOp> ops = ops_of(4);
  const std::string all = flow_to_dot(ops, {.all = true});
  EXPECT_EQ(count(all, "\n  n[0-9]+ \\[class=op"), ops.size());
  EXPECT_EQ(count(all, "subgraph"), 3u * 4);
  EXPECT_NE(all.find("  n1 -> n6 [label=\" (3, 6, 8)\"]"), std::string::npos);
  EXPECT_NE(all.find("  n3 -> n4 [label=\" 3 x (3, 2, 6, 4)\""), std::string::npos);
  // Folded, no arrow may end at an op that has no box.
  const std::string folded = flow_to_dot(ops);
  const std::regex arrow("n([0-9]+) -> n([0-9]+)");
  for (std::sregex_iterator at(folded.begin(), folded.end(), arrow), end; at != end; ++at)
    for (const int side : {1, 2})
      EXPECT_NE(folded.find("\n  n" + (*at)[side].str() + " [class="), std::string::npos);
  EXPECT_NE(folded.find("<b>h.2 to h.3: the same as h.1</b>"), std::string::npos);
}

TEST(Draw, NamesCannotBreakTheLabels) {
  FlowOp op;
  op.name = "<b>&\"";
  op.outputs = {Shape{1}};
  EXPECT_NE(flow_to_dot({op}).find("&lt;b&gt;&amp;&quot;"), std::string::npos);
}

TEST(DrawCommand, AStepABlockAndAnOp) {
  const std::string sizes = " --n_layer 3 --n_embd 16 --block_size 8 --batch_size 2";
  const Ran step = run_program("draw" + sizes);
  EXPECT_EQ(step.code, 0) << step.err;
  EXPECT_NE(step.out.find("A training step of 2 x 8 tokens"), std::string::npos);
  EXPECT_NE(step.out.find("h.2: the same as h.1"), std::string::npos);
  const Ran block = run_program("draw --what block" + sizes);
  EXPECT_EQ(block.out.find("lm_head"), std::string::npos);
  EXPECT_NE(block.out.find("h.1"), std::string::npos);
  const Ran llama = run_program("draw --what block --model llama --n_head 4" + sizes);
  EXPECT_NE(llama.out.find("model.layers.1"), std::string::npos) << llama.err;
  EXPECT_EQ(llama.out.find("lm_head"), std::string::npos);
  const Ran op = run_program("draw --what op softmax");
  EXPECT_NE(op.out.find("forward softmax"), std::string::npos) << op.err;
  EXPECT_TRUE(std::regex_search(op.out, std::regex("sub +dy0, 3")));
}

TEST(DrawCommand, TakesTheModelOfARun) {
  const TempFolder folder;
  const std::string out = (folder / "run").string();
  const Ran trained = run_program(
      "train --max_iters 1 --eval_iters 1 --n_layer 1 --n_head 1 --n_embd 8 --block_size 12 "
      "--batch_size 5 --composed --out_dir " +
      out);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Ran ran = run_program("draw --batch_size 3 --out_dir " + out);
  EXPECT_NE(ran.out.find("(3, 12, 8)"), std::string::npos) << ran.err;
  const Ran same = run_program("draw --out_dir " + out);
  EXPECT_NE(same.out.find("(5, 12, 8)"), std::string::npos) << same.err;
  EXPECT_EQ(same.out.find("layer_norm"), std::string::npos);  // composed, as the run was
  const Ran both = run_program("draw --n_layer 2 --out_dir " + out);
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--out_dir names a model: --n_layer cannot change it"),
            std::string::npos);
}

TEST(DrawCommand, WithoutGraphvizThereIsTextOnly) {
  const Ran picture = run_shell("PATH=/nowhere inkling draw --out /dev/null");
  EXPECT_EQ(picture.code, 1);
  EXPECT_NE(picture.err.find("apt install graphviz"), std::string::npos) << picture.err;
  EXPECT_EQ(run_shell("PATH=/nowhere inkling draw --what op exp").code, 0);
  EXPECT_EQ(run_program("draw --out /nowhere/x.svg").code, 1);
  for (const char* wrong : {"--what op", "--what op softmaxx", "softmax", "--what all"})
    EXPECT_EQ(run_program(std::string("draw ") + wrong).code, 2) << wrong;
}

TEST(DrawCommand, WritesSvg) {
  if (run_shell("dot -V").code != 0) GTEST_SKIP() << "no Graphviz";
  const TempFolder folder;
  const std::string file = (folder / "a b.svg").string();
  const Ran ran = run_shell("inkling draw --n_layer 2 --block_size 8 --out '" + file + "'");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string svg = run_shell("cat '" + file + "'").out;
  EXPECT_NE(svg.find("causal_attention"), std::string::npos);
  EXPECT_LT(svg.find("<svg"), svg.find("prefers-color-scheme: dark"));
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace ink
