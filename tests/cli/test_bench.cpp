// What shows speed: the profiler, and the program's options that print what it saw.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/checkpoint.h"
#include "autograd/engine/observer.h"
#include "autograd/fused_ops.h"
#include "autograd/inspect/profiler.h"
#include "tests/support/each_unit.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"
#include "train/cli/bench.h"
#include "train/cli/profile_table.h"
#include "train/cli/suggest.h"

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
  const ProfileRow& attention = row_of(rows, "causal_attention");
  const double pairs = 2 * 8 * 9 / 2;
  EXPECT_EQ(attention.forward.work.flops, pairs * 2 * 2 * 4);
  EXPECT_EQ(attention.backward.work.flops, pairs * 5 * 2 * 4);
  profiler.start();
  sum(scaled_dot_product_attention(x[0], x[1], x[2])).backward();
  const ProfileRow whole = row_of(profiler.rows(), "scaled_dot_product_attention");
  EXPECT_EQ(whole.forward.work.flops, 2 * 8 * 8 * 2 * 2 * 4);
  EXPECT_EQ(whole.backward.work.flops, 2 * 8 * 8 * 5 * 2 * 4);
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
    if (event.at("cat") == "step" || event.at("cat") == "module") continue;  // around others
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

TEST(Profiler, TraceHasNamesWithQuotes) {
  const TempFolder folder;
  Profiler profiler;
  profiler.trace(true);
  profiler.group_by([](const Node&) { return "h.\"0\""; });
  const Tensor x = ones({2}).requires_grad_();
  {
    const Observe observe(profiler);
    profiler.start();
    record("test_ \"op\"", {x}, x.detach() * 1, [](const Tensor& dy) -> Grads { return {dy}; });
    profiler.span("epoch \\ \"1\"\n");
  }
  profiler.save_trace(folder / "trace.json");
  std::set<std::string> names;
  for (const json& event : read_json(folder / "trace.json"))
    names.insert(event.at("name").get<std::string>());
  for (const char* name : {"test_ \"op\"", "h.\"0\"", "epoch \\ \"1\"\n"})
    EXPECT_TRUE(names.count(name)) << name;
}

