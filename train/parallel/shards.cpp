#include "train/parallel/shards.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "autograd/base/context.h"
#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/kernels/optimizer.h"
#include "autograd/loops/optimizer.h"
#include "train/parallel/sum.h"

namespace ink {
namespace {

// Bytes of a piece of a GPU's weights, and pieces on their way, as in sum.cpp.
constexpr size_t kDeviceValues = 1 << 22, kValuesAhead = 4;

std::span<std::byte> bytes_of(Tensor x) {
  const auto size = static_cast<size_t>(x.numel() * size_of(x.dtype()));
  if (x.dtype() == i64) return {reinterpret_cast<std::byte*>(x.mutable_data<int64_t>()), size};
  return {reinterpret_cast<std::byte*>(x.mutable_data<float>()), size};
}

void wait_for(Processes& processes, const std::vector<Processes::Transfer>& transfers) {
  for (const Processes::Transfer one : transfers)
    processes.wait([&](bool&) { return processes.is_done(one); });
}

// Calls f(piece) for pieces that MPI and others can take.
template <class F>
void for_pieces(std::span<std::byte> bytes, size_t most, F&& f) {
  for (size_t at = 0; at < bytes.size(); at += most)
    f(bytes.subspan(at, std::min(most, bytes.size() - at)));
}

}  // namespace

Tensor Shards::Rows::of(const Tensor& x, int64_t process) const {
  return x.dim() == 0 ? x : x.narrow(0, begin(process), end(process) - begin(process));
}

int64_t Shards::Rows::owner(int64_t element) const {
  return std::upper_bound(cuts.begin(), cuts.end(), element / row) - cuts.begin() - 1;
}

// A process's share of the cost ends within a parameter: where it may be divided, at the nearest
// row, and otherwise at its nearer end.
Shards::Shards(const NamedTensors& parameters, const NamedTensors& updated, Processes& processes,
               const CostOf& cost)
    : processes_(processes),
      device_(parameters.empty() ? cpu_device : parameters[0].second.device()) {
  const int64_t n = processes.size(), rank = processes.rank();
  std::vector<double> costs;
  double total = 0, before = 0;
  for (const auto& [name, value] : parameters)
    total += costs.emplace_back(cost(name, value).element * static_cast<double>(value.numel()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, value] = parameters[i];
    const int64_t rows = value.dim() == 0 ? 1 : value.size(0);
    const bool by_rows = cost(name, value).by_rows;
    Rows& one =
        all_.emplace_back(Rows{name, value, {0}, value.numel() / std::max<int64_t>(1, rows)});
    for (int64_t k = 1; k < n; ++k) {
      const double share =
          (total * static_cast<double>(k) / static_cast<double>(n) - before) / costs[i];
      const double cut = by_rows ? std::round(share * static_cast<double>(rows))
                                 : static_cast<double>(share > 0.5 ? rows : 0);
      one.cuts.push_back(static_cast<int64_t>(std::clamp(cut, 0.0, static_cast<double>(rows))));
    }
    one.cuts.push_back(rows);
    before += costs[i];
    parameters_.push_back(value);
  }
  std::vector<int64_t> counts(static_cast<size_t>(n));
  for (const auto& entry : updated) {
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [&](const Rows& one) { return one.name == entry.first; });
    updated_.push_back(static_cast<size_t>(found - all_.begin()));
    for (int64_t k = 0; k < n; ++k)
      counts[static_cast<size_t>(k)] += found->end(k) - found->begin(k);
    if (found->begin(rank) < found->end(rank))
      own_.emplace_back(found->name, found->of(found->value.detach(), rank).requires_grad_());
  }
  for (int64_t k = 0; k < n; ++k)
    INK_CHECK(counts[static_cast<size_t>(k)] > 0, "shard_optimizer: expected a share of the ",
              "parameters for each of ", n, " processes, got none for process ", k,
              "; start fewer, or leave the option out");
}

// The norm is summed in blocks of all gradients, and a process sums those that begin in its rows.
// (On a GPU each process has all gradients, and sums them as one process does.)
std::vector<int64_t> Shards::ends(const std::vector<int64_t>& starts) const {
  if (!device_.is_cpu()) return {};
  std::vector<int64_t> result(static_cast<size_t>(processes_.size()));
  for (size_t i = 0; i < all_.size(); ++i)
    for (int64_t k = 0; k < processes_.size(); ++k)
      if (all_[i].begin(k) < all_[i].end(k))
        result[static_cast<size_t>(k)] =
            std::min(starts[i + 1], starts[i] + all_[i].end(k) * all_[i].row + cpu::kNormBlock);
  return result;
}

