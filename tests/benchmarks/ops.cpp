// benchmark_ops: every row of train/cases/op_cases.cpp at its largest shapes, the ops of a GPT's
// step at theirs, and the others on tensors that no cache holds; forward, and forward with
// backward. FLOPs and bytes are those that the profiler counts. `of_roof` is the least time that
// the measured peak of the unit or the bandwidth of the caches allows for them, as a fraction of
// the time taken. It is near 0 where the row is small and the call is what takes time.
//
//   benchmark_ops --benchmark_filter=gpt2_64/linear
//   benchmark_ops --device cuda --dtype bfloat16 --benchmark_filter='^(gpt|large|attention)/'
//   --small: sizes for an emulated device, to try the program
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/engine/observer.h"
#include "autograd/inspect/machine.h"
#include "autograd/inspect/profiler.h"
#include "autograd/memory/device_backend.h"
#include "autograd/ops.h"
#include "autograd/replay.h"
#include "train/cases/op_case_inputs.h"
#include "train/cli/bench.h"
#include "train/cli/profile_table.h"
#include "train/optimizer.h"

namespace ink {
namespace {

struct Settings {
  Device device;
  DType dtype = f32;  // bf16: activations as mixed precision has them; of op/ rows, all inputs
  bool small = false;
};
Settings settings;

const Machine& machine() {
  static const Machine measured = measure_machine(settings.device, settings.dtype);
  return measured;
}

// An op and what it is called with.
struct Subject {
  Inputs inputs;
  std::function<Outputs(const Inputs&)> op;
};
using MakeSubject = std::function<Subject()>;

// ---- timing

// What f does once, as the profiler sees it, and the least time in which this machine can do it.
struct Cost {
  Work work;
  double least_seconds = 0;
};
Cost cost_of(const std::function<void()>& f) {
  Profiler profiler;
  const Observe observe(profiler);
  profiler.start();
  f();
  Cost total;
  for (const ProfileRow& row : profiler.rows()) {
    for (const ProfileEntry* entry : {&row.forward, &row.backward, &row.other}) {
      total.work.bytes_read += entry->work.bytes_read;
      total.work.bytes_written += entry->work.bytes_written;
      total.work.flops += entry->work.flops;
      total.least_seconds += entry->seconds * roof_share(row.name, *entry, machine());
    }
  }
  return total;
}

// Seconds a call of f on a GPU, which is synchronised around many of them. They are captured and
// replayed, as a training step is: what the host does between launches is no part of it.
double device_seconds(const std::function<void()>& f) {
  constexpr double kTogether = 2e-3, kWindow = 10e-3;  // of captured calls; between two looks
  constexpr size_t kWindows = 5;
  const auto seconds_of = [&](int64_t times, const auto& run) {
    synchronize(settings.device);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < times; ++i) run();
    synchronize(settings.device);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return time.count() / static_cast<double>(times);
  };
  const auto as_many = [](double wanted, double each) {
    return std::clamp<int64_t>(static_cast<int64_t>(wanted / each), 1, 100);
  };
  f();
  const int64_t calls = as_many(kTogether, seconds_of(1, f));
  Replay replay(settings.device, {});
  const auto run = [&] {
    replay.run([&] {
      for (int64_t i = 0; i < calls; ++i) f();
    });
  };
  for (int i = 0; i < 4; ++i) run();
  const int64_t replays = as_many(kWindow, seconds_of(1, run));
  std::vector<double> times;
  for (size_t i = 0; i < kWindows; ++i) times.push_back(seconds_of(replays, run));
  std::sort(times.begin(), times.end());
  return times[kWindows / 2] / static_cast<double>(calls);
}

void time(benchmark::State& state, const std::function<void()>& f, const Cost& cost) {
  const auto rate = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  if (settings.device.is_cuda()) {
    const double seconds = device_seconds(f);
    for ([[maybe_unused]] auto iteration : state) state.SetIterationTime(seconds);
  } else {
    for ([[maybe_unused]] auto iteration : state) f();
  }
  if (cost.least_seconds > 0) state.counters["of_roof"] = rate(cost.least_seconds);
  if (cost.work.flops > 0) state.counters["FLOP/s"] = rate(cost.work.flops);
  if (cost.work.bytes() > 0) state.counters["bytes/s"] = rate(cost.work.bytes());
}

void time(benchmark::State& state, const std::function<void()>& f) { time(state, f, cost_of(f)); }

std::vector<Tensor> that_require_grad(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> found;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found),
               [](const Tensor& x) { return x.requires_grad(); });
  return found;
}