TEST(Profiler, SeveralThreadsAtOnce) {
  const TempFolder folder;
  Profiler profiler;
  profiler.start();
  profiler.trace(true);
  const auto work = [&] {
    const Observe observe(profiler);
    const Tensor x = ones({30, 30}).requires_grad_();
    for (int i = 0; i < 50; ++i) sum(matmul(x, x)).backward();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  const auto rows = profiler.rows();
  EXPECT_EQ(row_of(rows, "matmul").forward.calls, 100);
  EXPECT_EQ(row_of(rows, "matmul").backward.calls, 100);
  EXPECT_EQ(row_of(rows, "matmul").backward.work.flops, 100 * 4 * 30 * 30 * 30);
  profiler.save_trace(folder / "trace.json");
  std::set<int> seen;
  for (const json& event : read_json(folder / "trace.json"))
    if (event.at("ph") == "X") seen.insert(event.at("tid").get<int>());
  EXPECT_EQ(seen.size(), 2u);
}

// ---- bench

BenchSetup gpt_setup(int64_t batch_size, int64_t block_size, int64_t n_layer, int64_t n_embd,
                     int64_t vocab_size) {
  BenchSetup setup = bench_setup("baby");
  setup.config.batch_size = batch_size;
  setup.config.block_size = block_size;
  setup.config.n_layer = n_layer;
  setup.config.n_embd = n_embd;
  setup.vocab_size = vocab_size;
  setup.config.batch_parts = 1;  // what a trainer takes under an observer, as here
  setup.steps = 1;
  setup.profile_steps = 0;
  return setup;
}

void expect_estimate_holds(const BenchSetup& setup, const char* what) {
  const BenchResult result = run_bench(setup);
  const auto estimate = static_cast<double>(result.estimate.total()),
             measured = static_cast<double>(result.allocator_peak);
  EXPECT_NEAR(estimate / measured, 1, 0.03) << what << ": " << estimate << " and " << measured;
}

void expect_estimates_hold_for(const std::string& model) {
  const auto small_setup = [&](auto... sizes) {
    BenchSetup setup = gpt_setup(sizes...);
    setup.config.model = model;
    setup.config.bias = model == "gpt";
    return setup;
  };
  expect_estimate_holds(small_setup(12, 64, 4, 128, 65), "most is activations");
  expect_estimate_holds(small_setup(1, 64, 4, 128, 65), "most is parameters");
  expect_estimate_holds(small_setup(2, 128, 1, 64, 5000), "most is the vocabulary");
  expect_estimate_holds(small_setup(2, 256, 8, 32, 65), "deep, narrow and long");
  expect_estimate_holds(small_setup(1, 5000, 1, 32, 65), "a context that is cut into two rows");
  BenchSetup setup = small_setup(8, 64, 2, 64, 300);
  setup.config.dropout = 0.2;
  expect_estimate_holds(setup, "dropout");
  setup.config.dtype = "bfloat16";
  expect_estimate_holds(setup, "mixed precision");
  setup.config.gradient_accumulation_steps = 2;
  expect_estimate_holds(setup, "gradients that wait");
  setup.config.recompute = true;
  expect_estimate_holds(setup, "norms and GELUs computed again, mixed");
  setup.config.dtype = "float32";
  expect_estimate_holds(setup, "norms and GELUs computed again");
  setup.config.optimizer = "sgd";
  expect_estimate_holds(setup, "one moment");
  BenchSetup one_block = small_setup(32, 64, 1, 128, 65);
  one_block.config.recompute = true;
  expect_estimate_holds(one_block, "most is what one block's backward adds");
  one_block.config.dtype = "bfloat16";
  expect_estimate_holds(one_block, "the same, mixed");
  BenchSetup wide_head = small_setup(1, 256, 1, 64, 65);
  wide_head.config.n_head = 1;
  expect_estimate_holds(wide_head, "most is attention's scratch memory");
  wide_head.config.dtype = "bfloat16";
  wide_head.config.optimizer = "sgd";
  expect_estimate_holds(wide_head, "copies of attention's inputs in f32, where no unit reads bf16");
  BenchSetup wide_mlp = small_setup(2, 16, 2, 256, 65);
  wide_mlp.config.dropout = 0.2;
  expect_estimate_holds(wide_mlp, "most is what products pack");
}

TEST(Memory, TheEstimateAgreesWithMeasurement) { expect_estimates_hold_for("gpt"); }
TEST(Memory, AndOfALlama) { expect_estimates_hold_for("llama"); }

TEST(Memory, TheEstimateAgreesWithEachUnit) {
  expect_passes_with_each_unit("Memory.TheEstimateAgreesWithMeasurement");
  expect_passes_with_each_unit("Memory.AndOfALlama");
}

TEST(Bench, TheRoofIsWhatTakesLonger) {
  const Machine machine{
      .flops_per_second = 100, .attention_flops_per_second = 50, .bytes_per_second = 5};
  const ProfileEntry multiplies{.calls = 2, .seconds = 4, .work = {8, 2, 200}},
      moves{.calls = 2, .seconds = 4, .work = {8, 2, 50}},
      none{.calls = 1, .seconds = 0, .work = {}};
  EXPECT_DOUBLE_EQ(roof_share("matmul", multiplies, machine), 0.5);  // 2 s of 4
  EXPECT_DOUBLE_EQ(roof_share("causal_attention", multiplies, machine), 1);
  EXPECT_DOUBLE_EQ(roof_share("add", moves, machine), 0.5);  // 2 s of 4
  EXPECT_EQ(roof_share("add", none, machine), 0);
  const auto lines = profile_table({{"matmul", multiplies, moves, {}}}, 2, machine);
  ASSERT_EQ(lines.size(), 3u);
  // milliseconds a step, forward and backward, and 20 bytes in two steps
  for (const char* text : {"matmul", "2000.000   50 %", "2000.000   50 %", "0.0 100.0 %"})
    EXPECT_NE(lines[1].find(text), std::string::npos) << text << "\n" << lines[1];
}

// Bytes that fit in a cache move at its rate, and only the others at the next one's.
TEST(Bench, BytesMoveThroughTheCaches) {
  const double memory = std::numeric_limits<double>::infinity();
  const Machine machine{.levels = {{100, 100, 50}, {300, 20, 10}, {memory, 10, 5}}};
  EXPECT_DOUBLE_EQ(machine.seconds_to_move(80, 0), 0.8);
  EXPECT_DOUBLE_EQ(machine.seconds_to_move(0, 80), 1.6);
  EXPECT_DOUBLE_EQ(machine.seconds_to_move(200, 0), 1 + 5);
  EXPECT_DOUBLE_EQ(machine.seconds_to_move(200, 200), (0.5 + 1) + (5 + 10) + (5 + 10));
  EXPECT_EQ(machine.seconds_to_move(0, 0), 0);
}

TEST(Bench, TheMachineIsMeasuredWithEachCache) {
  const Machine machine = measure_machine(cpu_device, bf16);
  EXPECT_GT(machine.flops_per_second, 1e9);
  ASSERT_FALSE(machine.levels.empty());
  double size = 0;
  for (const MemoryLevel& level : machine.levels) {
    EXPECT_GT(level.size, size);
    EXPECT_GT(level.read_rate, 1e8);
    EXPECT_GT(level.write_rate, 1e8);
    size = level.size;
  }
  EXPECT_TRUE(std::isinf(size));
}

TEST(Bench, RepeatsABatchAtAConstantRate) {
  BenchSetup setup = gpt_setup(2, 16, 1, 16, 30);
  setup.steps = 20;
  const BenchResult result = run_bench(setup);
  ASSERT_EQ(result.losses.size(), 22u);
  EXPECT_EQ(result.times.size(), 20u);
  EXPECT_NEAR(result.losses[0], std::log(30), 0.1);
  for (size_t i = 1; i < result.losses.size(); ++i)
    EXPECT_LT(result.losses[i], result.losses[i - 1]) << i;
  // 6 x (12 C^2 + V C) weights x 32 tokens; 2 sequences of 16 x 17 / 2 pairs, 12 C FLOPs each
  EXPECT_EQ(result.flops.weights, 6 * (12 * 16 * 16 + 30 * 16) * 32);
  EXPECT_EQ(result.flops.attention, 2 * 16 * 17 / 2 * 12 * 16);
}

// ---- the program

const char* const kSmall =
    "bench --n_embd 32 --n_layer 1 --batch_size 2 --block_size 16 --steps 3 ";

TEST(Program, BenchWritesWhatItMeasured) {
  const TempFolder folder;
  const std::string file = (folder / "a.json").string();
  const Ran ran = run_program(kSmall + ("--scaling --json " + file));
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* text :
       {"\nmachine ", "\nstep ", "\nwork ", "\nmemory ", "\nlinear ", "\nn_embd "})
    EXPECT_NE(ran.out.find(text), std::string::npos) << text << ran.out;
  const json results = read_json(file);
  EXPECT_EQ(results.at("config").at("n_embd"), 32);
  EXPECT_EQ(results.at("step").at("steps"), 3);
  EXPECT_EQ(results.at("losses").size(), 5u);
  EXPECT_EQ(results.at("scaling").size(), 4u);
  for (const char* field :
       {"ms_median", "ms_best", "start_ms", "tokens_per_second", "flops_per_second"})
    EXPECT_GT(results.at("step").at(field).get<double>(), 0) << field;
  for (const char* field : {"estimate", "allocator_peak", "process_peak"})
    EXPECT_GT(results.at("memory").at(field).get<double>(), 0) << field;
  for (const char* field : {"flops_per_second", "bytes_per_second"})
    EXPECT_GT(results.at("machine").at(field).get<double>(), 1e8) << field;
  double share = 0;
  for (const json& row : results.at("ops")) share += row.at("share").get<double>();
  EXPECT_NEAR(share, 1, 1e-6);
}

