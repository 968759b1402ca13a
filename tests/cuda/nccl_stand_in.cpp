// Stands in for NCCL on emulated GPUs, where the ranks are threads or processes of one machine. It
// behaves as NCCL does where that matters: what a communicator is given runs in order, whatever the
// stream; a send or a receive holds up its stream until the other rank has come to the other half,
// and then takes a while; calls return before they are done; and errors come later.
//
// In the environment, for tests: INKLING_STAND_IN_FAILS=N: the N-th transfer of a process from then
// on fails; INKLING_STAND_IN_DUPLICATE=1: all ranks have the same GPU, which older versions refuse.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "train/parallel/nccl.h"

namespace {

constexpr int kSystemError = 2, kInternalError = 3, kInvalidArgument = 4, kInvalidUsage = 5,
              kRemoteError = 6;
constexpr size_t kMost = size_t{4} << 20;  // bytes in a transfer

// From one rank to another: how many receives it has come to, how many bytes the last one takes,
// how many sends were written, and how many of them were taken.
struct Mail {
  std::atomic<int64_t> asked, size, sent, taken;
  char bytes[kMost];
};
// What two ranks share: a file, which begins as zeros.
struct Shared {
  std::atomic<int> joined, error;
  std::atomic<bool> left[2];
  Mail to[2];  // by the rank that receives
};

std::atomic<int64_t> transfers;
thread_local std::string last_error;
unsigned late() {  // how often a question is answered with "not yet"
  static std::atomic<unsigned> last = 1;
  return (last = last * 1664525 + 1013904223) >> 30;
}

struct Rank {
  Shared* shared;
  int rank;
  int64_t sends = 0, receives = 0, given = 0, done = 0;  // done of what was given, in order
  bool aborted = false;
  unsigned joins_late = late();
};

// Fails both ranks, as a network that breaks does.
bool fails(Rank& r, int error) {
  r.shared->error = error;
  return false;
}

}  // namespace

struct ink::nccl::Communicator {
  std::shared_ptr<Rank> rank;
};
using ink::nccl::Comm, ink::nccl::kInProgress, ink::nccl::kSuccess;

namespace {

int refuse(int result, const char* why) {
  last_error = why;
  return result;
}

// What the stream has to do, in two steps: the first of them lets the other rank know.
int transfer(char* data, size_t size, int type, int peer, Comm comm, CUstream_st* stream,
             bool sends) {
  if (comm == nullptr || stream == nullptr || data == nullptr)
    return refuse(kInvalidArgument, "stand-in: a null pointer");
  const std::shared_ptr<Rank> r = comm->rank;
  if (r->shared->joined < 2) return refuse(kInvalidUsage, "stand-in: not connected yet");
  if (type != ink::nccl::kBytes || peer != 1 - r->rank || size > kMost)
    return refuse(kInvalidArgument, "stand-in: a type, peer or size that it does not take");
  const char* fail = std::getenv("INKLING_STAND_IN_FAILS");
  if (fail == nullptr) transfers = 0;
  const bool breaks = fail != nullptr && ++transfers == std::atoll(fail);
  Mail& mail = r->shared->to[sends ? peer : r->rank];
  const int64_t number = sends ? r->sends++ : r->receives++, turn = r->given++;
  const auto step = [&](auto may, auto run) {
    stream->push(stream, {[r, may, waits = late()]() mutable {
                            if (r->aborted) return true;
                            if (r->shared->error != 0 || !may()) return false;
                            return waits == 0 || --waits == 0;
                          },
                          [r, run] {
                            if (!r->aborted) run();
                          }});
  };
  const auto my_turn = [r, turn, breaks] {
    if (breaks && r->done == turn) return fails(*r, kRemoteError);
    return r->done == turn;
  };
  if (sends) {
    step(
        [=, &mail] {
          if (!my_turn() || mail.asked <= number || mail.taken < number) return false;
          return mail.size == static_cast<int64_t>(size) || fails(*r, kInternalError);
        },
        [=, &mail] {
          std::memcpy(mail.bytes, data, size);
          mail.sent = number + 1;
        });
    step([=, &mail] { return mail.taken > number; }, [r] { ++r->done; });
  } else {
    step(my_turn, [=, &mail] {
      mail.size = static_cast<int64_t>(size);
      mail.asked = number + 1;
    });
    step([=, &mail] { return mail.sent > number; },
         [=, &mail] {
           std::memcpy(data, mail.bytes, size);
           mail.taken = number + 1;
           ++r->done;
         });
  }
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}
const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSystemError:
      return "unhandled system error";
    case kInternalError:
      return "internal error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "no error";
  }
}
const char* ncclGetLastError(Comm) { return last_error.c_str(); }

int ncclGetUniqueId(ink::nccl::UniqueId* id) {
  static std::atomic<int> made;
  const std::string name =
      "/inkling_nccl_" + std::to_string(getpid()) + "_" + std::to_string(++made);
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}

int ncclCommInitRankConfig(Comm* comm, int ranks, ink::nccl::UniqueId id, int rank,
                           ink::nccl::Config* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || config == nullptr || config->magic != 0xcafebeef ||
      config->blocking != 0)
    return refuse(kInvalidArgument, "stand-in: expected one of two ranks, and no blocking calls");
  if (std::getenv("INKLING_STAND_IN_DUPLICATE") != nullptr)
    return refuse(kInvalidUsage,
                  "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0");
  const int file = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0)
    return refuse(kSystemError, "stand-in: no shared memory");
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return refuse(kSystemError, "stand-in: no shared memory");
  auto* shared = static_cast<Shared*>(memory);
  if (++shared->joined == 2) shm_unlink(id.bytes);
  *comm = new ink::nccl::Communicator{std::make_shared<Rank>(Rank{shared, rank})};
  return kInProgress;
}

int ncclCommGetAsyncError(Comm comm, int* result) {
  Rank& r = *comm->rank;
  *result = r.shared->error;
  if (r.shared->joined < 2 || r.joins_late > 0) {
    if (r.joins_late > 0) --r.joins_late;
    *result = kInProgress;
  } else if (*result == 0 && r.done < r.given && r.shared->left[1 - r.rank]) {
    *result = kRemoteError;
  }
  return kSuccess;
}

// Streams may still hold what it was given.
int ncclCommAbort(Comm comm) {
  comm->rank->aborted = true;
  comm->rank->shared->left[comm->rank->rank] = true;
  delete comm;
  return kSuccess;
}

int ncclSend(const void* from, size_t count, int type, int peer, Comm comm, void* stream) {
  return transfer(const_cast<char*>(static_cast<const char*>(from)), count, type, peer, comm,
                  static_cast<CUstream_st*>(stream), true);
}
int ncclRecv(void* to, size_t count, int type, int peer, Comm comm, void* stream) {
  return transfer(static_cast<char*>(to), count, type, peer, comm,
                  static_cast<CUstream_st*>(stream), false);
}

}  // extern "C"
