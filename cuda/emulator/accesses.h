// Memory that sees who reads and writes it: a kernel takes global<T> where nvcc's takes T*, and
// declares `__shared__ shared<T, N> name;` where nvcc's has an array. While a Watch lives, it notes
// each access: which thread, of what, between which barriers, and in which line. From that it knows
// races and accesses out of bounds, and counts what a card makes of the accesses of a warp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/emulator/cuda_runtime.h"
#include "cuda/emulator/traffic.h"

#define __shared__

inline float max(float a, float b) { return a > b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline float min(float a, float b) { return a < b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }

namespace emulator {

/// Of the present Watch: elements side by side, of global memory or of a block.
struct Memory;
/// Where element i lies; notes the access. It throws if there is no such element.
void* touched(Memory& memory, int64_t i, bool writes, Where where);
/// The memory of the block's array that is declared at a place.
Memory& block_memory(Where where, int64_t size, size_t bytes);

/// A subscript, which knows where it stands.
struct Index {
  int64_t i;
  Where where;
  template <class I>
  requires std::is_integral_v<I> Index(I n, Where at = Where::current())
      : i(static_cast<int64_t>(n)), where(at) {}
};

/// x[i], which is read or written.
template <class T>
class Element {
 public:
  Element(Memory& memory, int64_t i, Where where) : memory_(memory), i_(i), where_(where) {}
  Element(const Element&) = default;
  operator T() const { return *static_cast<const T*>(touched(memory_, i_, false, where_)); }
  Element& operator=(T value) {
    *static_cast<T*>(touched(memory_, i_, true, where_)) = value;
    return *this;
  }
  Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
  Element& operator+=(T value) { return *this = *this + value; }
  Element& operator-=(T value) { return *this = *this - value; }
  Element& operator*=(T value) { return *this = *this * value; }
  Element& operator/=(T value) { return *this = *this / value; }

 private:
  Memory& memory_;
  int64_t i_;
  Where where_;
};

template <class T>
class View {
 public:
  View(Memory& memory, int64_t first) : memory_(&memory), first_(first) {}
  auto operator[](Index index) const {
    if constexpr (std::is_const_v<T>) {
      return *static_cast<T*>(touched(*memory_, first_ + index.i, false, index.where));
    } else {
      return Element<T>(*memory_, first_ + index.i, index.where);
    }
  }

 protected:
  Memory* memory_;
  int64_t first_;
};

}  // namespace emulator

template <class T>
class global : public emulator::View<T> {
 public:
  global(emulator::Memory& memory, int64_t first = 0) : emulator::View<T>(memory, first) {}
  global operator+(int64_t i) const { return global(*this->memory_, this->first_ + i); }
};

template <class T, int N>
class shared : public emulator::View<T> {
 public:
  shared(emulator::Where where = emulator::Where::current())
      : emulator::View<T>(emulator::block_memory(where, N, sizeof(T)), 0) {}
  shared(const shared&) = delete;
};