// Tests observe ops, which makes batches of one part; the program's have more. The estimate says
// what parts side by side need when they are at their peaks together.
TEST(Program, BenchMeasuresTheGradientsOfEveryPart) {
  const TempFolder folder;
  const std::string file = (folder / "a.json").string();
  for (const int parts : {0, 3, 6}) {
    const Ran ran =
        run_program("bench --n_embd 256 --batch_size 6 --steps 1 --profile_steps 0 --batch_parts " +
                    std::to_string(parts) + " --json " + file);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json memory = read_json(file).at("memory");
    const double share =
        memory.at("estimate").get<double>() / memory.at("allocator_peak").get<double>();
    EXPECT_GT(share, 0.9) << parts;
    EXPECT_LT(share, 1.35) << parts;
  }
}

// From the third step on memory comes from what earlier ones left, all but a little: which blocks
// the parts hold at the same time is chance on a busy machine. A step takes hundreds.
TEST(Program, StepsAskTheSystemForNoMemory) {
  const TempFolder folder;
  const std::string file = (folder / "a.json").string();
#ifdef __SANITIZE_ADDRESS__
  const std::string steps = "6 ";  // page faults are the sanitizer's
  const double most_faults = INFINITY;
#else
  const std::string steps = "30 ";
  const double most_faults = 200;
#endif
  ASSERT_EQ(run_program("bench --profile_steps 0 --steps " + steps + "--json " + file).code, 0);
  const json memory = read_json(file).at("memory");
  EXPECT_LE(memory.at("raw_allocations"), 60);
  EXPECT_LT(memory.at("page_faults").get<double>(), most_faults);
}

