// benchmark_ops: every row of op_cases.cpp at its largest shapes, and the ops of a GPT's step at
// theirs; forward, and forward with backward. FLOPs and bytes are those that the profiler counts.
//
//   benchmark_ops --benchmark_filter=gpt2_64/linear
//   benchmark_ops --benchmark_filter='^op/softmax'
#include <benchmark/benchmark.h>

#include <algorithm>

#include "autograd/profiler.h"
#include "tests/op_case_inputs.h"
#include "train/bench.h"
#include "train/optimizer.h"

namespace ink {
namespace {

// An op and what it is called with.
struct Subject {
  Inputs inputs;
  std::function<Outputs(const Inputs&)> op;
};
using MakeSubject = std::function<Subject()>;

// What f does once, as the profiler sees it.
Work work_of(const std::function<void()>& f) {
  Profiler profiler;
  const Observe observe(profiler);
  profiler.start();
  f();
  Work total;
  for (const ProfileRow& row : profiler.rows()) {
    for (const ProfileEntry* entry : {&row.forward, &row.backward, &row.other}) {
      total.bytes_read += entry->work.bytes_read;
      total.bytes_written += entry->work.bytes_written;
      total.flops += entry->work.flops;
    }
  }
  return total;
}

void time(benchmark::State& state, const std::function<void()>& f) {
  const Work work = work_of(f);
  for ([[maybe_unused]] auto iteration : state) f();
  const auto rate = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  if (work.flops > 0) state.counters["FLOP/s"] = rate(work.flops);
  if (work.bytes() > 0) state.counters["bytes/s"] = rate(work.bytes());
}

void forward(benchmark::State& state, const MakeSubject& make) {
  const Subject subject = make();
  time(state, [&] { benchmark::DoNotOptimize(subject.op(subject.inputs)); });
}

std::vector<Tensor> that_require_grad(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> found;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found),
               [](const Tensor& x) { return x.requires_grad(); });
  return found;
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

template <class Function, class... Args>
void add_one(const std::string& name, Function function, const Args&... args) {
  benchmark::RegisterBenchmark(name.c_str(), function, args...)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}
void add(const std::string& name, const MakeSubject& make, bool has_gradient = true) {
  add_one(name + "/forward", forward, make);
  if (has_gradient) add_one(name + "/forward_backward", forward_backward, make);
}

// ---- the rows of op_cases.cpp

void add_rows() {
  for (const OpCase& row : op_cases()) {
    const auto set =
        std::max_element(row.inputs.begin(), row.inputs.end(),
                         [](const auto& a, const auto& b) { return largest(a) < largest(b); });
    const auto& small = row.inputs.front();
    const Outputs outputs = row.op(leaves_of(make_inputs(small, f32), small));
    add(
        "op/" + row.name,
        [&row, set] {
          return Subject{leaves_of(make_inputs(*set, f32), *set), row.op};
        },
        !that_require_grad(outputs).empty());
  }
}

// ---- a GPT's step

Tensor leaf(const Shape& shape) { return randn(shape).requires_grad_(); }

void add_linear(const std::string& name, int64_t tokens, int64_t in, int64_t out) {
  add(name, [=] {
    return Subject{{leaf({tokens, in}), leaf({out, in}), leaf({out})},
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
  add(name, [=] { return Subject{{leaf({B, T, 3 * C})}, attend}; });
}

void add_head(const std::string& name, int64_t tokens, int64_t C, int64_t V) {
  add(name, [=] {
    return Subject{
        {leaf({tokens, C}), leaf({V, C}), randint(V, {tokens})},
        [](const Inputs& x) -> Outputs { return {linear_cross_entropy(x[0], x[1], x[2])}; }};
  });
}

void adamw(benchmark::State& state, int64_t parameters) {
  Tensor p = leaf({parameters / 1024, 1024});
  p.set_grad(randn(p.shape()));
  AdamW optimizer(NamedTensors{{"p", p}}, {.grad_clip = 1});
  time(state, [&] { optimizer.step(); });
}

void add_gpt(const std::string& config) {
  const BenchSetup setup = bench_setup(config);
  const TrainConfig& c = setup.config;
  const int64_t B = c.batch_size, T = c.block_size, C = c.n_embd, V = setup.vocab_size, N = B * T;
  const std::string gpt = "gpt/" + config + "/";
  add_linear(gpt + "linear.c_attn", N, C, 3 * C);
  add_linear(gpt + "linear.attn.c_proj", N, C, C);
  add_linear(gpt + "linear.c_fc", N, C, 4 * C);
  add_linear(gpt + "linear.mlp.c_proj", N, 4 * C, C);
  add_attention(gpt + "attention", B, T, c.n_head, C);
  add(gpt + "layer_norm", [=] {
    return Subject{{leaf({N, C}), leaf({C}), leaf({C})},
                   [](const Inputs& x) -> Outputs { return {layer_norm(x[0], x[1], x[2])}; }};
  });
  add(gpt + "gelu", [=] {
    return Subject{{leaf({N, 4 * C})},
                   [](const Inputs& x) -> Outputs { return {gelu(x[0], Gelu::tanh)}; }};
  });
  add(gpt + "add", [=] {
    return Subject{{leaf({N, C}), leaf({N, C})},
                   [](const Inputs& x) -> Outputs { return {x[0] + x[1]}; }};
  });
  add(gpt + "embedding", [=] {
    return Subject{{randint(V, {B, T}), leaf({V, C})},
                   [](const Inputs& x) -> Outputs { return {embedding(x[0], x[1])}; }};
  });
  add_head(gpt + "linear_cross_entropy", N, C, V);
  const int64_t parameters = 12 * c.n_layer * C * C + V * C;
  add_one(gpt + "AdamW", adamw, parameters);
}

}  // namespace
}  // namespace ink

int main(int argc, char** argv) {
  for (const char* config : {"baby", "char8", "gpt2_64", "gpt2_1024"}) ink::add_gpt(config);
  ink::add_rows();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
