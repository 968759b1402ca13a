#include "cuda/emulator/accesses.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "autograd/base/check.h"

namespace emulator {
namespace {

constexpr int64_t kSector = 32, kBank = 4, kBanks = 32, kLanes = 32;
constexpr int64_t kMostAccesses = 20'000'000;  // of a launch: a loop that does not end

struct Touch {
  Moment moment;
  unsigned line;
  bool writes;
};

// Can nothing be said about which of the two comes first, though it matters?
bool race(const Touch& a, const Touch& b) {
  const Moment &x = a.moment, &y = b.moment;
  if (!a.writes && !b.writes) return false;
  if (x.block != y.block) return true;
  if (x.thread == y.thread || x.barriers != y.barriers) return false;
  return x.thread / kLanes != y.thread / kLanes || x.syncs == y.syncs;
}

using Request = std::array<std::vector<int64_t>, kLanes>;  // addresses of each lane, in its order

}  // namespace

struct Memory {
  std::string name;
  int64_t size, bytes, address;
  bool is_input, is_shared;
  std::vector<unsigned char> own;  // of shared memory
  unsigned char* data;
  std::vector<std::vector<Touch>> touches;  // of each element, since the last barrier
  std::vector<bool> written;

  /// from: where the data are; null for shared memory, which starts as NaN.
  Memory(std::string of, void* from, int64_t n, int64_t each, int64_t at, bool input = false)
      : name(std::move(of)),
        size(n),
        bytes(each),
        address(at),
        is_input(input),
        is_shared(from == nullptr),
        own(static_cast<size_t>(is_shared ? n * each : 0), 0xff),
        data(is_shared ? own.data() : static_cast<unsigned char*>(from)),
        touches(static_cast<size_t>(n)),
        written(static_cast<size_t>(n)) {}
  std::string at(int64_t i) const {
    std::string index = "[";  // added up: g++ 12 warns of "[" + a string
    index += std::to_string(i) + "]";
    return is_shared ? index + " of " + name : name + index;
  }
};

struct Watch::State {
  std::vector<std::unique_ptr<Memory>> global;
  std::map<unsigned, std::unique_ptr<Memory>> shared;  // by the line of its declaration
  int64_t next_address = 0, next_shared = 0, accesses = 0;
  unsigned block = ~0u;
  // Of the present block: by array, line, kind, warp, and the barriers behind it.
  using Site = std::tuple<const Memory*, unsigned, bool, unsigned, unsigned>;
  std::map<Site, Request> requests;
  std::map<std::tuple<unsigned, std::string, bool>, Traffic> traffic;
  std::map<std::tuple<std::string, unsigned, unsigned>, std::string> races;
  std::map<std::tuple<std::string, unsigned>, std::string> unwritten;