TEST(Program, TakesAThreadACore) {
  const auto threads = [](const std::string& before) {
    const std::string out = run_shell(before + "inkling info").out;
    return std::stoi(out.substr(out.find(", ") + 2));
  };
  EXPECT_EQ(threads("unset OMP_NUM_THREADS; "), physical_cores());
  EXPECT_EQ(threads("export OMP_NUM_THREADS=3; "), 3);
  EXPECT_LE(physical_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

// As a container of one processor has it where control groups are of version 1.
TEST(Program, TakesAThreadForTheProcessorsOfAGroup) {
  const std::string group = "/sys/fs/cgroup/cpu/inkling-test-" + std::to_string(::getpid());
  if (run_shell("mkdir " + group + " && { echo 100000 >" + group + "/cpu.cfs_quota_us || ! rmdir " +
                group + "; }")
          .code != 0)
    GTEST_SKIP() << "no control group of version 1 can be made here";
  const std::string out = run_shell("unset OMP_NUM_THREADS; echo $$ >" + group +
                                    "/cgroup.procs; inkling info; echo $$ >/sys/fs/cgroup/cpu/"
                                    "cgroup.procs; rmdir " +
                                    group)
                              .out;
  EXPECT_NE(out.find(", 1 thread,"), std::string::npos) << out;
}

TEST(Program, BenchComparesTwoRuns) {
  const TempFolder folder;
  const std::string a = (folder / "a.json").string(), b = (folder / "b.json").string();
  EXPECT_EQ(run_program(kSmall + ("--json " + a)).code, 0);
  const Ran second = run_program(kSmall + ("--composed --json " + b + " --compare " + a));
  EXPECT_EQ(second.code, 0) << second.err;
  for (const char* text : {"\nms per step, median ", "\ngelu_linear forward", "\ntanh backward",
                           "composed true and false"})
    EXPECT_NE(second.out.find(text), std::string::npos) << text << second.out;
  const Ran files = run_program("bench --compare " + b + " " + a);
  EXPECT_EQ(files.code, 0) << files.err;
  EXPECT_NE(second.out.find(files.out.substr(files.out.find("\nms per"))), std::string::npos)
      << "two files: the same table, and no run";
  const Ran piped = run_program(std::string(kSmall) + "--json -");
  EXPECT_EQ(json::parse(piped.out).at("config").at("n_layer"), 1);
}

// Forward, and twice that for backward: of each weight that multiplies a token, and of each pair of
// a query and a key that it sees.
TEST(Bench, CountsTheFlopsOfAnyModel) {
  const double B = 2, T = 16, L = 3, C = 24, V = 65, head = 6;
  BenchSetup setup = gpt_setup(2, 16, 3, 24, 65);
  const auto flops_of = [&](const std::string& model) {
    setup.config.model = model;
    setup.config.bias = model == "gpt";
    const auto made =
        make_model(model, setup.config.gpt(setup.vocab_size), setup.config.model_settings);
    return step_flops(*made, setup.config);
  };
  const double pairs = 3 * 2 * B * L * C * T * (T + 1);  // scores and mixed values
  const StepFlops gpt = flops_of("gpt");
  EXPECT_EQ(gpt.weights, 6 * B * T * (L * 12 * C * C + V * C));
  EXPECT_EQ(gpt.attention, pairs);
  setup.config.setting("n_kv_head") = int64_t{2};
  setup.config.setting("intermediate_size") = int64_t{40};
  const StepFlops llama = flops_of("llama");
  EXPECT_EQ(llama.weights, 6 * B * T * (L * (2 * C * C + 2 * C * 2 * head + 3 * C * 40) + V * C));
  EXPECT_EQ(llama.attention, pairs);
  for (const double window : {1.0, 5.0, 16.0, 100.0}) {
    setup.config.setting("sliding_window") = static_cast<int64_t>(window);
    double seen = 0;
    for (double query = 0; query < T; ++query) seen += std::min(query + 1, window);
    EXPECT_DOUBLE_EQ(flops_of("llama").attention, 3 * 2 * 2 * B * L * C * seen) << window;
  }
  setup.config.setting("sliding_window") = int64_t{0};
  setup.config.gradient_accumulation_steps = 3;
  setup.config.recompute = setup.config.composed = true;
  EXPECT_EQ(flops_of("llama").total(), 3 * llama.total());
}

TEST(Program, BenchRunsOnGivenWeightsAndTokens) {
  const TempFolder folder;
  const std::string file = (folder / "weights.safetensors").string();
  GPTConfig sizes{.block_size = 16, .vocab_size = 65, .n_layer = 1, .n_head = 4, .n_embd = 32};
  const GPT model(sizes);
  NamedTensors tensors = model.state_dict();
  const Tensor x = randint(65, {2, 16}), y = randint(65, {2, 16});
  tensors.emplace_back("x", x);
  tensors.emplace_back("y", y);
  save(file, tensors);
  const Ran ran = run_program(kSmall + ("--json - --weights " + file));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NEAR(json::parse(ran.out).at("losses")[0].get<double>(), model.loss(x, y).item(), 1e-5);
  const Ran other = run_program("bench --weights " + file);
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("expected x (12, 64) i64"), std::string::npos) << other.err;
}

TEST(Program, BenchRefusesInWords) {
  const auto expect = [](const std::string& arguments, int code, const std::string& text) {
    const Ran ran = run_program("bench " + arguments);
    EXPECT_EQ(ran.code, code) << arguments;
    EXPECT_EQ(ran.err.substr(0, ran.err.find('\n')), "inkling bench: " + text);
  };
  expect("--n_head 3", 2, "config: n_embd is 128; expected a multiple of n_head, 3");
  expect("--batch_sise 3", 2, "there is no option --batch_sise; did you mean --batch_size?");
  expect("--config babby", 2, "--config: there are no sizes called babby; did you mean baby?");
  expect("--vocab_size 0", 2, "--vocab_size is 0; expected 1 to 10000000");
  expect("--compare none.json", 1, "--compare: none.json: cannot open: No such file or directory");
  const TempFolder folder;
  const std::string file = (folder / "x.json").string();
  std::ofstream(file) << "{}";
  expect("--compare " + file, 1,
         "--compare: " + file + ": expected a file that bench --json wrote");
}

// Steps hold modules, and modules hold ops.
void expect_spans_around_events(const json& trace) {
  std::map<std::string, int> steps, modules;
  const auto begin = [](const json& event) { return event.at("ts").get<double>(); };
  const auto end = [&](const json& event) { return begin(event) + event.at("dur").get<double>(); };
  for (const json& outer : trace) {
    const bool is_step = outer.value("cat", "") == "step";
    if (!is_step && outer.value("cat", "") != "module") continue;
    ++(is_step ? steps : modules)[outer.at("name").get<std::string>()];
    int inside = 0;
    for (const json& event : trace) {
      if (event.at("ph") == "M") continue;
      if (end(event) <= begin(outer) + 1e-3 || begin(event) >= end(outer) - 1e-3) continue;
      const bool within = begin(event) >= begin(outer) - 1e-3 && end(event) <= end(outer) + 1e-3;
      const bool around = begin(event) <= begin(outer) + 1e-3 && end(event) >= end(outer) - 1e-3;
      EXPECT_TRUE(within || around) << outer << event;
      inside += within ? 1 : 0;
    }
    EXPECT_GT(inside, 1) << outer;
  }
  EXPECT_EQ(steps, (std::map<std::string, int>{{"step 3", 1}, {"step 4", 1}, {"step 5", 1}}));
  for (const char* name : {"wte", "h.0", "h.0.ln_1", "h.0.attn", "h.0.attn.c_attn", "h.0.mlp"})
    EXPECT_GE(modules[name], 6) << name << ": forward and backward";
}

TEST(Program, TrainProfilesIntoATableAndATrace) {
  const TempFolder folder;
  const std::string file = (folder / "trace.json").string();
  const std::string train =
      "train --n_layer 1 --n_head 2 --n_embd 16 --block_size 32 --batch_size 2 "
      "--eval_iters 1 --sample_interval 0 --overwrite --out_dir " +
      (folder / "out").string() + " --profile ";
  const Ran ran = run_program(train + file + " --max_iters 8");
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* text : {"\nlinear ", "\nAdamW ", "\nbatch ", "\ngradient_norm ", "Trace of 3"})
    EXPECT_NE(ran.out.find(text), std::string::npos) << text << ran.out;
  expect_valid_trace(read_json(file), {"linear forward", "linear backward", "AdamW other"});
  expect_spans_around_events(read_json(file));
  // It is shown when its steps are over, and the run goes on.
  const std::string longer = run_program(train + file + " --max_iters 40 --log_interval 40").out;
  EXPECT_LT(longer.find("Trace of 3"), longer.find("\nstep    40/40")) << longer;
  const Ran refused = run_program(train + (folder / "none/trace.json").string());
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("none/trace.json"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, "") << "refused before training";
}

