#include "train/parallel/sum.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "autograd/base/context.h"
#include "autograd/basic_ops.h"

namespace ink {
namespace {

// Elements of a piece; 4 MB of a GPU's memory, because each piece costs launches.
constexpr int64_t kPiece = kPieceBytes / sizeof(float), kDevicePiece = 1 << 20;
// Pieces on their way to a process. MPI lets all that were started share the link, so that with
// more the first would arrive when the last does.
constexpr int64_t kAhead = 4;

// What a process tells all others about a step: a byte that is 1 if a signal came, one for each
// leaf, which is 1 if it has a gradient, and its losses.
std::string told(bool is_interrupted, size_t leaves, const GradientSum::Own& own,
                 const std::vector<std::vector<Tensor>>& losses) {
  std::string text(1, static_cast<char>(is_interrupted));
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    const std::vector<Tensor> grads = own(leaf);
    text += static_cast<char>(
        std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); }));
  }
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

std::vector<int64_t> starts_in_sum(const std::vector<Tensor>& leaves) {
  std::vector<int64_t> starts{0};
  for (const Tensor& leaf : leaves) starts.push_back((starts.back() + leaf.numel() + 15) / 16 * 16);
  return starts;
}

OrderedSum::OrderedSum(Processes& processes, Tensor& sum, Add add, const SumOptions& options)
    : processes_(processes),
      sum_(sum),
      device_(sum.device()),
      piece_(device_.is_cpu() ? kPiece : kDevicePiece),
      add_(std::move(add)),
      size_(sum.numel()),
      pieces_((size_ + piece_ - 1) / piece_),
      is_first_(processes.rank() == 0),
      is_last_(processes.rank() + 1 == processes.size()) {
  const NoGrad no_grad;
  processes.connect(device_);
  if (options.wire == bf16) wire_ = empty({size_}, {bf16, device_});
  const auto pieces_to = [&](int64_t process) {
    if (options.ends.empty()) return pieces_;
    return (options.ends[static_cast<size_t>(process)] + piece_ - 1) / piece_;
  };
  // Shares follow each other, so what goes down to a process passes all above it.
  wanted_ = pieces_to(processes.rank());
  wanted_below_ = is_first_ ? 0 : pieces_to(processes.rank() - 1);
  for (int64_t piece = 0; piece < pieces_ && !is_first_; ++piece)
    from_below_.push_back(processes.start_receive(processes.rank() - 1, bytes_of(piece), device_));
}

std::span<std::byte> OrderedSum::bytes_of(int64_t piece) {
  Tensor& memory = wire_.defined() ? wire_ : sum_;
  const int64_t begin = piece * piece_, n = std::min(size_, begin + piece_) - begin,
                bytes = size_of(memory.dtype());
  auto* data = wire_.defined() ? reinterpret_cast<std::byte*>(wire_.mutable_data<bfloat16>())
                               : reinterpret_cast<std::byte*>(sum_.mutable_data<float>());
  return {data + bytes * begin, static_cast<size_t>(bytes * n)};
}

// From what came, or to what goes; f32 travels where it is.
void OrderedSum::convert(int64_t piece, bool goes) {
  if (!wire_.defined()) return;
  const int64_t begin = piece * piece_, n = std::min(size_, begin + piece_) - begin;
  Tensor here = sum_.narrow(0, begin, n), there = wire_.narrow(0, begin, n);
  goes ? there.copy_(here.to(bf16)) : here.copy_(there.to(f32));
}

void OrderedSum::pass_down() {
  if (results_ < wanted_below_)
    down_.push_back(processes_.start_send(processes_.rank() - 1, bytes_of(results_), device_));
  ++results_;
}