  void enter_block(unsigned number) {
    if (block == number) return;
    end_block();
    block = number;
  }
  void end_block();
  void note_race(const Memory& memory, int64_t i, const Touch& before, const Touch& now);
  void* touch(Memory& memory, int64_t i, Touch now, const Where& where);
};

namespace {

Watch::State* present = nullptr;

std::string thread_name(const Moment& moment, bool with_block) {
  return "thread " + std::to_string(moment.thread) +
         (with_block ? " of block " + std::to_string(moment.block) : "");
}

}  // namespace

int sectors_of(const Addresses& addresses, int bytes) {
  std::set<int64_t> sectors;
  for (const int64_t address : addresses)
    if (address >= 0)
      for (int64_t s = address / kSector; s <= (address + bytes - 1) / kSector; ++s)
        sectors.insert(s);
  return static_cast<int>(sectors.size());
}

int passes_of(const Addresses& addresses, int bytes) {
  const int64_t words = std::max<int64_t>(1, bytes / kBank), lanes = kLanes / words;
  int passes = 0;
  for (int64_t first = 0; first < kLanes; first += lanes) {
    std::array<std::set<int64_t>, kBanks> of_bank;  // words that it must give
    for (int64_t lane = first; lane < first + lanes; ++lane)
      if (const int64_t address = addresses[static_cast<size_t>(lane)]; address >= 0)
        for (int64_t w = address / kBank; w < address / kBank + words; ++w)
          of_bank[static_cast<size_t>(w % kBanks)].insert(w);
    size_t most = 0;
    for (const auto& bank : of_bank) most = std::max(most, bank.size());
    passes += static_cast<int>(most);
  }
  return passes;
}

void Watch::State::end_block() {
  for (const auto& [site, request] : requests) {
    const auto& [memory, line, writes, warp, barriers] = site;
    const int bytes = static_cast<int>(memory->bytes);
    Traffic& sum = traffic
                       .try_emplace({line, memory->name, writes},
                                    Traffic{line, memory->name, memory->is_shared, writes})
                       .first->second;
    size_t count = 0;
    for (const auto& lane : request) count = std::max(count, lane.size());
    for (size_t k = 0; k < count; ++k) {
      Addresses now;
      std::set<int64_t> different;
      for (size_t lane = 0; lane < now.size(); ++lane) {
        const auto& all = request[lane];
        now[lane] = k < all.size() ? all[k] : -1;
        if (k < all.size()) different.insert(all[k]);
        sum.elements += k < all.size();
      }
      const auto distinct = static_cast<int64_t>(different.size());
      ++sum.requests;
      sum.parts += memory->is_shared ? passes_of(now, bytes) : sectors_of(now, bytes);
      const int64_t width = memory->is_shared ? kBank * kBanks : kSector;
      sum.least += (distinct * bytes + width - 1) / width;
    }
  }
  requests.clear();
  shared.clear();
  next_shared = 0;
}

void Watch::State::note_race(const Memory& memory, int64_t i, const Touch& before,
                             const Touch& now) {
  const bool blocks = before.moment.block != now.moment.block;
  const auto lines = std::minmax(before.line, now.line);
  std::string& text = races[{memory.name, lines.first, lines.second}];
  if (!text.empty()) return;
  // The later line of two writes, which is more often the wrong one.
  const bool swapped = !before.writes || (now.writes && before.line > now.line);
  const Touch &reader = swapped ? before : now, &writer = swapped ? now : before;
  text = "line " + std::to_string(reader.line) + ": a race: " + thread_name(reader.moment, blocks) +
         (reader.writes ? " writes " : " reads ") + memory.at(i) + ", which " +
         thread_name(writer.moment, blocks) + " writes in line " + std::to_string(writer.line) +
         (blocks ? ". Blocks run in any order, and do not wait for each other."
          : reader.writes
              ? ", too, and no __syncthreads() lies between: nobody knows which of them is last."
              : ", and a __syncthreads() is missing between: nobody knows which of them is first.");
}

void* Watch::State::touch(Memory& memory, int64_t i, Touch now, const Where& where) {
  enter_block(now.moment.block);
  const char* does = now.writes ? " writes " : " reads ";
  INK_CHECK(i >= 0 && i < memory.size, "line ", where.line,
            ": out of bounds: ", thread_name(now.moment, true), does, memory.at(i),
            ", which has elements 0 to ", memory.size - 1);
  INK_CHECK(!now.writes || !memory.is_input, "line ", where.line, ": ",
            thread_name(now.moment, true), " writes ", memory.at(i), ", an input");
  INK_CHECK(++accesses < kMostAccesses, "line ", where.line, ": after ", accesses,
            " accesses the kernel still runs: does a loop not end?");
  const auto warp = static_cast<unsigned>(now.moment.thread / kLanes);
  Request& request = requests[{&memory, now.line, now.writes, warp, now.moment.barriers}];
  request[now.moment.thread % kLanes].push_back(memory.address + i * memory.bytes);
  const auto n = static_cast<size_t>(i);
  if (!memory.is_input) {
    auto& touches = memory.touches[n];
    const auto is_over = [&](const Touch& t) {
      return t.moment.block == now.moment.block && t.moment.barriers < now.moment.barriers;
    };
    touches.erase(std::remove_if(touches.begin(), touches.end(), is_over), touches.end());
    bool known = false;
    for (const Touch& before : touches) {
      if (race(before, now)) note_race(memory, i, before, now);
      known = known ||
              (before.moment.thread == now.moment.thread && before.writes == now.writes &&
               before.moment.syncs == now.moment.syncs && before.moment.block == now.moment.block);
    }
    if (!known) touches.push_back(now);
    if (!now.writes && !memory.written[n]) {
      std::string& text = unwritten[{memory.name, now.line}];
      if (text.empty())
        text = "line " + std::to_string(now.line) + ": " + thread_name(now.moment, true) +
               " reads " + memory.at(i) + ", which nobody has written.";
    }
    if (now.writes) memory.written[n] = true;
  }
  return memory.data + i * memory.bytes;
}

void* touched(Memory& memory, int64_t i, bool writes, Where where) {
  return present->touch(memory, i, {moment(), where.line, writes}, where);
}

Memory& block_memory(Where where, int64_t size, size_t bytes) {
  present->enter_block(moment().block);
  std::unique_ptr<Memory>& found = present->shared[where.line];
  if (found) return *found;
  const auto each = static_cast<int64_t>(bytes), first = (present->next_shared + 15) / 16 * 16;
  present->next_shared = first + size * each;
  INK_CHECK(present->next_shared <= 48 * 1024, "line ", where.line, ": the block has ",
            present->next_shared, " bytes of shared memory; it may have 48 KB");
  found = std::make_unique<Memory>("the array of line " + std::to_string(where.line), nullptr, size,
                                   each, first);
  return *found;
}

Watch::Watch() : state_(std::make_unique<State>()) { present = state_.get(); }
Watch::~Watch() { present = nullptr; }

Memory& Watch::memory(const std::string& name, void* data, int64_t size, int bytes, bool is_input) {
  State& s = *state_;
  s.global.push_back(std::make_unique<Memory>(name, data, size, bytes, s.next_address, is_input));
  s.next_address += (size * bytes + 255) / 256 * 256;  // as cudaMalloc aligns
  return *s.global.back();
}

std::vector<Traffic> Watch::traffic() {
  state_->end_block();
  std::vector<Traffic> list;
  for (const auto& [key, line] : state_->traffic) list.push_back(line);
  return list;
}

std::vector<std::string> Watch::faults() {
  std::vector<std::string> list;
  std::set<std::string> racing;
  for (const auto& [key, text] : state_->races) {
    list.push_back(text);
    racing.insert(std::get<0>(key));
  }
  for (const auto& [key, text] : state_->unwritten)
    if (racing.count(std::get<0>(key)) == 0) list.push_back(text);
  return list;
}

}  // namespace emulator
