// Parts of a batch on threads of their own: the same gradients within rounding, the same masks, the
// same bits every time, and errors that reach the caller.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/engine/graph.h"
#include "autograd/engine/observer.h"
#include "autograd/fused_ops.h"
#include "autograd/random/generator.h"
#include "nn/batch_norm.h"
#include "nn/gpt.h"
#include "tests/support/error_of.h"
#include "train/config.h"
#include "train/parallel/parts.h"
#include "train/parallel/processes.h"

namespace ink {
namespace {

GPTConfig small_config(double dropout) {
  manual_seed(5);
  GPTConfig config;
  config.vocab_size = 17;
  config.block_size = 12;
  config.n_layer = config.n_head = 2;
  config.n_embd = 16;
  config.dropout = dropout;
  return config;
}

struct Work {
  GPT model;
  std::vector<Tensor> parameters;
  Tensor x, y;

  explicit Work(double dropout)
      : model(small_config(dropout)),
        parameters(model.parameters()),
        x(randint(0, 17, {7, 12})),
        y(randint(0, 17, {7, 12})) {}

  PartLoss part_loss() const {
    return [this](int64_t first, int64_t count) {
      return model.loss(x.narrow(0, first, count), y.narrow(0, first, count), Reduction::sum);
    };
  }
  // The mean loss, and after it all gradients in one vector.
  std::vector<double> run(int64_t parts, double scale = 1) {
    const ContextGuard guard;
    context().random = {.seed = 3, .step = 2};
    for (Tensor& p : parameters) p.set_grad(Tensor());
    const Tensor share = 1 / sum(y != -100).to(f32);
    const Tensor loss = backward_in_parts(7, parts, share * scale, part_loss()) * share;
    std::vector<double> all{loss.item()};
    for (const Tensor& p : parameters) {
      const auto values = p.grad().tolist();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
}

TEST(DataParallel, GradientsAreThoseOfTheWholeBatch) {
  for (const double dropout : {0.0, 0.3}) {  // masks are functions of the row in the whole batch
    Work work(dropout);
    const auto whole = work.run(1);
    for (const int64_t parts : {2, 3, 7}) expect_near(work.run(parts), whole);
    EXPECT_EQ(work.run(2), work.run(2)) << "the same bits";
  }
}

TEST(DataParallel, ScalesGradientsAndAddsToWhatIsThere) {
  Work work(0);
  const auto once = work.run(2), half = work.run(2, 0.5);
  EXPECT_EQ(half[0], once[0]);  // the loss is not scaled
  for (size_t i = 1; i < once.size(); ++i) ASSERT_NEAR(half[i], once[i] / 2, 1e-7);
  work.run(2);
  const Tensor before = work.parameters[0].grad().clone();
  backward_in_parts(7, 2, scalar_tensor(1.0 / work.y.numel()), work.part_loss());
  const auto sum = work.parameters[0].grad().tolist(), expected = (before * 2).tolist();
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], expected[i], 1e-6);
}

// In one part and in several: once, with the gradient of the whole batch; what a hook returns is
// added to the grad, which is up to date when the other kind of hook is called.
TEST(DataParallel, HooksOfParametersRunOnceOnTheWholeGradient) {
  Work work(0);
  const auto plain = work.run(2);
  Tensor p = work.parameters[0];
  const auto expected = p.grad().tolist();
  for (const int64_t parts : {1, 2, 7}) {
    int calls = 0, calls_after = 0;
    std::vector<double> seen, grad_after;
    HookHandle hook = p.register_hook([&](const Tensor& g) {
      ++calls;
      seen = g.tolist();
      return g * 2;
    });
    HookHandle after = p.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
      ++calls_after;
      EXPECT_TRUE(leaf.is_same(p));
      grad_after = leaf.grad().tolist();
    });
    const auto doubled = work.run(parts);
    EXPECT_EQ(calls, 1) << parts;
    EXPECT_EQ(calls_after, 1) << parts;
    expect_near(seen, expected);
    EXPECT_EQ(grad_after, p.grad().tolist());
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(grad_after[i], 2 * seen[i]) << i;
    hook.remove();
    after.remove();
    expect_near(work.run(parts), plain);
    EXPECT_EQ(calls + calls_after, 2) << "after remove()";
  }
}

TEST(DataParallel, AnErrorOfOnePartReachesTheCaller) {
  Work work(0);
  const std::string error = error_of([&] {
    backward_in_parts(7, 3, {}, [&](int64_t first, int64_t count) {
      INK_CHECK(first < 4, "part: no rows from ", first, " on");
      return work.model.loss(work.x.narrow(0, first, count), work.y.narrow(0, first, count));
    });
  });
  EXPECT_EQ(error, "part: no rows from 4 on");
  for (const Tensor& p : work.parameters) EXPECT_FALSE(p.grad().defined());
  EXPECT_EQ(Node::live, 0);
}