bool OrderedSum::advance(int64_t ready, bool& moved) {
  const NoGrad no_grad;
  const auto came = [&](const Transfers& transfers, int64_t i) {
    return processes_.is_done(transfers[static_cast<size_t>(i)], device_);
  };
  while (sent_down_ < std::ssize(down_) && came(down_, sent_down_)) ++sent_down_, moved = true;
  const bool goes_down = std::ssize(down_) - sent_down_ < kAhead;
  const bool goes_up = is_last_ ? goes_down : added_ - free_ < kAhead;
  const int64_t end = std::min(size_, (added_ + 1) * piece_);
  if (goes_up && added_ < pieces_ && end <= ready && (is_first_ || came(from_below_, added_))) {
    if (!is_first_) convert(added_, false);
    add_(added_ * piece_, end);
    convert(added_, true);
    if (!is_last_)
      up_.push_back(processes_.start_send(processes_.rank() + 1, bytes_of(added_), device_));
    ++added_, moved = true;
    if (is_last_) pass_down();
  }
  if (!is_last_ && free_ < added_ && came(up_, free_)) {
    if (free_ < wanted_)
      from_above_.push_back(
          processes_.start_receive(processes_.rank() + 1, bytes_of(free_), device_));
    ++free_, moved = true;
  }
  if (!is_last_ && goes_down && results_ < std::min(free_, wanted_) &&
      came(from_above_, results_)) {
    convert(results_, false);
    pass_down();
    moved = true;
  }
  return sent_down_ == std::ssize(down_) &&
         (is_last_ ? results_ == pieces_ : free_ == pieces_ && results_ == wanted_);
}

void OrderedSum::finish() {
  processes_.wait([&](bool& moved) { return advance(size_, moved); });
}

GradientSum::GradientSum(Processes& processes, std::vector<Tensor> leaves, Own own,
                         const SumOptions& options)
    : processes_(processes),
      leaves_(std::move(leaves)),
      starts_(starts_in_sum(leaves_)),
      own_(std::move(own)),
      wire_(options.wire),
      complete_(leaves_.size()),
      sum_(empty({starts_.back()}, {f32, leaves_.empty() ? cpu_device : leaves_[0].device()})),
      travel_(
          processes, sum_, [this](int64_t begin, int64_t end) { add(begin, end); }, options) {
  for (const Tensor& leaf : leaves_)
    INK_CHECK(leaf.dtype() == f32 && leaf.device() == sum_.device(),
              "several processes, or a wire_dtype of bfloat16: expected parameters f32 on ",
              sum_.device(), ", got ", leaf.dtype(), " on ", leaf.device());
}

void GradientSum::add(int64_t begin, int64_t end) {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), begin);
  for (auto i = static_cast<size_t>(after - starts_.begin()) - 1; i < leaves_.size(); ++i) {
    const int64_t from = std::max(begin, starts_[i]),
                  to = std::min(end, starts_[i] + leaves_[i].numel());
    if (from >= end) break;
    if (from >= to) continue;  // between two leaves
    Tensor piece = sum_.narrow(0, from, to - from);
    bool is_first = processes_.leads();
    for (const Tensor& g : own_(i)) {
      if (!g.defined()) continue;
      const Tensor own = g.contiguous().view({-1}).narrow(0, from - starts_[i], to - from);
      std::exchange(is_first, false) ? piece.copy_(own) : piece.add_(own);
      if (wire_ == bf16) piece.copy_(piece.to(bf16).to(f32));
    }
    if (is_first) piece.fill_(-0.0);  // to which whatever is added is the sum
  }
}

void GradientSum::complete(size_t leaf) {
  complete_[leaf] = true;
  if (start_ == 0) start_ = seconds_now();
  while (first_ < leaves_.size() && complete_[first_]) ++first_;
  for (bool moved = true; std::exchange(moved, false);) travel_.advance(starts_[first_], moved);
}

void GradientSum::finish(std::vector<std::vector<Tensor>>& losses) {
  const NoGrad no_grad;
  const double waits = seconds_now();
  travel_.finish();
  const double end = seconds_now();
  processes_.times.travel += end - (start_ == 0 ? waits : start_);
  processes_.times.wait += end - waits;
  const bool is_interrupted = processes_.is_interrupted && processes_.is_interrupted();
  const std::vector<std::string> all =
      processes_.gather(told(is_interrupted, leaves_.size(), own_, losses));
  take_losses(all, 1 + leaves_.size(), losses);
  const auto any_has = [&](size_t byte) {
    return std::any_of(all.begin(), all.end(), [&](auto& one) { return one[byte] != 0; });
  };
  processes_.is_asked_to_stop |= any_has(0);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (!any_has(1 + i)) continue;
    const Tensor total = sum_.narrow(0, starts_[i], leaves_[i].numel()).view(leaves_[i].shape());
    if (Tensor leaf = leaves_[i]; !leaf.grad().defined() && !leaf.slot()->hooks)
      leaf.set_grad(total);  // without a copy
    else
      leaf.slot()->accumulate(total, false);
  }
}

}  // namespace ink