void forward(benchmark::State& state, const MakeSubject& make) {
  const Subject subject = make();
  time(state, [&] { benchmark::DoNotOptimize(subject.op(subject.inputs)); });
}

void forward_backward(benchmark::State& state, const MakeSubject& make) {
  const Subject subject = make();
  const std::vector<Tensor> leaves = that_require_grad(subject.inputs);
  Grads upstream;
  for (const Tensor& y : that_require_grad(subject.op(subject.inputs)))
    upstream.push_back(ones_like(y));
  time(state, [&] {
    const Outputs outputs = that_require_grad(subject.op(subject.inputs));
    benchmark::DoNotOptimize(grad(outputs, leaves, upstream));
  });
}

void add_one(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  const auto guarded = [run](benchmark::State& state) {
    try {
      const FieldGuard<Device> device(&Context::default_device, settings.device);
      const Autocast precision(settings.dtype);
      run(state);
    } catch (const Error& error) {  // the other rows can still be had
      state.SkipWithError(error.what());
    }
    empty_cache(settings.device);
  };
  auto* row = benchmark::RegisterBenchmark(name.c_str(), guarded)->Unit(benchmark::kMicrosecond);
  if (settings.device.is_cuda()) {
    row->UseManualTime()->Iterations(1);
  } else {
    row->UseRealTime();
  }
}
void add(const std::string& name, const MakeSubject& make, bool has_gradient = true) {
  add_one(name + "/forward", [make](benchmark::State& state) { forward(state, make); });
  if (has_gradient)
    add_one(name + "/forward_backward",
            [make](benchmark::State& state) { forward_backward(state, make); });
}

// ---- the rows of train/cases/op_cases.cpp

void add_rows() {
  for (const OpCase& row : op_cases()) {
    const auto set =
        std::max_element(row.inputs.begin(), row.inputs.end(),
                         [](const auto& a, const auto& b) { return largest(a) < largest(b); });
    const auto& small = row.inputs.front();
    const Outputs outputs = row.op(leaves_of(make_inputs(small, f32), small));
    const auto make = [&row, inputs = settings.small ? small : *set] {
      Inputs moved;
      for (const Tensor& x : make_inputs(inputs, settings.dtype))
        moved.push_back(x.to(settings.device));
      return Subject{leaves_of(moved, inputs), row.op};
    };
    add("op/" + row.name, make, !that_require_grad(outputs).empty());
  }
}

// ---- inputs that are drawn

// A million numbers at most are drawn, and repeated: drawing all would take longer than the rest.
constexpr int64_t kDrawn = int64_t{1} << 20;
Tensor repeated(const Tensor& drawn, const Shape& shape) {
  const int64_t n = shape.numel(), times = (n + drawn.numel() - 1) / drawn.numel();
  const Tensor all = drawn.to(settings.device).expand({times, drawn.numel()}).contiguous();
  return all.view({-1}).narrow(0, 0, n).clone().view(shape).detach();
}
Tensor numbers(const Shape& shape, DType dtype = f32) {
  const Shape drawn{std::min(shape.numel(), kDrawn)};
  return repeated(randn(drawn, {f32, cpu_device}).to(dtype), shape);
}
Tensor ids(int64_t limit, const Shape& shape) {
  return repeated(randint(limit, {std::min(shape.numel(), kDrawn)}, {i64, cpu_device}), shape);
}
Tensor leaf(const Shape& shape, DType dtype = f32) {
  return numbers(shape, dtype).requires_grad_();
}
Tensor activation(const Shape& shape) { return leaf(shape, settings.dtype); }

// ---- a GPT's step

void add_linear(const std::string& name, int64_t tokens, int64_t in, int64_t out) {
  add(name, [=] {
    return Subject{{activation({tokens, in}), leaf({out, in}), leaf({out})},
                   [](const Inputs& x) -> Outputs { return {linear(x[0], x[1], x[2])}; }};
  });
}

