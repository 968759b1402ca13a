// A GPU's memory on its way to the neighbours of a process. NCCL moves bytes, and our kernels add.
//
// Each pair of neighbours has two links, one up and one down, each with a communicator and a stream
// of its own: what NCCL is given for one communicator runs in order, and a piece that has to wait
// must not hold up those of the other direction.
//
// A transfer that NCCL was given occupies its GPU until the neighbour's GPU was given the other
// half. A host that waits for all of its GPU (cudaFree, a kernel's first launch) waits for that,
// too, and can meanwhile launch nothing. Two such hosts might wait for each other. So the lower
// process of a pair launches its half first, and tells the upper one, which launches the other half
// then. Hosts then wait for higher processes alone, and the last process waits for nobody. For the
// same reason our own stream never waits for a transfer's: the host asks whether it is done.
#include "train/parallel/nccl.h"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/basic_ops.h"
#include "autograd/memory/device_backend.h"

namespace ink {
namespace nccl {
namespace {

Library load() {
  const char* named = std::getenv("INKLING_NCCL");
  const char* name = named != nullptr && *named != '\0' ? named : "libnccl.so.2";
  void* const file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr)
    detail::fail({"several processes on GPUs need NCCL: ", dlerror(),
                  "; install it (NVIDIA's package libnccl2), or name its file in INKLING_NCCL"});
  Library loaded{};
  const auto find = [&](auto& function, const char* symbol) {
    void* found = dlsym(file, symbol);
    INK_CHECK(found != nullptr, "NCCL: ", name, " has no ", symbol, "; expected 2.14 or newer");
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(loaded.GetVersion, "ncclGetVersion");
  find(loaded.GetErrorString, "ncclGetErrorString");
  find(loaded.GetLastError, "ncclGetLastError");
  find(loaded.GetUniqueId, "ncclGetUniqueId");
  find(loaded.CommInitRankConfig, "ncclCommInitRankConfig");
  find(loaded.CommGetAsyncError, "ncclCommGetAsyncError");
  find(loaded.CommAbort, "ncclCommAbort");
  find(loaded.Send, "ncclSend");
  find(loaded.Recv, "ncclRecv");
  return loaded;
}

void check(int result, Comm comm, const char* what) {
  if (result == kSuccess) return;
  const char* more = library().GetLastError(comm);
  detail::fail({"NCCL: ", what, ": ", library().GetErrorString(result), "; ",
                more != nullptr && *more != '\0' ? std::string(more) + "; " : "",
                "with NCCL_DEBUG=INFO it says more"});
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace nccl

namespace {

class NcclLinks : public DeviceLinks {
 public:
  NcclLinks(Processes& control, Device device)
      : control_(control), device_(device), spare_(zeros({4}, {f32, device})) {
    const int64_t rank = control.rank(), size = control.size();
    std::string mine;
    for (size_t way = 0; way < 2 && rank + 1 < size; ++way) {
      nccl::UniqueId id;
      nccl::check(nccl_.GetUniqueId(&id), nullptr, "an id");
      mine.append(id.bytes, sizeof id.bytes);
    }
    const std::vector<std::string> all = control.gather(mine);
    // Each process has one pair at a time, and all work in either half of the pairs at once.
    for (const int64_t half : {0, 1})
      for (int64_t lower = rank - 1; lower <= rank; ++lower)
        for (size_t way = 0; way < 2; ++way)
          if (lower >= 0 && lower + 1 < size && lower % 2 == half)
            connect((lower == rank ? above_ : below_)[way],
                    all[static_cast<size_t>(lower)].data() + way * sizeof(nccl::UniqueId),
                    lower == rank, (lower == rank) == (way == kUp));
  }
  // Also while transfers are under way, and whatever the neighbours do.
  ~NcclLinks() override {
    for (const auto* pair : {&below_, &above_})
      for (const Link& link : *pair)
        if (link.comm != nullptr) nccl_.CommAbort(link.comm);
    try {
      for (const auto& [number, move] : moves_) backend_.follow(move.link->stream, move.mark);
    } catch (const Error&) {  // the device is lost, and its marks with it
    }
  }

  Processes::Transfer start(int64_t peer, std::span<std::byte> bytes, bool sends) override {
    const bool above = peer == control_.rank() + 1;
    INK_CHECK(above || peer == control_.rank() - 1, "NCCL: process ", peer, " is no neighbour of ",
              control_.rank());
    const Way way = sends == above ? kUp : kDown;
    Link& link = (above ? above_ : below_)[way];
    Move& move = moves_[++last_] = {&link, bytes, sends, backend_.mark(nullptr, device_)};
    if (above) {
      launch(move);
      static constexpr std::array<std::byte, 2> kWays{std::byte{kUp}, std::byte{kDown}};
      told_.push_back(control_.start_send(peer, std::span(kWays).subspan(way, 1)));
    } else {
      link.waiting.push_back(last_);
    }
    go_on();
    return last_;
  }
  bool is_done(Processes::Transfer transfer) override {
    go_on();
    const auto found = moves_.find(transfer);
    if (!is_past(found->second)) return false;
    moves_.erase(found);
    return true;
  }

 private:
  enum Way : uint8_t { kUp, kDown };
  struct Link {
    nccl::Comm comm = nullptr;
    void* stream = nullptr;
    bool is_lower = false;
    std::deque<Processes::Transfer> waiting;  // to be launched when the lower process has
    int64_t may = 0;                          // as many of them
  };
  struct Move {
    Link* link = nullptr;
    std::span<std::byte> bytes;
    bool sends = false;
    void* mark = nullptr;  // of our work before; once launched, of the transfer
    bool launched = false;
  };

  // With a byte on its way, because NCCL connects at the first transfer, for which both hosts wait.
  void connect(Link& link, const char* id, bool is_lower, bool sends) {
    backend_.enter(device_);
    nccl::UniqueId unique;
    std::memcpy(unique.bytes, id, sizeof unique.bytes);
    nccl::Config config;
    link.is_lower = is_lower;
    settle(link, nccl_.CommInitRankConfig(&link.comm, 2, unique, is_lower ? 0 : 1, &config),
           "connect");
    link.stream = backend_.new_stream(device_);
    Move first{&link,
               {reinterpret_cast<std::byte*>(spare_.mutable_data<float>()), 1},
               sends,
               backend_.mark(nullptr, device_)};
    launch(first);
    control_.wait([&](bool&) { return is_past(first); });
  }
  // Waits for the end of a call, which NCCL may leave to a thread of its own.
  void settle(const Link& link, int result, const char* what) {
    if (result == nccl::kInProgress)
      control_.wait([&](bool&) {
        const int asked = nccl_.CommGetAsyncError(link.comm, &result);
        if (asked != nccl::kSuccess) result = asked;
        return result != nccl::kInProgress;
      });
    nccl::check(result, link.comm, what);
  }
  void launch(Move& move) {
    const Link& link = *move.link;
    const int peer = link.is_lower ? 1 : 0;
    backend_.follow(link.stream, move.mark);
    const auto [data, size] = std::pair(move.bytes.data(), move.bytes.size());
    settle(link,
           move.sends ? nccl_.Send(data, size, nccl::kBytes, peer, link.comm, link.stream)
                      : nccl_.Recv(data, size, nccl::kBytes, peer, link.comm, link.stream),
           move.sends ? "send" : "receive");
    move.mark = backend_.mark(link.stream, device_);
    move.launched = true;
  }
  bool is_past(const Move& move) {
    int result = nccl::kSuccess;
    nccl::check(nccl_.CommGetAsyncError(move.link->comm, &result), move.link->comm, "state");
    // The process that has ended says why, and mpirun ends all within two seconds. This one speaks
    // if that does not come.
    if (result == nccl::kRemoteError) std::this_thread::sleep_for(std::chrono::seconds(3));
    if (result != nccl::kInProgress) nccl::check(result, move.link->comm, "a transfer");
    return move.launched && backend_.is_past(move.mark);
  }
  // Launches what the process below has launched. Its next word is asked for only while something
  // waits for one, so that in the end none is left to come.
  void go_on() {
    while (!told_.empty() && control_.is_done(told_.front())) told_.pop_front();
    for (bool waits = true; waits;) {
      waits = false;
      for (Link& link : below_) {
        for (; link.may > 0 && !link.waiting.empty(); --link.may) {
          Move& move = moves_[link.waiting.front()];
          link.waiting.pop_front();
          launch(move);
        }
        waits = waits || !link.waiting.empty();
      }
      if (!waits) return;
      if (!word_from_below_)
        word_from_below_ = control_.start_receive(control_.rank() - 1, std::span(&word_, 1));
      if (!control_.is_done(*word_from_below_)) return;
      word_from_below_.reset();
      ++below_[static_cast<size_t>(word_)].may;
    }
  }

  Processes& control_;
  const Device device_;
  const nccl::Library& nccl_ = nccl::library();
  const DeviceBackend& backend_ = backend_of(device_);
  Tensor spare_;
  std::array<Link, 2> below_, above_;  // by way
  std::map<Processes::Transfer, Move> moves_;
  Processes::Transfer last_ = 0;
  std::deque<Processes::Transfer> told_;  // to the process above
  std::optional<Processes::Transfer> word_from_below_;
  std::byte word_{};
};

}  // namespace

std::unique_ptr<DeviceLinks> connect_over_nccl(Processes& control, Device device) {
  return std::make_unique<NcclLinks>(control, device);
}

// A process that sees one GPU may have been given one of its own, as Slurm does. Otherwise NCCL
// refuses it, but for newer versions that were told to share.
Device own_device(const Processes& group, Device asked) {
  if (asked.is_cpu() || group.size() == 1) return asked;
  static_cast<void>(backend_of(asked));
  nccl::library();
  const int64_t here = launched_local_rank(), count = cuda_device_count();
  INK_CHECK(asked.index == 0,
            "several processes: expected --device cuda without a number, because ",
            "each takes a GPU of its own, got ", asked);
  INK_CHECK(here < count || count == 1 || std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr,
            "several processes: expected a GPU for each, got ", count, " on the machine of ",
            group.name(), ", which is one of ", here + 1, " or more there");
  return {Device::CUDA, static_cast<int8_t>(here % count)};
}

std::string nccl_version() try {
  int version = 0;
  nccl::check(nccl::library().GetVersion(&version), nullptr, "version");
  return detail::joined({"NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100});
} catch (const Error& error) {
  return error.what();
}

#ifdef INKLING_NCCL_H
}  // namespace ink
#include <nccl.h>
namespace ink::nccl {
namespace {

template <class A, class B>
constexpr bool alike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_class_v<A> ==
                                  std::is_class_v<B>;
template <class R, class... A, class Q, class... B>
constexpr bool alike_calls(R (*)(A...), Q (*)(B...)) {
  if constexpr (sizeof...(A) == sizeof...(B)) return alike<R, Q> && (alike<A, B> && ...);
  return false;
}
constexpr Library none{};
static_assert(alike_calls(none.GetVersion, ncclGetVersion));
static_assert(alike_calls(none.GetErrorString, ncclGetErrorString));
static_assert(alike_calls(none.GetLastError, ncclGetLastError));
static_assert(alike_calls(none.GetUniqueId, ncclGetUniqueId));
static_assert(alike_calls(none.CommInitRankConfig, ncclCommInitRankConfig));
static_assert(alike_calls(none.CommGetAsyncError, ncclCommGetAsyncError));
static_assert(alike_calls(none.CommAbort, ncclCommAbort));
static_assert(alike_calls(none.Send, ncclSend) && alike_calls(none.Recv, ncclRecv));
static_assert(alike<UniqueId, ncclUniqueId> && sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(ncclSuccess == kSuccess && ncclRemoteError == kRemoteError &&
              ncclInProgress == kInProgress && ncclInt8 == kBytes &&
              NCCL_CONFIG_UNDEF_INT == INT_MIN);

}  // namespace
}  // namespace ink::nccl
#else
}  // namespace ink
#endif
