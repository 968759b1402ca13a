// cuda/wgmma.cuh under the emulator: products of warpgroups, and barriers between warps.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace emulator {

// ---- products, by their definition in the PTX ISA (wgmma.cpp)

/// d: columns / 2 floats of each lane, which are NaN until they are waited for. a: four registers,
/// or null for a_matrix. It is an error if what a product uses changes before it is waited for.
void start_product(float* d, int columns, const uint32_t* a, uint64_t a_matrix, uint64_t b_matrix,
                   bool by_columns, bool keep, Where where);
template <int kN, bool kColumns, class Matrix>
void start_product(float (&d)[kN / 8][4], const uint32_t (&a)[4], Matrix b, bool keep,
                   Where where = Where::current()) {
  start_product(&d[0][0], kN, a, 0, b.bits, kColumns, keep, where);
}
template <int kN, bool kColumns, class Matrix>
void start_product(float (&d)[kN / 8][4], Matrix a, Matrix b, bool keep,
                   Where where = Where::current()) {
  start_product(&d[0][0], kN, nullptr, a.bits, b.bits, kColumns, keep, where);
}
void may_start_products();
template <class... Sums>
void before_products(Sums&...) {
  may_start_products();
}
template <class Sums>
void settle(Sums&) {}
void end_products(Where where = Where::current());
void wait_for_products(int groups_left, Where where);
template <int kLeft>
void wait_for_products(Where where = Where::current()) {
  wait_for_products(kLeft, where);
}
void end_block_of_products(bool failed);

// ---- barriers, and what products must know of a block (threads.cpp)

template <int, bool>
void set_registers() {}
void publish_to_products();
uint32_t shared_address(const void* pointer, size_t bytes = 1);
/// The 16 bytes there. It is an error if they are not the block's, or hold an unpublished copy.
const unsigned char* published(uint32_t address);
std::string place(const Where& where);
std::string in_launch();  // how errors begin

/// left: arrivals that the present phase lacks. mark: of a started one.
struct alignas(8) PhaseBarrier {
  static constexpr uint16_t kMark = 0x5b1e;
  uint16_t count, left, parity, mark;

  void start(unsigned arrivals);
  void arrive();
  bool ended(unsigned parity) const;
  void wait(unsigned parity, Where where = Where::current());
};
void report(int number, int threads, Where where = Where::current(), bool stay = false);
inline void meet(int number, int threads, Where where = Where::current()) {
  report(number, threads, where, true);
}

}  // namespace emulator

namespace ink::cuda {
using emulator::before_products, emulator::end_products, emulator::meet, emulator::PhaseBarrier,
    emulator::publish_to_products, emulator::report, emulator::set_registers, emulator::settle,
    emulator::shared_address, emulator::start_product, emulator::wait_for_products;
}  // namespace ink::cuda