// As CausalSelfAttention calls it: q, k and v side by side.
void add_attention(const std::string& name, int64_t B, int64_t T, int64_t H, int64_t C) {
  const auto attend = [=](const Inputs& x) -> Outputs {
    const std::vector<Tensor> parts = split(x[0], C, 2);
    const auto heads = [&](size_t i) { return parts[i].view({B, T, H, C / H}).transpose(1, 2); };
    return {scaled_dot_product_attention(heads(0), heads(1), heads(2), {.is_causal = true})};
  };
  add(name, [=] { return Subject{{activation({B, T, 3 * C})}, attend}; });
}

void add_head(const std::string& name, int64_t tokens, int64_t C, int64_t V) {
  add(name, [=] {
    return Subject{
        {activation({tokens, C}), leaf({V, C}), ids(V, {tokens})},
        [](const Inputs& x) -> Outputs { return {linear_cross_entropy(x[0], x[1], x[2])}; }};
  });
}

template <class AnyOptimizer, class AnyOptions>
void update(benchmark::State& state, int64_t parameters, const AnyOptions& options) {
  Tensor p = leaf({parameters / 1024, 1024});
  p.set_grad(numbers(p.shape()));
  AnyOptimizer optimizer(NamedTensors{{"p", p}}, options);
  time(state, [&] { optimizer.step(); });
}

void add_gpt(const BenchSetup& setup) {
  const TrainConfig& c = setup.config;
  const int64_t B = c.batch_size, T = c.block_size, C = c.n_embd, V = setup.vocab_size, N = B * T;
  const std::string gpt = "gpt/" + setup.name + "/";
  add_linear(gpt + "linear.c_attn", N, C, 3 * C);
  add_linear(gpt + "linear.attn.c_proj", N, C, C);
  add(gpt + "mlp", [=] {
    return Subject{
        {activation({N, C}), leaf({4 * C, C}), leaf({4 * C}), leaf({C, 4 * C}), leaf({C})},
        [](const Inputs& x) -> Outputs { return {mlp(x[0], x[1], x[2], x[3], x[4])}; }};
  });
  add_attention(gpt + "attention", B, T, c.n_head, C);
  add(gpt + "layer_norm", [=] {
    return Subject{{leaf({N, C}), leaf({C}), leaf({C})},
                   [](const Inputs& x) -> Outputs { return {layer_norm(x[0], x[1], x[2])}; }};
  });
  add(gpt + "add_layer_norm", [=] {
    return Subject{{leaf({N, C}), activation({N, C}), leaf({C}), leaf({C})},
                   [](const Inputs& x) -> Outputs {
                     const auto [sum, y] = add_layer_norm(x[0], x[1], x[2], x[3]);
                     return {sum, y};
                   }};
  });
  add(gpt + "gelu", [=] {
    return Subject{{activation({N, 4 * C})},
                   [](const Inputs& x) -> Outputs { return {gelu(x[0], Gelu::tanh)}; }};
  });
  add(gpt + "add", [=] {
    return Subject{{leaf({N, C}), activation({N, C})},
                   [](const Inputs& x) -> Outputs { return {x[0] + x[1]}; }};
  });
  add(gpt + "dropout", [=] {
    return Subject{{activation({N, C})},
                   [](const Inputs& x) -> Outputs { return {dropout(x[0], 0.2)}; }};
  });
  add(gpt + "embedding", [=] {
    return Subject{{ids(V, {B, T}), leaf({V, C})},
                   [](const Inputs& x) -> Outputs { return {embedding(x[0], x[1])}; }};
  });
  add_head(gpt + "linear_cross_entropy", N, C, V);
  const int64_t parameters = 12 * c.n_layer * C * C + V * C;
  add_one(gpt + "AdamW", [=](benchmark::State& state) {
    update<AdamW>(state, parameters, AdamWOptions{.grad_clip = 1});
  });
  add_one(gpt + "SGD", [=](benchmark::State& state) {
    update<SGD>(state, parameters, SGDOptions{.momentum = 0.9, .grad_clip = 1});
  });
}

// On a GPU a batch that fills it.
std::vector<BenchSetup> gpt_setups() {
  std::vector<BenchSetup> setups;
  if (settings.device.is_cpu()) {
    for (const char* name : {"baby", "char8", "gpt2_64", "gpt2_1024"})
      setups.push_back(bench_setup(name));
  } else {
    for (const char* name : {"baby", "char", "gpt2_1024"}) setups.push_back(bench_setup(name));
    setups.back().config.batch_size = 32;
  }
  if (!settings.small) return setups;
  setups.resize(1);
  TrainConfig& config = setups[0].config;
  config.batch_size = config.n_layer = 1;
  config.block_size = 16;
  config.n_embd = 32;
  return setups;
}