Tensor Shards::take_gradients() {
  const NoGrad no_grad;
  const int64_t rank = processes_.rank();
  struct Piece {  // of a block of the norm, in one gradient
    const float* data;
    int64_t owner, n;
    bool ends_block;
    double sum = 0;
  };
  std::vector<Piece> pieces;
  std::vector<Tensor> grads;
  std::vector<size_t> mine;
  int64_t joined = 0;
  auto next = own_.begin();
  for (const size_t i : updated_) {
    Rows& one = all_[i];
    const Tensor g = one.value.grad();
    if (one.begin(rank) < one.end(rank))
      (next++)->second.set_grad(g.defined() ? one.of(g, rank) : Tensor());
    one.value.set_grad({});
    grads.push_back(g.defined() ? g.contiguous() : g);
    if (!g.defined() || !device_.is_cpu()) continue;
    const auto* data = std::as_const(grads.back()).data<float>();
    for (int64_t at = 0, n = 0; at < g.numel(); at += n) {
      n = std::min(g.numel() - at, cpu::kNormBlock - joined % cpu::kNormBlock);
      joined += n;
      if (one.owner(at) == rank) mine.push_back(pieces.size());
      pieces.push_back({data + at, one.owner(at), n, joined % cpu::kNormBlock == 0});
    }
  }
  if (!device_.is_cpu()) {
    const Tensor norm = zeros({}, {f64, device_}), finite = ones({}, {boolean, device_});
    const Arrays all(grads.begin(), grads.end());
    kernel::gradient_norm({norm, norm, zeros_like(norm), finite, zeros({2}, {i64, device_})}, all,
                          {}, 0);
    return norm;
  }
  std::string sums(mine.size() * sizeof(double), '\0');
  parallel_for(std::ssize(mine), 16, [&](int64_t begin, int64_t end) {
    for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
      const double sum = cpu::sum_of_squares(pieces[mine[k]].data, pieces[mine[k]].n);
      std::memcpy(sums.data() + k * sizeof sum, &sum, sizeof sum);
    }
  });
  const std::vector<std::string> all = processes_.gather(sums);
  std::vector<size_t> read(all.size());
  double total = 0, block = 0;
  for (const Piece& piece : pieces) {
    const auto owner = static_cast<size_t>(piece.owner);
    double sum = 0;
    std::memcpy(&sum, all[owner].data() + read[owner], sizeof sum);
    read[owner] += sizeof sum;
    block += sum;
    if (piece.ends_block) total += std::exchange(block, 0);
  }
  return full({}, std::sqrt(total + block), {f64, cpu_device});
}

std::vector<std::span<std::byte>> Shards::values_of(int64_t process) {
  std::vector<std::span<std::byte>> pieces;
  for (const Rows& one : all_)
    if (one.begin(process) < one.end(process))
      for_pieces(bytes_of(one.of(one.value.detach(), process)),
                 device_.is_cpu() ? kPieceBytes : kDeviceValues,
                 [&](std::span<std::byte> piece) { pieces.push_back(piece); });
  return pieces;
}

