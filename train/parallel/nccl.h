// Transfers of a GPU's memory between processes, over NCCL, which is loaded when it is needed.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "autograd/base/device.h"
#include "train/parallel/processes.h"

namespace ink {

/// The GPU on which this process of the group works, if a run asks for one: that of the process's
/// number on its machine. In a group of one, what is asked for. Throws where NCCL is missing.
Device own_device(const Processes& group, Device asked);
/// "NCCL 2.28.9"; or why there is none.
std::string nccl_version();
/// All processes of the group call it at the same time, before a GPU's memory travels. All that it
/// tells the others it sends over `control`, which must outlive the links.
std::unique_ptr<DeviceLinks> connect_over_nccl(Processes& control, Device device);

/// What we call of NCCL, as version 2.14 and all later ones declare it. So a build needs no nccl.h;
/// where it finds one, the compiler compares (nccl.cpp).
namespace nccl {

using Comm = struct Communicator*;
struct UniqueId {
  char bytes[128];
};
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;                 // calls return at once, so that we can give up
  int of_later_versions = INT_MIN;  // which is "not set"
};
inline constexpr int kSuccess = 0, kRemoteError = 6, kInProgress = 7;  // ncclResult_t
inline constexpr int kBytes = 0;                                       // ncclDataType_t

struct Library {
  int (*GetVersion)(int* version);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(Comm comm);
  int (*GetUniqueId)(UniqueId* id);
  int (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  int (*CommGetAsyncError)(Comm comm, int* result);
  int (*CommAbort)(Comm comm);
  int (*Send)(const void* from, size_t count, int type, int peer, Comm comm, void* stream);
  int (*Recv)(void* to, size_t count, int type, int peer, Comm comm, void* stream);
};
/// libnccl.so.2, or the file that INKLING_NCCL in the environment names. Throws without one.
const Library& library();

}  // namespace nccl
}  // namespace ink