// ---- the other ops, on more elements than a cache holds

using Calls = std::vector<std::pair<const char*, std::function<Tensor(const Inputs&)>>>;

// x[0], x[1]: (rows, n), x[2]: (n), x[3]: ids below n, (rows, n), x[4]: (rows, n), bool
const Calls& large_calls() {
  static const Calls calls = {
      {"exp", [](const Inputs& x) { return exp(x[0]); }},
      {"tanh", [](const Inputs& x) { return tanh(x[0]); }},
      {"mul", [](const Inputs& x) { return x[0] * x[1]; }},
      {"mul_number", [](const Inputs& x) { return x[0] * 3; }},
      {"add_row", [](const Inputs& x) { return x[0] + x[2]; }},
      {"add_transposed",
       [](const Inputs& x) {
         return x[0] + x[1].view({x[1].size(1), x[1].size(0)}).T();
       }},
      {"copy_transposed", [](const Inputs& x) { return x[0].T().contiguous(); }},
      {"where", [](const Inputs& x) { return where(x[4], x[0], x[1]); }},
      {"masked_fill", [](const Inputs& x) { return masked_fill(x[0], x[4], 0); }},
      {"less", [](const Inputs& x) { return x[0] < x[1]; }},
      {"tril", [](const Inputs& x) { return tril(x[0]); }},
      {"sum", [](const Inputs& x) { return sum(x[0]); }},
      {"sum_of_rows", [](const Inputs& x) { return sum(x[0], {1}); }},
      {"sum_of_columns", [](const Inputs& x) { return sum(x[0], {0}); }},
      {"max_of_rows", [](const Inputs& x) { return amax(x[0], {1}); }},
      {"argmax_of_rows", [](const Inputs& x) { return argmax(x[0], 1); }},
      {"var_of_rows", [](const Inputs& x) { return var(x[0], {1}); }},
      {"logsumexp", [](const Inputs& x) { return logsumexp(x[0], {1}); }},
      {"cumsum", [](const Inputs& x) { return cumsum(x[0], 1); }},
      {"softmax", [](const Inputs& x) { return softmax(x[0]); }},
      {"log_softmax", [](const Inputs& x) { return log_softmax(x[0]); }},
      {"cross_entropy", [](const Inputs& x) { return cross_entropy(x[0], x[3].select(1, 0)); }},
      {"layer_norm", [](const Inputs& x) { return layer_norm(x[0], x[2]); }},
      {"rms_norm", [](const Inputs& x) { return rms_norm(x[0], x[2]); }},
      {"gather", [](const Inputs& x) { return gather(x[0], 1, x[3]); }},
      {"scatter_add", [](const Inputs& x) { return scatter_add(x[0], 1, x[3], x[1]); }},
  };
  return calls;
}

void add_large() {
  const Shape shape = settings.small ? Shape{8, 96} : Shape{4096, 8192};
  const int64_t n = shape.back();
  for (const auto& [name, call] : large_calls()) {
    const bool has_gradient = std::string(name).rfind("arg", 0) != 0 && name != std::string("less");
    add(
        std::string("large/") + name,
        [=, f = call] {
          return Subject{{activation(shape), activation(shape), leaf({n}), ids(n, shape),
                          ids(2, shape).to(boolean)},
                         [f](const Inputs& x) -> Outputs { return {f(x)}; }};
        },
        has_gradient);
  }
  add_one("large/fill", [=](benchmark::State& state) {
    Tensor x = activation(shape).detach();
    const auto bytes = static_cast<double>(x.storage()->bytes);
    time(state, [&] { x.fill_(1); },
         {{.bytes_written = bytes}, machine().seconds_to_move(0, bytes)});
  });
}

// ---- what a step of training has none of

// A token of a text, of `batch` texts at once: one query to many keys, and the draw.
void add_sampling(int64_t batch, int64_t heads, int64_t keys, int64_t V) {
  const auto make = [=] {
    return Subject{{activation({batch, heads, 1, 64}), activation({batch, heads, keys, 64})},
                   [](const Inputs& x) -> Outputs {
                     return {scaled_dot_product_attention(x[0], x[1], x[1])};
                   }};
  };
  const std::string size = "_B" + std::to_string(batch);
  add("sampling/attention" + size + "_S" + std::to_string(keys), make, false);
  add(
      "sampling/draw" + size + "_V" + std::to_string(V),
      [=] {
        return Subject{{softmax(numbers({batch, V}))},
                       [](const Inputs& x) -> Outputs { return {sample(x[0])}; }};
      },
      false);
}

