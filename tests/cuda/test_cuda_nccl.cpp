// A GPU's memory that travels over NCCL between the processes of a group: threads stand in for the
// processes, and tests/cuda/nccl_stand_in.cpp for NCCL, which on a card is the real one.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "autograd/random/generator.h"
#include "tests/cuda/on_cuda.h"
#include "tests/support/error_of.h"
#include "train/parallel/nccl.h"
#include "train/parallel/sum.h"

namespace ink {
namespace {

#ifdef INKLING_NCCL_STAND_IN

// What the threads of a group tell each other.
struct Hub {
  std::mutex mutex;
  std::map<std::pair<int64_t, int64_t>, std::deque<std::string>> sent;  // by sender and receiver
  std::vector<std::vector<std::string>> gathered;                       // by call and rank
  std::set<int64_t> absent;                                             // who answers nobody
};

class Member : public Processes {
 public:
  Member(Hub& hub, int64_t rank, int64_t size) : hub_(hub) { rank_ = rank, size_ = size; }
  ~Member() override { links_.reset(); }

  Transfer start_send(int64_t to, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(hub_.mutex);
    hub_.sent[{rank_, to}].push_back(text(bytes));
    return 0;
  }
  Transfer start_receive(int64_t from, std::span<std::byte> bytes) override {
    waiting_[++last_] = [this, from, bytes] {
      auto& all = hub_.sent[{from, rank_}];
      if (all.empty()) return false;
      EXPECT_EQ(all.front().size(), bytes.size());
      std::memcpy(bytes.data(), all.front().data(), bytes.size());
      all.pop_front();
      return true;
    };
    return last_;
  }
  bool is_done(Transfer transfer) override {
    const std::lock_guard lock(hub_.mutex);
    const auto found = waiting_.find(transfer);
    if (found != waiting_.end() && !found->second()) return false;
    if (found != waiting_.end()) waiting_.erase(found);
    return true;
  }
  std::vector<int64_t> silent() override { return {hub_.absent.begin(), hub_.absent.end()}; }
  size_t left() const { return waiting_.size(); }

 protected:
  Transfer start_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                        const std::vector<int>&, const std::vector<int>& starts) override {
    const std::lock_guard lock(hub_.mutex);
    const size_t call = calls_++;
    hub_.gathered.resize(std::max(hub_.gathered.size(), call + 1));
    auto& each = hub_.gathered[call];
    each.resize(static_cast<size_t>(size_));
    each[static_cast<size_t>(rank_)] = "." + text(mine);
    waiting_[++last_] = [this, call, all, starts] {
      const auto& told = hub_.gathered[call];
      for (const std::string& one : told)
        if (one.empty()) return false;
      for (size_t i = 0; i < told.size(); ++i)
        std::memcpy(all.data() + starts[i], told[i].data() + 1, told[i].size() - 1);
      return true;
    };
    return last_;
  }

