#include "train/data_parallel.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/memory/device_backend.h"
#include "autograd/random/generator.h"
#include "data/splitmix.h"

namespace ink {

int64_t batch_parts(const TrainConfig& config, int64_t model_parameters) {
  constexpr int64_t kSmallModel = 1 << 22;  // parameters
  const int64_t wanted = config.batch_parts > 0 ? config.batch_parts
                         : model_parameters <= kSmallModel
                             ? host_threads(parse_device(config.device))
                             : 1;
  return std::min(wanted, config.batch_size);
}

namespace {

// Random numbers of the parts of a batch. Each part has a generator of its own, which follows from
// the next output of the caller's and from the part's first row, and not from which thread runs
// when. If a part has drawn, the caller's generator moves on.
class Draws {
 public:
  Draws() : start_(default_generator().get_state()) {
    Generator next;
    next.set_state(start_);
    base_ = next.random64();
  }

  /// Calls f() with the generator of the part that begins at this row.
  template <class F>
  void run(int64_t first_row, const F& f) {
    Generator own(splitmix::mix(base_ + splitmix::kGamma * static_cast<uint64_t>(first_row)));
    const std::vector<uint8_t> before = own.get_state();
    const FieldGuard draws(&Context::generator, &own);
    f();
    if (own.get_state() != before) drawn_ = true;
  }

  void finish() {
    if (drawn_) default_generator().random64();
  }

 private:
  std::vector<uint8_t> start_;
  uint64_t base_ = 0;
  std::atomic<bool> drawn_ = false;
};

}  // namespace

Tensor backward_in_parts(int64_t rows, int64_t parts, const Tensor& scale, const PartLoss& loss) {
  INK_CHECK(parts >= 1 && parts <= rows, "backward_in_parts: expected 1 to ", rows,
            " parts of as many rows, got ", parts);
  const auto scaled = [&](const Tensor& x) { return scale.defined() ? x * scale : x; };
  if (parts == 1) {
    const Tensor whole = loss(0, rows);
    backward({scaled(whole)});
    return whole.detach();
  }
  INK_CHECK(!context().imitate_torch,
            "backward_in_parts: ImitateTorch draws random numbers in order, and several parts "
            "cannot; take one part");
  std::vector<GradStore> stores(static_cast<size_t>(parts));
  std::vector<Tensor> losses(static_cast<size_t>(parts));
  std::vector<uint64_t> calls(static_cast<size_t>(parts));
  const Context caller = context();
  Draws draws;
  const int64_t grain = caller.observers.empty() ? 1 : parts;  // observers see one thread
  parallel_for(parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const ContextGuard guard(caller);
      const int64_t first = rows * part / parts, count = rows * (part + 1) / parts - first;
      const auto i = static_cast<size_t>(part);
      context().random.first_row += static_cast<uint64_t>(first);
      context().random.rows = static_cast<uint64_t>(count);
      draws.run(first, [&] {
        const Tensor sum = loss(first, count);
        backward(scaled(sum), stores[i]);
        losses[i] = sum.detach();
      });
      calls[i] = context().random.call;
    }
  });
  // Later draws come from later positions, as after a batch in one part.
  context().random.call = *std::max_element(calls.begin(), calls.end());
  draws.finish();
  GradStore::add_to_leaves(stores);
  const NoGrad no_grad;
  Tensor total = losses[0];
  for (size_t part = 1; part < losses.size(); ++part) total = total + losses[part];
  return total;
}

}  // namespace ink