// Also where a part has no target that counts.
TEST(DataParallel, EveryTargetCountsAlike) {
  Work work(0);
  work.y.index({0}).fill_(-100);
  work.y.index({Slice(2, 4), Slice(3, None)}).fill_(-100);
  for (Tensor& p : work.parameters) p.set_grad(Tensor());
  const Tensor mean = work.model.loss(work.x, work.y);
  mean.backward();
  const auto expected = work.parameters[2].grad().tolist();
  for (const int64_t parts : {1, 2, 4, 7}) {
    EXPECT_NEAR(work.run(parts)[0], mean.item(), 1e-6) << parts;
    expect_near(work.parameters[2].grad().tolist(), expected);
  }
}

// Of activations that were flattened to (B T, C), too; and the next call draws others.
TEST(DataParallel, MasksAreThoseOfTheWholeBatch) {
  const ContextGuard guard;
  Tensor x = ones({6, 3, 4}).requires_grad_();
  const auto masks = [&](int64_t parts) {
    x.set_grad(Tensor());
    backward_in_parts(6, parts, {}, [&](int64_t first, int64_t count) {
      const Tensor rows = x.narrow(0, first, count).reshape({-1, 4});
      return sum(dropout(dropout(rows, 0.5), 0.3));
    });
    return x.grad().tolist();
  };
  context().random = {.seed = 3};
  const auto whole = masks(1), after = masks(1);
  EXPECT_NE(whole, after);
  for (const int64_t parts : {2, 3, 6}) {
    context().random = {.seed = 3};
    EXPECT_EQ(masks(parts), whole) << parts;
    EXPECT_EQ(masks(parts), after) << parts;
  }
  const std::string error = error_of([&] {
    backward_in_parts(6, 3, {}, [&](int64_t first, int64_t count) {
      return sum(dropout(x.narrow(0, first, count).transpose(0, 1), 0.5));
    });
  });
  EXPECT_NE(error.find("dropout: dimension 0 of (3, 2, 4) does not hold the 2 rows"),
            std::string::npos)
      << error;
}

TEST(DataParallel, SamplesAreThoseOfTheWholeBatch) {
  const Tensor w = zeros({1}).requires_grad_(), p = full({24, 40}, 1.0 / 40);
  const auto drawn = [&](int64_t parts) {
    context().random = {};
    std::vector<int64_t> ids(24);
    backward_in_parts(12, parts, {}, [&](int64_t first, int64_t count) {  // two samples a row
      const auto part = sample(p.narrow(0, 2 * first, 2 * count)).tolist<int64_t>();
      std::copy(part.begin(), part.end(), ids.begin() + 2 * first);
      return sum(w);
    });
    return ids;
  };
  const ContextGuard guard(context());
  const auto whole = drawn(1);
  for (int64_t parts : {2, 3, 4, 12}) EXPECT_EQ(drawn(parts), whole) << parts;
}

// A loss with noise from the default generator.
TEST(DataParallel, DrawsFollowTheGeneratorAndNotTheThreads) {
  const Tensor x = randn({7, 3});
  Tensor w = ones({3}).requires_grad_();
  const PartLoss noisy = [&](int64_t first, int64_t count) {
    const Tensor rows = x.narrow(0, first, count);
    return sum((rows + 0.05 * randn_like(rows)) * w);
  };
  const auto run = [&](const PartLoss& loss, int64_t threads) {
    const FieldGuard guard(&Context::threads, threads);
    w.set_grad(Tensor());
    return backward_in_parts(7, 3, {}, loss).item();
  };
  manual_seed(5);
  const double first = run(noisy, 1), second = run(noisy, 1), after = rand({}).item();
  EXPECT_NE(first, second);
  for (const int64_t threads : {2, 3, 3, 3, 3}) {
    manual_seed(5);
    EXPECT_EQ(run(noisy, threads), first);
    EXPECT_EQ(run(noisy, threads), second);
    EXPECT_EQ(rand({}).item(), after);
  }
  std::vector<double> draws(3);
  run(
      [&](int64_t row, int64_t count) {
        draws[static_cast<size_t>(row / 2)] = rand({}).item();
        return sum(x.narrow(0, row, count) * w);
      },
      3);
  EXPECT_EQ((std::set<double>(draws.begin(), draws.end()).size()), 3u) << "each part has its own";
  // What draws nothing leaves the generator as it was.
  manual_seed(5);
  const auto before = default_generator().get_state();
  run([&](int64_t a, int64_t count) { return sum(x.narrow(0, a, count) * w); }, 3);
  EXPECT_EQ(default_generator().get_state(), before);
}

TEST(DataParallel, ObserversSeeOneThreadAndImitationIsRefused) {
  struct Threads : Observer {
    std::set<std::thread::id> seen;
    void op(const char*, const std::vector<Tensor>&, const std::vector<Tensor>&, bool) override {
      seen.insert(std::this_thread::get_id());
    }
  } threads;
  const Tensor w = ones({1}).requires_grad_();
  const PartLoss loss = [&](int64_t, int64_t count) { return sum(w * static_cast<double>(count)); };
  {
    const ContextGuard guard(context());
    context().observers.push_back(&threads);
    EXPECT_EQ(backward_in_parts(8, 4, {}, loss).item(), 8);
  }
  EXPECT_EQ(threads.seen.size(), 1u);
  EXPECT_EQ(w.grad().item(), 8);
  const ImitateTorch imitate(BernoulliRule::plain);
  EXPECT_EQ(error_of([&] { backward_in_parts(8, 4, {}, loss); }),
            "backward_in_parts: ImitateTorch draws random numbers in order, and several parts "
            "cannot; take one part");
}

