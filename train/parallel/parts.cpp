#include "train/parallel/parts.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/engine/graph.h"
#include "autograd/random/generator.h"
#include "data/splitmix.h"

namespace ink {
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

BatchParts::BatchParts(int64_t parts, Processes& processes, int64_t threads,
                       std::vector<Tensor> leaves, SumOptions sum)
    : parts_(parts),
      threads_(threads),
      processes_(processes),
      begin_(parts * processes.rank() / processes.size()),
      end_(parts * (processes.rank() + 1) / processes.size()),
      leaves_(std::move(leaves)),
      sum_options_(std::move(sum)),
      stores_(static_cast<size_t>(parts > 1 ? end_ - begin_ : 0)) {}

// Hooks of a program's own see the sums, and gradients of earlier batches or steps come first.
bool BatchParts::may_start() const {
  return processes_.size() > 1 && end_ - begin_ == 1 && losses_.size() == 1 &&
         std::all_of(leaves_.begin(), leaves_.end(), [](const Tensor& leaf) {
           return !leaf.requires_grad() || (!leaf.grad().defined() && !leaf.slot()->hooks);
         });
}

// Each leaf says when its gradient is complete.
void BatchParts::start(const Tensor& loss) {
  struct Hooked {
    const std::vector<Tensor>& leaves;
    ~Hooked() {
      for (const Tensor& leaf : leaves)
        if (leaf.requires_grad()) leaf.slot()->hooks.reset();
    }
  };
  started_.resize(leaves_.size());
  travel_ = std::make_unique<GradientSum>(
      processes_, leaves_, [this](size_t leaf) { return std::vector<Tensor>{started_[leaf]}; },
      sum_options_);
  const Hooked hooked{leaves_};
  for (size_t i = 0; i < leaves_.size(); ++i)
    if (Tensor leaf = leaves_[i]; leaf.requires_grad())
      leaf.register_post_accumulate_grad_hook([this, i](Tensor of) {
        started_[i] = of.grad();
        of.set_grad({});
        travel_->complete(i);
      });
  ink::backward({loss});
}

void BatchParts::backward(int64_t rows, const Tensor& scale, const PartLoss& loss, bool last) {
  INK_CHECK(parts_ >= 1 && parts_ <= rows, "backward_in_parts: expected 1 to ", rows,
            " parts of as many rows, got ", parts_);
  const auto scaled = [&](const Tensor& x) { return scale.defined() ? x * scale : x; };
  if (parts_ == 1) {
    const Tensor whole = loss(0, rows);
    ink::backward({scaled(whole)});
    losses_.push_back({whole.detach()});
    return;
  }
  INK_CHECK(!context().imitate_torch,
            "backward_in_parts: ImitateTorch draws random numbers in order, and several parts "
            "cannot; take one part");
  const int64_t own = end_ - begin_;
  std::vector<Tensor>& losses = losses_.emplace_back(static_cast<size_t>(own));
  std::vector<uint64_t> calls(static_cast<size_t>(own));
  Context caller = context();
  Draws draws;
  if (threads_ > 1 || own == 1) caller.threads = threads_;
  // Observers see one thread.
  const int64_t grain = threads_ > 1 || !caller.observers.empty() ? own : 1;
  parallel_for(own, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const ContextGuard guard(caller);
      const int64_t first = rows * (begin_ + part) / parts_,
                    count = rows * (begin_ + part + 1) / parts_ - first;
      const auto i = static_cast<size_t>(part);
      context().random.first_row += static_cast<uint64_t>(first);
      context().random.rows = static_cast<uint64_t>(count);
      draws.run(first, [&] {
        const Tensor sum = loss(first, count);
        const bool starts = last && may_start();
        starts ? start(scaled(sum)) : ink::backward(scaled(sum), stores_[i]);
        losses[i] = sum.detach();
      });
      calls[i] = context().random.call;
    }
  });
  // Later draws come from later positions, as after a batch in one part.
  context().random.call = *std::max_element(calls.begin(), calls.end());
  draws.finish();
}

Tensor BatchParts::add_to_leaves() {
  const NoGrad no_grad;
  if (travels() && !travel_)
    travel_ = std::make_unique<GradientSum>(
        processes_, leaves_,
        [this](size_t leaf) {
          std::vector<Tensor> grads;
          for (const GradStore& store : stores_) grads.push_back(store.get(leaves_[leaf]));
          return grads;
        },
        sum_options_);
  travel_ ? travel_->finish(losses_) : GradStore::add_to_leaves(stores_);
  Tensor total;
  for (const std::vector<Tensor>& losses : losses_) {
    Tensor batch = losses[0];
    for (size_t part = 1; part < losses.size(); ++part) batch = batch + losses[part];
    total = total.defined() ? total + batch : batch;
  }
  return total;
}

Tensor backward_in_parts(int64_t rows, int64_t parts, const Tensor& scale, const PartLoss& loss) {
  Processes alone;
  BatchParts batch(parts, alone);
  batch.backward(rows, scale, loss);
  return batch.add_to_leaves();
}

}  // namespace ink