 private:
  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  Hub& hub_;
  std::map<Transfer, std::function<bool()>> waiting_;
  Transfer last_ = 0;
  size_t calls_ = 0;
};

// Calls f(member) in n threads, and returns their errors.
std::vector<std::string> in_threads(int64_t n, Hub& hub, const std::function<void(Member&)>& f) {
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      const OnCuda on_cuda;
      Member member(hub, rank, n);
      errors[static_cast<size_t>(rank)] = error_of([&] { f(member); });
      EXPECT_TRUE(errors[static_cast<size_t>(rank)] != "(no error)" || member.left() == 0)
          << "unread";
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

using Values = std::vector<std::vector<double>>;

// The gradients of the leaves after the sum of those that this process has, and all losses.
Values sum_of(Processes& group, const std::vector<Tensor>& leaves, const GradientSum::Own& own,
              int64_t parts, DType wire, bool early) {
  std::vector<Tensor> here;
  for (const Tensor& leaf : leaves) here.push_back(leaf.detach().clone().requires_grad_());
  GradientSum sum(group, here, own, {wire, {}});
  for (size_t i = 0; early && i < here.size(); ++i) sum.complete(i);
  std::vector<std::vector<Tensor>> losses(1);
  for (int64_t part = 0; part < parts; ++part)
    losses[0].push_back(scalar_tensor(static_cast<double>(group.rank() + part)));
  sum.finish(losses);
  Values values(1);
  for (const Tensor& loss : losses[0]) values[0].push_back(loss.item());
  for (const Tensor& leaf : here)
    values.push_back(leaf.grad().defined() ? leaf.grad().tolist() : std::vector<double>());
  return values;
}

class CudaNccl : public testing::Test {
 protected:
  void SetUp() override {
    setenv("INKLING_NCCL", INKLING_NCCL_STAND_IN, 1);
    setenv("INKLING_PROCESS_TIMEOUT", "20", 1);
  }
  void TearDown() override {
    empty_cache(cuda_device);  // much of it makes the emulator slow
    for (const char* name :
         {"INKLING_PROCESS_TIMEOUT", "INKLING_STAND_IN_FAILS", "INKLING_STAND_IN_DUPLICATE"})
      unsetenv(name);
  }
};

TEST_F(CudaNccl, SumsHaveTheBitsOfOneProcess) {
  const OnCuda on_cuda;
  manual_seed(1);
  for (const Shape& shape : {Shape{1}, Shape{1000, 3}, Shape{(1 << 20) + 77}})
    for (const DType wire : {f32, bf16})
      for (const int64_t n : {1, 2, 3, 4}) {
        if (shape.numel() > 10000 && n != 3) continue;  // two pieces
        const std::vector<Tensor> leaves{randn(shape), randn({5}), randn({33, 7})};
        std::vector<std::vector<Tensor>> grads(static_cast<size_t>(n));
        for (auto& of_process : grads)
          for (const Tensor& leaf : leaves) of_process.push_back(randn(leaf.shape()) * 3);
        grads[0][1] = Tensor();  // one has none
        Processes alone;
        const Values one = sum_of(
            alone, leaves,
            [&](size_t leaf) {
              std::vector<Tensor> all;
              for (const auto& of_process : grads) all.push_back(of_process[leaf]);
              return all;
            },
            n, wire, false);
        std::vector<Values> many(static_cast<size_t>(n));
        Hub hub;
        const auto errors = in_threads(n, hub, [&](Member& member) {
          const auto rank = static_cast<size_t>(member.rank());
          for (const bool early : {false, true})
            many[rank] = sum_of(
                member, leaves, [&](size_t leaf) { return std::vector<Tensor>{grads[rank][leaf]}; },
                1, wire, early);
        });
        for (size_t rank = 0; rank < many.size(); ++rank) {
          EXPECT_EQ(errors[rank], "(no error)");
          EXPECT_TRUE(many[rank] == one)
              << shape << " " << wire << ", process " << rank << " of " << n;
        }
      }
}

TEST_F(CudaNccl, AProcessThatDoesNotAnswerIsNamedInTime) {
  setenv("INKLING_PROCESS_TIMEOUT", "1", 1);
  Hub hub;
  hub.absent = {1};
  std::atomic<int> gave_up = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto errors = in_threads(3, hub, [&](Member& member) {
    Tensor sum = zeros({100});
    const auto add = [&](int64_t begin, int64_t end) { sum.narrow(0, begin, end - begin).add_(1); };
    OrderedSum(member, sum, add).finish();
    EXPECT_EQ(sum.tolist(), std::vector<double>(100, 3));
    if (member.rank() != 1) {
      const std::string error = error_of([&] { OrderedSum(member, sum, add).finish(); });
      ++gave_up;
      throw Error(error);
    }
    while (gave_up < 2) std::this_thread::yield();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(6));
  EXPECT_NE(errors[0].find("waited 1 s"), std::string::npos) << errors[0];
  for (const size_t rank : {0, 2})
    EXPECT_NE(errors[rank].find("no answer from process 1"), std::string::npos) << errors[rank];
}

TEST_F(CudaNccl, WhatFailsLaterIsToldToBoth) {
  setenv("INKLING_STAND_IN_FAILS", "9", 1);  // the byte of each of four links goes and comes before
  Hub hub;
  const auto errors = in_threads(2, hub, [&](Member& member) {
    Tensor sum = zeros({100});
    for (int i = 0; i < 5; ++i)
      OrderedSum(member, sum, [&](int64_t begin, int64_t end) {
        sum.narrow(0, begin, end - begin).add_(1);
      }).finish();
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("NCCL: a transfer: remote process exited"), std::string::npos) << error;
}

TEST_F(CudaNccl, SizesThatDifferAndStrangersAreRefused) {
  Hub hub;
  const auto errors = in_threads(2, hub, [&](Member& member) {
    member.connect(cuda_device);
    Tensor x = zeros({100});
    const std::span bytes(reinterpret_cast<std::byte*>(x.mutable_data<float>()), 400);
    EXPECT_NE(error_of([&] {
                member.Processes::start_send(3, bytes, cuda_device);
              }).find("process 3 is no neighbour"),
              std::string::npos);
    const auto transfer = member.leads()
                              ? member.Processes::start_send(1, bytes, cuda_device)
                              : member.Processes::start_receive(0, bytes.first(396), cuda_device);
    member.wait([&](bool&) { return member.Processes::is_done(transfer, cuda_device); });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("NCCL: a transfer: internal error"), std::string::npos) << error;
}

TEST_F(CudaNccl, WhatNcclRefusesIsToldInItsWords) {
  setenv("INKLING_STAND_IN_DUPLICATE", "1", 1);
  Hub hub;
  const auto errors = in_threads(2, hub, [&](Member& member) { member.connect(cuda_device); });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("NCCL: connect: invalid usage; Duplicate GPU detected"), std::string::npos)
        << error;
}

// Transfers that go both ways and start in any order, whose other halves come late.
TEST_F(CudaNccl, NoPairWaitsForItself) {
  Hub hub;
  const auto errors = in_threads(3, hub, [&](Member& member) {
    Processes& group = member;
    group.connect(cuda_device);
    constexpr int kMany = 40;
    std::vector<Tensor> goes, comes;
    std::vector<Processes::Transfer> transfers;
    const auto bytes = [](Tensor& x) {
      return std::span(reinterpret_cast<std::byte*>(x.mutable_data<float>()), size_t{40});
    };
    for (int i = 0; i < kMany; ++i)
      for (const int64_t other : {group.rank() + 1, group.rank() - 1}) {
        if (other < 0 || other > 2) continue;
        goes.push_back(full({10}, static_cast<double>(100 * group.rank() + i)));
        comes.push_back(zeros({10}));
        for (const bool sends : {i % 3 == 0, i % 3 != 0})  // half of them send first
          transfers.push_back(sends ? group.start_send(other, bytes(goes.back()), cuda_device)
                                    : group.start_receive(other, bytes(comes.back()), cuda_device));
        EXPECT_EQ(goes.size(), comes.size());
      }
    for (const auto one : transfers)
      group.wait([&](bool&) { return group.is_done(one, cuda_device); });
    size_t at = 0;
    for (int i = 0; i < kMany; ++i)
      for (const int64_t other : {group.rank() + 1, group.rank() - 1})
        if (other >= 0 && other <= 2) {
          EXPECT_EQ(comes[at++].tolist()[9], static_cast<double>(100 * other + i));
        }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "(no error)");
}

#else

// One rank is all that every version of NCCL lets one card have.
TEST(CudaNccl, OneRankSendsToItself) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device";
  if (!nccl_version().starts_with("NCCL 2")) GTEST_SKIP() << nccl_version();
  const char* named = std::getenv("INKLING_NCCL");
  void* const file = dlopen(named != nullptr ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  const auto start = reinterpret_cast<int (*)()>(dlsym(file, "ncclGroupStart")),
             end = reinterpret_cast<int (*)()>(dlsym(file, "ncclGroupEnd"));
  const nccl::Library& nccl = nccl::library();
  const DeviceBackend& backend = backend_of(cuda_device);
  backend.enter(cuda_device);
  nccl::UniqueId id;
  nccl::Comm comm = nullptr;
  nccl::Config config;
  ASSERT_EQ(nccl.GetUniqueId(&id), nccl::kSuccess);
  const auto settle = [&](int result) {
    while (result == nccl::kInProgress) nccl.CommGetAsyncError(comm, &result);
    ASSERT_EQ(result, nccl::kSuccess) << nccl.GetErrorString(result);
  };
  settle(nccl.CommInitRankConfig(&comm, 1, id, 0, &config));
  const OnCuda on_cuda;
  const Tensor x = arange(0, 1000);
  Tensor y = zeros_like(x);
  void* const stream = backend.new_stream(cuda_device);
  backend.follow(stream, backend.mark(nullptr, cuda_device));
  ASSERT_EQ(start(), nccl::kSuccess);
  const auto bytes = static_cast<size_t>(x.numel() * size_of(x.dtype()));
  for_any(x.dtype(), [&]<class T>(T) {
    nccl.Send(x.data<T>(), bytes, nccl::kBytes, 0, comm, stream);
    nccl.Recv(y.mutable_data<T>(), bytes, nccl::kBytes, 0, comm, stream);
  });
  settle(end());
  void* const mark = backend.mark(stream, cuda_device);
  while (!backend.is_past(mark)) std::this_thread::yield();
  EXPECT_EQ(y.tolist(), x.tolist());
  nccl.CommAbort(comm);
}

#endif

}  // namespace
}  // namespace ink