// A window of 256 positions, as a mask of bools and as one of numbers.
void add_masked_attention(int64_t B, int64_t H, int64_t T) {
  for (const bool bools : {true, false}) {
    add(std::string("masked/attention.") + (bools ? "bools" : "numbers"), [=] {
      const Tensor i = arange(static_cast<double>(T)).view({T, 1}), far = i - i.T() > 255.0;
      const Tensor mask = bools ? logical_not(far) : masked_fill(zeros({T, T}), far, -INFINITY);
      return Subject{{activation({B, H, T, 64}), mask}, [](const Inputs& x) -> Outputs {
                       return {scaled_dot_product_attention(
                           x[0], x[0], x[0], {.attn_mask = x[1], .is_causal = true})};
                     }};
    });
  }
}

// Rows that start at no multiple of 16 bytes.
void add_vocabulary(int64_t rows, int64_t V) {
  const std::string size = "_V" + std::to_string(V);
  add("vocabulary/softmax" + size, [=] {
    return Subject{{activation({rows, V})},
                   [](const Inputs& x) -> Outputs { return {softmax(x[0])}; }};
  });
  add("vocabulary/cross_entropy" + size, [=] {
    return Subject{{activation({rows, V}), ids(V, {rows})},
                   [](const Inputs& x) -> Outputs { return {cross_entropy(x[0], x[1])}; }};
  });
}

// ---- options

// The value of --name VALUE or --name=VALUE, which is taken out of the arguments; else "".
std::string take(int& argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool together = argument.rfind(name + "=", 0) == 0;
    if (!together && argument != name) continue;
    const int used = together || i + 1 == argc ? 1 : 2;
    const std::string value = together    ? argument.substr(name.size() + 1)
                              : used == 2 ? argv[i + 1]
                                          : "";
    std::copy(argv + i + used, argv + argc, argv + i);
    argc -= used;
    INK_CHECK(!value.empty(), name, ": expected a value after it");
    return value;
  }
  return "";
}

void read_settings(int& argc, char** argv) {
  if (const std::string name = take(argc, argv, "--device"); !name.empty())
    settings.device = parse_device(name);
  if (const std::string name = take(argc, argv, "--dtype"); !name.empty()) {
    INK_CHECK(name == "float32" || name == "bfloat16",
              "--dtype: expected float32 or bfloat16, got ", name);
    settings.dtype = name == "bfloat16" ? bf16 : f32;
  }
  char** small = std::find(argv, argv + argc, std::string("--small"));
  settings.small = small != argv + argc;
  if (settings.small) std::copy(small + 1, argv + argc--, small);
  if (settings.device.is_cuda()) static_cast<void>(backend_of(settings.device));  // refused now
}

void add_all() {
  for (const BenchSetup& setup : gpt_setups()) add_gpt(setup);
  if (settings.small) {
    add_attention("attention/B1_H2_T64_D32", 1, 64, 2, 64);
    add_sampling(1, 2, 130, 1025);
    add_masked_attention(1, 2, 64);
    add_vocabulary(3, 1025);
  } else {
    add_attention("attention/B16_H12_T1024_D64", 16, 1024, 12, 768);
    for (const int64_t batch : {1, 32}) add_sampling(batch, 12, 1024, 50257);
    add_masked_attention(16, 12, 1024);
    add_vocabulary(656, 50257);
  }
  add_large();
  add_rows();
}

}  // namespace
}  // namespace ink

int main(int argc, char** argv) {
  try {
    ink::read_settings(argc, argv);
  } catch (const ink::Error& error) {
    std::cerr << "benchmark_ops: " << error.what() << "\n";
    return 2;
  }
  ink::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("device", ink::describe(ink::settings.device));
  benchmark::AddCustomContext("dtype", ink::name_of(ink::settings.dtype));
  const ink::Machine& machine = ink::machine();
  benchmark::AddCustomContext("flops_per_second", std::to_string(machine.flops_per_second));
  benchmark::AddCustomContext("bytes_per_second", std::to_string(machine.bytes_per_second));
  benchmark::RunSpecifiedBenchmarks();
}