// What a process has, and what comes, goes on to the next. The processes stand in a ring, where
// none passes on what the next has made. GPUs have links to neighbours alone: rows go up and down.
void Shards::share_values() {
  const NoGrad no_grad;
  const double start = seconds_now();
  const int64_t n = processes_.size(), rank = processes_.rank();
  struct Way {
    int64_t to;  // a process; -1: none
    std::vector<std::span<std::byte>> go = {};
    std::vector<std::pair<std::span<std::byte>, bool>> come = {};  // and does it go on?
    std::vector<Processes::Transfer> receives = {}, sends = {};
    size_t received = 0, sent = 0;
  };
  // The rows of `count` processes come: those of the next one at `step`, which passes on others.
  const auto way = [&](int64_t to, int64_t count, int64_t step) {
    Way one{to};
    if (to >= 0) one.go = values_of(rank);
    for (int64_t k = 1; k <= count; ++k) {
      const int64_t owner = (rank + k * step + n) % n;
      for (const std::span<std::byte> piece : values_of(owner)) {
        one.come.emplace_back(piece, to >= 0 && owner != to);
        one.receives.push_back(processes_.start_receive((rank + step + n) % n, piece, device_));
      }
    }
    return one;
  };
  std::vector<Way> ways;
  if (device_.is_cpu())
    ways = {way((rank + 1) % n, n - 1, -1)};
  else
    ways = {way(rank + 1 < n ? rank + 1 : -1, rank, -1), way(rank - 1, n - 1 - rank, 1)};
  processes_.wait([&](bool& moved) {
    bool done = true;
    for (Way& one : ways) {
      if (one.received < one.come.size() &&
          processes_.is_done(one.receives[one.received], device_)) {
        const auto& [piece, goes_on] = one.come[one.received++];
        if (goes_on) one.go.push_back(piece);
        moved = true;
      }
      if (one.sent < one.sends.size() && processes_.is_done(one.sends[one.sent], device_))
        ++one.sent, moved = true;
      if (one.sends.size() < one.go.size() && one.sends.size() - one.sent < kValuesAhead) {
        one.sends.push_back(processes_.start_send(one.to, one.go[one.sends.size()], device_));
        moved = true;
      }
      done = done && one.received == one.come.size() && one.sent == one.go.size();
    }
    return done;
  });
  processes_.times.travel += seconds_now() - start;
  processes_.times.wait += seconds_now() - start;
  for (Tensor& value : parameters_) value.bump_version();
}

// "exp_avg.wte.weight" is of wte.weight.
const Shards::Rows* Shards::find(const std::string& state_name) const {
  const std::string name = state_name.substr(state_name.find('.') + 1);
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Rows& one) { return one.name == name; });
  return found == all_.end() ? nullptr : &*found;
}

// What has the shape of a parameter is divided like it; of a count, all owners have the same.
void Shards::gather_state(const NamedTensors& own_state, const NamedTensors& whole) {
  const NoGrad no_grad;
  constexpr size_t kMost = 1 << 28;  // bytes
  const bool leads = processes_.leads();
  std::vector<Processes::Transfer> sends;
  std::vector<Tensor> sent;
  const auto give = [&](const Tensor& from) {
    sent.push_back(from.to(cpu_device));
    for_pieces(bytes_of(sent.back()), kMost, [&](std::span<std::byte> piece) {
      sends.push_back(processes_.start_send(0, piece));
    });
  };
  const auto has = [](const Rows& one, int64_t k) { return one.begin(k) < one.end(k); };
  const auto is_count = [](const std::string& name) { return name.starts_with("step."); };
  if (!leads) {
    const int64_t rank = processes_.rank();
    for (const auto& [name, own] : own_state) {
      const Rows* one = find(name);
      if (one != nullptr && (!is_count(name) || one->owner(0) == rank)) give(own);
    }
    return wait_for(processes_, sends);
  }
  auto mine = own_state.begin();
  for (const auto& [name, to] : whole) {
    const Rows* one = find(name);
    const bool is_mine = mine != own_state.end() && mine->first == name;
    if (one == nullptr) Tensor(to).copy_(mine->second.to(cpu_device));
    for (int64_t k = 0; one != nullptr && k < processes_.size(); ++k) {
      if (!has(*one, k) || (is_count(name) && one->owner(0) != k)) continue;
      Tensor part = is_count(name) ? to : one->of(to, k);
      if (k == 0) part.copy_(mine->second.to(cpu_device));
      std::vector<Processes::Transfer> receives;
      if (k > 0)
        for_pieces(bytes_of(part), kMost, [&](std::span<std::byte> piece) {
          receives.push_back(processes_.start_receive(k, piece));
        });
      wait_for(processes_, receives);
    }
    if (is_mine) ++mine;
  }
}

NamedTensors Shards::own_part(const NamedTensors& whole) const {
  const int64_t rank = processes_.rank();
  NamedTensors part;
  for (const auto& [name, x] : whole) {
    const Rows* one = find(name);
    if (one == nullptr)
      part.emplace_back(name, x);
    else if (one->begin(rank) < one->end(rank))
      part.emplace_back(name, x.shape() == one->value.shape() && !name.starts_with("step.")
                                  ? one->of(x, rank)
                                  : x);
  }
  return part;
}

}  // namespace ink