TEST(DataParallel, RunningStatisticsAreRefusedInParts) {
  const BatchNorm1d norm(3);
  const Tensor x = randn({4, 3});
  const auto run = [&](int64_t parts) {
    return error_of([&] {
      backward_in_parts(4, parts, {}, [&](int64_t first, int64_t count) {
        return sum(norm(x.narrow(0, first, count)));
      });
    });
  };
  EXPECT_NE(run(2).find("batch_norm: a part of a batch"), std::string::npos);
  EXPECT_EQ(norm.num_batches_tracked.item(), 0);
  run(1);
  EXPECT_EQ(norm.num_batches_tracked.item(), 1);
}

struct Counting : Module {
  Buffer calls = zeros({});
  Tensor operator()(const Tensor& x) const {
    const NoGrad no_grad;
    Tensor(calls).add_(1);
    return x;
  }
  INK_FIELDS(calls)
};

TEST(DataParallel, ModulesThatWriteABufferAreRefusedInParts) {
  const Counting counting;
  const Tensor x = randn({4, 3}).requires_grad_();
  const auto run = [&](int64_t parts) {
    return error_of([&] {
      backward_in_parts(4, parts, {}, [&](int64_t first, int64_t count) {
        counting(x);
        return sum(x.narrow(0, first, count));
      });
    });
  };
  EXPECT_EQ(run(2),
            "add_: a module's buffer, (), is written by a part of a batch, beside which others "
            "run; take one part (batch_parts = 1)");
  EXPECT_EQ(counting.calls.item(), 0);
  run(1);
  EXPECT_EQ(counting.calls.item(), 1);
}

// However it was made.
struct Drifting : Module {
  Parameter made = zeros({2}), taken = zeros({3}).requires_grad_();
  INK_FIELDS(made, taken)
};

TEST(DataParallel, ParametersThatAPartWritesAreRefusedByTheirName) {
  const Drifting drifting;
  const auto error = [&](const Tensor& written) {
    return error_of([&] {
      backward_in_parts(4, 2, {}, [&](int64_t, int64_t) {
        const NoGrad no_grad;
        Tensor(written).add_(1);
        return sum(drifting.made);
      });
    });
  };
  EXPECT_EQ(error(drifting.made).find("add_: a module's parameter, (2,), is written by a part"), 0u)
      << error(drifting.made);
  EXPECT_EQ(error(drifting.taken).find("add_: a module's parameter, (3,), is written by"), 0u)
      << error(drifting.taken);
  EXPECT_EQ(drifting.taken.tolist(), (std::vector<double>{0, 0, 0}));
}

// Whoever owns it.
TEST(DataParallel, EveryLeafGetsItsGradient) {
  Tensor scale = ones({}).requires_grad_();
  Tensor late = ones({}).requires_grad_();  // only the last part knows it
  for (const int64_t parts : {1, 2, 4}) {
    scale.set_grad({});
    late.set_grad({});
    backward_in_parts(4, parts, {}, [&](int64_t first, int64_t count) {
      const Tensor loss = scale * static_cast<double>(count);
      return first + count == 4 ? loss + late : loss;
    });
    EXPECT_EQ(scale.grad().item(), 4);
    EXPECT_EQ(late.grad().item(), 1);
  }
}

TEST(DataParallel, RefusesPartsWithoutRows) {
  TrainConfig config;
  config.batch_parts = -1;
  EXPECT_NE(error_of([&] { config.check(); }).find("batch_parts"), std::string::npos);
  for (const int64_t parts : {0, 4})
    EXPECT_EQ(
        error_of(
            [&] { backward_in_parts(3, parts, {}, [](int64_t, int64_t) { return zeros({}); }); }),
        "backward_in_parts: expected 1 to 3 parts of as many rows, got " + std::to_string(parts));
}

// Slurm's tasks may see all cores of the machine, of which the job has a few.
TEST(Processes, TasksOfSlurmShareTheCoresOfTheirJob) {
  cpu_set_t allowed;
  if (std::getenv("SLURM_GTIDS") != nullptr || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    GTEST_SKIP() << "this is such a task, or cores are not known";
  const int64_t before = processes_on_these_cores(), cores = CPU_COUNT(&allowed);
  const auto sharing = [](const char* tasks, int64_t given) {
    setenv("SLURM_GTIDS", tasks, 1);
    setenv("SLURM_CPUS_ON_NODE", std::to_string(given).c_str(), 1);
    return processes_on_these_cores();
  };
  EXPECT_EQ(sharing("4,5,6", cores), 3);
  EXPECT_EQ(sharing("7", cores), 1);
  EXPECT_EQ(sharing("0", 1), cores) << "it may use one of them";
  unsetenv("SLURM_GTIDS");
  unsetenv("SLURM_CPUS_ON_NODE");
  EXPECT_EQ(processes_on_these_cores(), before);
}

}  // namespace
}  // namespace ink