// ---- suggest

std::string a_text(size_t size) {
  std::string text;
  for (int i = 0; text.size() < size; ++i)
    text += "The " + std::to_string(i * i % 997) + " cats saw the sea, and the sea saw them.\n";
  return text;
}

TEST(Suggest, TheRule) {
  EXPECT_EQ(suggested_vocabulary(1e5, 4, 128), 512);
  EXPECT_EQ(suggested_vocabulary(1.1e6, 4, 128), 1024);
  EXPECT_EQ(suggested_vocabulary(2e7, 6, 256), 4096);
  EXPECT_EQ(suggested_vocabulary(1e9, 2, 64), 4096) << "a small model has a small vocabulary";
  const TextFacts text{.bytes = 1e6, .bits_without_context = 3, .bytes_per_token = {}};
  EXPECT_LT(expected_bits(text, 1e6, 2e6), expected_bits(text, 1e6, 1e6)) << "more text";
  EXPECT_LT(expected_bits(text, 2e6, 2e6), expected_bits(text, 1e6, 2e6)) << "a larger model";
  EXPECT_NEAR(expected_bits(text, 1e6, 1e9), expected_bits(text, 1e6, 2e9), 1e-3)
      << "text that is read a thousand times";
  // Dropout comes with passes and parameters, and a text limits the parameters.
  TextFacts small = text;
  small.bytes_per_token = [](int64_t) { return 2.0; };
  const auto dropout = [&](double minutes) {
    Suggestion size = sizes(small, 2);
    size.parameters = 900'000, size.seconds = 0.01;
    EXPECT_FALSE(learns_by_heart(size, small));
    set_steps(size, small, minutes);
    return size.config.dropout;
  };
  EXPECT_EQ(dropout(0.5), 0);
  EXPECT_EQ(dropout(5), 0.1);
  EXPECT_EQ(dropout(20), 0.2);
  EXPECT_EQ(dropout(100), 0.3);
  const auto steps = [&](double minutes) {
    Suggestion size = sizes(small, 2);
    size.parameters = 900'000, size.seconds = 0.01;
    set_steps(size, small, minutes);
    return size.config.max_iters;
  };
  const auto evaluated = [&](double bytes) {
    TextFacts longer = small;
    longer.bytes = bytes;
    Suggestion size = sizes(longer, 2);
    size.parameters = 900'000, size.seconds = 0.01;
    set_steps(size, longer, 5);
    return size.config.eval_iters;
  };
  EXPECT_EQ(evaluated(1e6), TrainConfig().eval_iters);
  EXPECT_EQ(evaluated(2e5), 0) << "its 10000 tokens to validate on, and not 20 batches of 1024";
  EXPECT_LT(steps(50), steps(100));
  EXPECT_EQ(steps(1000), steps(2000)) << "more would learn the text by heart";
  Suggestion large = sizes(small, 6);
  large.parameters = 26'000'000;
  EXPECT_TRUE(learns_by_heart(large, small));
}

