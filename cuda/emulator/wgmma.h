// Products of warpgroups, and barriers between warps: cuda/wgmma.cuh under the emulator.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace emulator {

// ---- products, by their definition in the PTX ISA (wgmma.cpp)

/// d: columns / 2 floats of each lane, which are NaN until they are waited for. a: four registers,
/// or null for a_matrix. It is an error if what a product uses changes before it is waited for.
void start_product(float* d, int columns, const uint32_t* a, uint64_t a_matrix, uint64_t b_matrix,
                   bool by_columns, bool keep, Where where = Where::current());
void before_products();
void end_products(Where where = Where::current());
void wait_for_products(int groups_left, Where where = Where::current());
void end_block_of_products(bool failed);

// ---- barriers, and what products must know of a block (threads.cpp)

void start_phases(uint64_t* state, unsigned arrivals);
void arrive(uint64_t* state);
bool phase_ended(uint64_t* state, unsigned parity);
void wait_for_phase(uint64_t* state, unsigned parity, Where where = Where::current());
void report(int number, int threads, Where where = Where::current(), bool stay = false);
inline void meet(int number, int threads, Where where = Where::current()) {
  report(number, threads, where, true);
}
void publish_to_products();
uint32_t shared_address(const void* pointer, size_t bytes = 1);
/// The 16 bytes there. It is an error if they are not the block's, or hold an unpublished copy.
const unsigned char* published(uint32_t address);
std::string place(const Where& where);
std::string in_launch();  // how errors begin

}  // namespace emulator
