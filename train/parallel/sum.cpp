#include "train/parallel/sum.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "autograd/base/context.h"
#include "autograd/basic_ops.h"

namespace ink {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements: 256 kB

// What a process tells all others about a step: a byte for each leaf, which is 1 if it has a
// gradient, and its losses.
std::string told(const std::vector<Tensor>& leaves, const std::vector<GradStore>& stores,
                 const std::vector<std::vector<Tensor>>& losses) {
  std::string text;
  for (const Tensor& leaf : leaves)
    text +=
        static_cast<char>(std::any_of(stores.begin(), stores.end(), [&](const GradStore& store) {
          return store.get(leaf).defined();
        }));
  for (const std::vector<Tensor>& batch : losses)
    for (const Tensor& loss : batch) {
      const auto value = loss.item<float>();
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  return text;
}

// By batch, the losses that all processes told, after `skipped` bytes of each.
void take_losses(const std::vector<std::string>& all, size_t skipped,
                 std::vector<std::vector<Tensor>>& losses) {
  for (std::vector<Tensor>& batch : losses) batch.clear();
  for (const std::string& one : all) {
    const size_t own = (one.size() - skipped) / sizeof(float) / losses.size();
    const char* at = one.data() + skipped;
    for (std::vector<Tensor>& batch : losses)
      for (size_t part = 0; part < own; ++part, at += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, at, sizeof value);
        batch.push_back(scalar_tensor(value));
      }
  }
}

}  // namespace

void sum_in_order(Processes& processes, Tensor& sum,
                  const std::function<void(int64_t begin, int64_t end)>& add) {
  const NoGrad no_grad;
  const int64_t size = sum.numel(), pieces = (size + kPiece - 1) / kPiece, rank = processes.rank();
  const bool is_first = rank == 0, is_last = rank + 1 == processes.size();
  auto* data = reinterpret_cast<std::byte*>(sum.mutable_data<float>());
  const auto bytes_of = [&](int64_t piece) {
    const int64_t begin = piece * kPiece, end = std::min(size, begin + kPiece);
    return std::span(data + 4 * begin, static_cast<size_t>(4 * (end - begin)));
  };
  using Transfers = std::vector<Processes::Transfer>;
  Transfers from_below, up, from_above, down;
  for (int64_t piece = 0; piece < pieces && !is_first; ++piece)
    from_below.push_back(processes.start_receive(rank - 1, bytes_of(piece)));
  // Each counts pieces: those to which this process has added, whose memory is free for the
  // result, and which are results.
  int64_t added = 0, free = 0, results = 0;
  const auto at = [](const Transfers& transfers, int64_t i) {
    return transfers[static_cast<size_t>(i)];
  };
  const auto pass_down = [&] {
    if (!is_first) down.push_back(processes.start_send(rank - 1, bytes_of(results)));
    ++results;
  };
  processes.wait([&](bool& moved) {
    if (added < pieces && (is_first || processes.is_done(at(from_below, added)))) {
      add(added * kPiece, std::min(size, (added + 1) * kPiece));
      if (!is_last) up.push_back(processes.start_send(rank + 1, bytes_of(added)));
      ++added, moved = true;
      if (is_last) pass_down();
    }
    if (!is_last && free < added && processes.is_done(at(up, free))) {
      from_above.push_back(processes.start_receive(rank + 1, bytes_of(free)));
      ++free, moved = true;
    }
    if (!is_last && results < free && processes.is_done(at(from_above, results))) {
      pass_down();
      moved = true;
    }
    return results == pieces;
  });
  for (const Processes::Transfer sent : down)
    processes.wait([&](bool&) { return processes.is_done(sent); });
}

void sum_gradients(Processes& processes, const std::vector<Tensor>& leaves,
                   std::vector<GradStore>& stores, std::vector<std::vector<Tensor>>& losses) {
  const NoGrad no_grad;
  std::vector<int64_t> starts{0};  // of each leaf in `sum`, for vectors; and the end
  for (const Tensor& leaf : leaves) {
    INK_CHECK(leaf.dtype() == f32 && leaf.device().is_cpu(), "several processes: expected ",
              "parameters f32 on the CPU, got ", leaf.dtype(), " on ", leaf.device());
    starts.push_back((starts.back() + leaf.numel() + 15) / 16 * 16);
  }
  const std::vector<std::string> all = processes.gather(told(leaves, stores, losses));
  take_losses(all, leaves.size(), losses);
  Tensor sum = empty({starts.back()});
  sum_in_order(processes, sum, [&](int64_t begin, int64_t end) {
    const auto after = std::upper_bound(starts.begin(), starts.end(), begin);
    for (auto i = static_cast<size_t>(after - starts.begin()) - 1; i < leaves.size(); ++i) {
      const int64_t from = std::max(begin, starts[i]),
                    to = std::min(end, starts[i] + leaves[i].numel());
      if (from >= end) break;
      if (from >= to) continue;  // between two leaves
      Tensor piece = sum.narrow(0, from, to - from);
      bool is_first = processes.leads();
      for (const GradStore& store : stores) {
        const Tensor g = store.get(leaves[i]);
        if (!g.defined()) continue;
        const Tensor own = g.contiguous().view({-1}).narrow(0, from - starts[i], to - from);
        std::exchange(is_first, false) ? piece.copy_(own) : piece.add_(own);
      }
      if (is_first) piece.fill_(-0.0);  // to which whatever is added is the sum
    }
  });
  stores = std::vector<GradStore>(stores.size());
  const auto has_gradient = [&](size_t leaf) {
    return std::any_of(all.begin(), all.end(), [&](auto& one) { return one[leaf] != 0; });
  };
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!has_gradient(i)) continue;
    const Tensor total = sum.narrow(0, starts[i], leaves[i].numel()).view(leaves[i].shape());
    if (Tensor leaf = leaves[i]; !leaf.grad().defined() && !leaf.slot()->hooks)
      leaf.set_grad(total);  // without a copy
    else
      leaf.slot()->accumulate(total, false);
  }
}

}  // namespace ink