TEST(Suggest, ThePrintedCommandTrains) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "my books");
  folder.write("my books/a.txt", a_text(60000)), folder.write("my books/b.md", "left out");
  const std::string there = "cd " + folder.path().string() + " && ";
  const Ran said = run_shell(there + "inkling suggest --minutes 0.002 --data 'my books'");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.err.find("my books: 1 text file, a.txt; left out: b.md"), std::string::npos);
  EXPECT_NE(said.out.find("bits per byte of validation text from "), std::string::npos) << said.out;
  const std::string lines = said.out.substr(0, said.out.size() - 1),
                    line = lines.substr(lines.rfind('\n') + 1);
  EXPECT_EQ(line.rfind(program_path() + " train --data 'my books' --tokenizer bpe:512 ", 0), 0u)
      << line;
  const Ran trained = run_shell(there + line);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("bits per byte"), std::string::npos) << trained.out;
}

TEST(Suggest, WhatItCannotUse) {
  const TempFolder folder;
  folder.write("small.txt", a_text(5000));
  folder.write("ids.bin", a_text(50000));
  for (const auto& [words, code, error] :
       {std::tuple{"", 2, "expected --data"},
        {"--data small.txt", 1, "expected 10000 bytes of text or more, got 50"},
        {"--data ids.bin", 2, "ids.bin: expected text, got token ids"},
        {"--data none.txt", 1, "none.txt"},
        {"--data small.txt --minutes 0", 2, "--minutes"},
        {"--data small.txt --minutes soon", 2, "--minutes"},
        {"--data small.txt --device tpu", 2, "--device"}}) {
    const Ran ran = run_shell("cd " + folder.path().string() + " && inkling suggest " + words);
    EXPECT_EQ(ran.code, code) << words << ran.err;
    EXPECT_NE(ran.err.find(error), std::string::npos) << words << ran.err;
    EXPECT_EQ(ran.out, "") << words;
  }
}

}  // namespace
}  // namespace ink
