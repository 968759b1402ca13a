// Time and memory: where they go, how to spend less
//
// A training step spends its time on matrix products and on moving numbers to and from memory. Most
// of its memory holds what backward will need. Afterwards you can measure both, op by op, and know
// four ways to save: fused ops, checkpoints, recomputing and mixed precision. Seconds differ from
// run to run, so this lesson prints only bytes, counts and comparisons.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/engine/checkpoint.h"
#include "autograd/inspect/profiler.h"
#include "autograd/memory/storage.h"
#include "autograd/ops.h"
#include "nn/block.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson8 : Notebook {
  // ---- 1. A profile: every op, forward and backward
  //
  // column pads a cell of the table below.
  static std::string column(std::string text, size_t width = 14) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
  }
  static std::string megabytes(double bytes) { return fixed(bytes / 1e6, 1); }

  void step_1() {
    // Block is the block of a GPT, as in lesson 7. The profiler is an observer: while `observe`
    // lives, the profiler sees each op that runs, and each vjp.
    manual_seed(1);
    const Block block({.n_head = 4, .n_embd = 64});
    const Tensor x = randn({8, 128, 64});  // (B, T, C)
    Profiler profiler;
    {
      const Observe observe(profiler);
      profiler.start();
      sum(block(x)).backward();
    }

    // Each op has a row. rows() gives the slowest op first. Here they are sorted by name, because
    // times change. Bytes count each input and output of an op once. FLOPs are additions and
    // multiplications, of matrix products only, because other ops wait for memory and not for
    // arithmetic. Views move no bytes, and their rows are left out.
    std::vector<ProfileRow> rows = profiler.rows();
    std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.name < b.name; });
    std::string table = column("op", 18) + column("calls", 8) + column("MB forward") +
                        column("MB backward") + "million FLOPs in all";
    for (const ProfileRow& row : rows) {
      const Work &forward = row.forward.work, &backward = row.backward.work;
      if (forward.bytes() + backward.bytes() < 1e5) continue;
      table += "\n" + column(row.name, 18) + column(std::to_string(row.forward.calls), 8) +
               column(megabytes(forward.bytes())) + column(megabytes(backward.bytes())) +
               fixed((forward.flops + backward.flops) / 1e6, 1);
    }
    print(table);

    // Five sixths of the FLOPs are in linear and gelu_linear, the products with weights. The names
    // of two fused ops say what they do in one pass: a gelu and then a linear, an addition and then
    // a layer_norm.
  }

  // ---- 2. Fusing: one pass over memory instead of many
  //
  // cost_of runs forward and backward, and counts bytes: how many ops moved in both, and how many
  // forward kept for backward.
  struct Cost {
    double moved = 0, kept = 0;
  };
  static Cost cost_of(const std::function<Tensor()>& forward) {
    Cost cost;
    Profiler profiler;
    const Observe observe(profiler);
    profiler.start();
    const int64_t before = memory_stats().bytes_in_use;
    const Tensor loss = forward();
    cost.kept = static_cast<double>(memory_stats().bytes_in_use - before);
    loss.backward();
    for (const ProfileRow& row : profiler.rows())
      cost.moved += row.forward.work.bytes() + row.backward.work.bytes();
    return cost;
  }

  void step_2() {
    // layer_norm is one loop forward and one backward. While a Composed lives, the same call runs
    // as its definition: a mean, a difference, a square and so on. Each of these ops is a pass over
    // all numbers. The fused op keeps two numbers per row, and x, which exists anyway.
    const Tensor x = randn({1024, 256}).requires_grad_();
    const auto norm_of_x = [&] { return sum(layer_norm(x)); };
    const Cost fused = cost_of(norm_of_x);
    const Composed guard;
    const Cost composed = cost_of(norm_of_x);
    print("MB moved: fused", megabytes(fused.moved), "composed", megabytes(composed.moved));
    print("MB kept:  fused", megabytes(fused.kept), "composed", megabytes(composed.kept));
  }

  // ---- 3. Checkpoints: less memory for more time
  //
  // The model is four blocks. gradient_of gives the gradient of one weight, for comparison.
  ModuleList<Block> blocks{4, GPTConfig{.n_head = 4, .n_embd = 64}};
  Tensor input = randn({8, 128, 64});

  Tensor plain() {
    Tensor x = input;
    for (const Block& block : blocks) x = block(x);
    return mean(square(x));
  }
  Tensor checkpointed() {
    Tensor x = input;
    for (const Block& block : blocks)
      x = checkpoint([&](const Tensor& in) { return block(in); }, x);
    return mean(square(x));
  }
  Tensor gradient_of(const Tensor& loss) {
    return grad({loss}, {blocks[0].attn->c_attn.weight})[0];
  }

  void step_3() {
    // Here each block is a checkpointed section: the graph keeps only its input. When backward gets
    // to a section, it runs the section once more. This second forward makes a step about a third
    // longer.
    const Cost usual = cost_of([&] { return plain(); });
    const Cost saving = cost_of([&] { return checkpointed(); });
    print("MB kept:", megabytes(usual.kept), "with checkpoints", megabytes(saving.kept));
    print("same gradients:", equal(gradient_of(plain()), gradient_of(checkpointed())));
  }

  // ---- 4. Recompute: compute again only what costs little

  void step_4() {
    // The outputs of norms and GELUs are large, but take little time to compute. While a Recompute
    // lives, the graph does not keep them. backward computes them again from their inputs, which
    // are kept anyway.
    const Tensor expected = gradient_of(plain());
    const Cost usual = cost_of([&] { return plain(); });
    const Recompute guard;
    const Cost saving = cost_of([&] { return plain(); });
    print("MB kept:", megabytes(usual.kept), "with Recompute", megabytes(saving.kept));
    print("same gradients:", equal(gradient_of(plain()), expected));
  }

  // ---- 5. Mixed precision: half the bits where they are not needed

  void step_5() {
    // bf16 takes 2 bytes per number and f32 takes 4. While an Autocast lives, matrix products read
    // and write bf16. Weights, their gradients and all sums stay f32. They need it, because bf16
    // has only 8 bits of precision: a small update of a large weight would be lost.
    const double expected = plain().item();
    const Cost usual = cost_of([&] { return plain(); });
    const Autocast guard;
    const Cost saving = cost_of([&] { return plain(); });
    print("MB kept:", megabytes(usual.kept), "with Autocast", megabytes(saving.kept));
    print("loss within a percent:", std::abs(plain().item() / expected - 1) < 0.01);

    // To try: print row.seconds() in step 1, and find the slowest op. Call profiler.trace(true),
    // and let save_trace write a file that ui.perfetto.dev shows. Then measure Recompute and
    // Autocast together.
  }
};

}  // namespace

Lesson lesson_8() {
  using N = Lesson8;
  return lesson<N>("8_time_and_memory",
                   {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
