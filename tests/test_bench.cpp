// What shows speed: the profiler, and the program's options that print what it saw.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "autograd/checkpoint.h"
#include "autograd/ops.h"
#include "autograd/profiler.h"
#include "tests/run_program.h"

namespace ink {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& file) {
  std::ifstream in(file);
  return json::parse(in);
}

const ProfileRow& row_of(const std::vector<ProfileRow>& rows, const std::string& name) {
  static const ProfileRow none{};
  for (const ProfileRow& row : rows) {
    if (row.name == name) return row;
  }
  return none;
}

struct Head {  // of 6 tokens, 4 wide, 5 classes
  Tensor x = randn({2, 3, 4}).requires_grad_(), w = randn({4, 4}).requires_grad_(),
         head = randn({5, 4}).requires_grad_(), targets = randint(5, {2, 3});
  Tensor loss() const { return linear_cross_entropy(gelu(linear(x, w)), head, targets); }
};

TEST(Profiler, CountsCallsFlopsAndBytesOfEachOp) {
  const Head model;
  Profiler profiler;
  const Observe observe(profiler);
  for (int i = 0; i < 3; ++i) {
    profiler.start();
    model.loss().backward();
  }
  const auto rows = profiler.rows();
  const ProfileRow& linear = row_of(rows, "linear");
  EXPECT_EQ(linear.forward.calls, 3);
  EXPECT_EQ(linear.backward.calls, 3);
  EXPECT_EQ(linear.forward.work.flops, 3 * 2 * 6 * 4 * 4);
  EXPECT_EQ(linear.backward.work.flops, 3 * 4 * 6 * 4 * 4);
  EXPECT_EQ(linear.forward.work.bytes_read, 3 * 4 * (24 + 16));
  EXPECT_EQ(linear.forward.work.bytes_written, 3 * 4 * 24);
  EXPECT_EQ(linear.backward.work.bytes_written, 3 * 4 * (24 + 16));
  const ProfileRow& head = row_of(rows, "linear_cross_entropy");
  EXPECT_EQ(head.forward.work.flops, 3 * 6 * 6 * 4 * 5);
  EXPECT_EQ(head.backward.work.bytes(), 0);  // forward computed the gradients
  EXPECT_EQ(row_of(rows, "add").forward.calls, 0) << "what runs inside an op is part of it";
}

TEST(Profiler, AttentionCountsTheTriangle) {
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) x.push_back(randn({2, 8, 4}).requires_grad_());
  Profiler profiler;
  const Observe observe(profiler);
  profiler.start();
  sum(scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true})).backward();
  const auto rows = profiler.rows();
  const ProfileRow& attention = row_of(rows, "scaled_dot_product_attention");
  const double pairs = 2 * 8 * 9 / 2;
  EXPECT_EQ(attention.forward.work.flops, pairs * 2 * 2 * 4);
  EXPECT_EQ(attention.backward.work.flops, pairs * 5 * 2 * 4);
}

TEST(Profiler, TimesAddUpToTheClock) {
  const Tensor x = randn({300, 300}).requires_grad_();
  Profiler profiler;
  const Observe observe(profiler);
  const auto start = std::chrono::steady_clock::now();
  profiler.start();
  for (int i = 0; i < 20; ++i)
    sum(checkpoint([](const Tensor& a) { return matmul(exp(a), a); }, x)).backward();
  note_work("rest", {x}, {});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double total = 0;
  for (const ProfileRow& row : profiler.rows()) total += row.seconds();
  EXPECT_LE(total, seconds);
  EXPECT_GE(total, 0.9 * seconds);
  const auto rows = profiler.rows();
  EXPECT_EQ(row_of(rows, "matmul").forward.calls, 40) << "once more for each recomputation";
  EXPECT_EQ(row_of(rows, "matmul").backward.calls, 20);
  EXPECT_EQ(row_of(rows, "rest").other.work.bytes_read, 4 * 300 * 300);
}

void expect_valid_trace(const json& trace, const std::vector<std::string>& names) {
  std::vector<std::string> seen;
  double last = 0;
  for (const json& event : trace) {
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_GE(event.at("ts").get<double>(), last - 1e-3) << "events of one thread do not overlap";
    last = event.at("ts").get<double>() + event.at("dur").get<double>();
    seen.push_back(event.at("name").get<std::string>() + " " + event.at("cat").get<std::string>());
  }
  for (const std::string& name : names)
    EXPECT_NE(std::find(seen.begin(), seen.end(), name), seen.end()) << name;
}

TEST(Profiler, TraceIsOfTheEventsWhileItWasOn) {
  const TempFolder folder;
  const Head model;
  Profiler profiler;
  const Observe observe(profiler);
  profiler.start();
  sum(exp(model.x)).backward();
  profiler.trace(true);
  model.loss().backward();
  profiler.trace(false);
  sum(exp(model.x)).backward();
  profiler.save_trace(folder / "trace.json");
  const json trace = read_json(folder / "trace.json");
  expect_valid_trace(trace, {"gelu forward", "gelu backward", "linear forward"});
  for (const json& event : trace) EXPECT_NE(event.at("name"), "exp");
}

// ---- the program

TEST(Program, TrainProfilesIntoATableAndATrace) {
  const TempFolder folder;
  const std::string file = (folder / "trace.json").string();
  const std::string train =
      "train --n_layer 1 --n_head 2 --n_embd 16 --block_size 32 --batch_size 2 --max_iters 8 "
      "--eval_iters 1 --sample_interval 0 --out_dir " +
      (folder / "out").string() + " --profile ";
  const Ran ran = run_program(train + file);
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* text : {"\nlinear ", "\nAdamW ", "\nbatch ", "\ngradient_norm ", "Trace of 3"})
    EXPECT_NE(ran.out.find(text), std::string::npos) << text << ran.out;
  expect_valid_trace(read_json(file), {"linear forward", "linear backward", "AdamW other"});
  const Ran refused = run_program(train + (folder / "none/trace.json").string());
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("none/trace.json"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, "") << "refused before training";
}

}  // namespace
}  // namespace ink
