// What a card makes of the accesses of a warp, as NVIDIA publishes it for compute capability 5.0 to
// 9.0, and the Watch that counts them and finds their faults.
//
// Global memory is read and written in sectors of 32 bytes: "the concurrent accesses of the threads
// of a warp will coalesce into a number of transactions equal to the number of 32-byte transactions
// necessary to service all of the threads of the warp" (CUDA C++ Best Practices Guide, Coalesced
// Access to Global Memory). Shared memory lies in 32 banks of 4 bytes, successive words in
// successive banks; a bank gives one word at a time, to any number of threads (CUDA C++ Programming
// Guide, Compute Capability 5.x, Shared Memory, which those of 8.0 and 9.0 refer to). It gives 128
// bytes in a pass, so accesses of 8 bytes are taken by half warps, and those of 16 by quarters. (Of
// these the guides say nothing more, and the exercises have floats alone.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

/// Addresses of the lanes of one request; negative where a lane takes no part.
using Addresses = std::array<int64_t, 32>;
/// The sectors of 32 bytes in which the accesses, of so many bytes each, lie.
int sectors_of(const Addresses& addresses, int bytes);
/// How often shared memory is asked; the least is 1, 2 with 8 bytes, 4 with 16.
int passes_of(const Addresses& addresses, int bytes);

/// The accesses of one line to one array.
struct Traffic {
  unsigned line;
  std::string array;
  bool is_shared, writes;
  int64_t requests = 0, elements = 0;  // of warps; of lanes
  int64_t parts = 0, least = 0;        // sectors or passes; as few as there can be
};

struct Memory;

/// Sees what views touch, from its begin to its end; one at a time.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// An array in global memory, which a view is made of. It begins at the begin of a sector.
  Memory& memory(const std::string& name, void* data, int64_t size, int bytes, bool is_input);
  /// By line. Call it after the launch.
  std::vector<Traffic> traffic();
  /// Races and reads of what nobody wrote, a sentence for each, which begins with its line.
  std::vector<std::string> faults();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace emulator
