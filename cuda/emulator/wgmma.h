// Products of warpgroups, and barriers between warps, by their definition in the PTX ISA:
// cuda/wgmma.cuh under the emulator.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

namespace emulator {

/// Where a card's instructions find what lies in the block's shared memory. The block's own part
/// starts at kSharedStart, as on a card.
uint32_t shared_address(const void* pointer);
inline constexpr uint32_t kSharedStart = 1024;

// ---- products (wgmma.cpp)

/// d: columns / 2 floats of each lane. a: four registers, or null for a_descriptor. The sums are NaN
/// until they are waited for, and it is an error if anything that a product uses changes before.
void start_product(float* d, int columns, const uint32_t* a, uint64_t a_descriptor,
                   uint64_t b_descriptor, bool by_columns, bool keep,
                   Where where = Where::current());
void before_products();
void end_products(Where where = Where::current());
void wait_for_products(int groups_left, Where where = Where::current());
/// Before a block of so many threads runs, and after its last thread has left.
void start_block_of_products(int threads);
void end_block_of_products();

// ---- barriers, and what products must know of threads (threads.cpp)

void start_phases(uint64_t* state, unsigned arrivals);
void arrive(uint64_t* state);
void wait_for_phase(uint64_t* state, unsigned parity, Where where = Where::current());
void meet(int number, int threads, Where where = Where::current());
void report(int number, int threads, Where where = Where::current());
void publish_to_products();

/// The bytes at a shared address. It is an error if they are outside of the block's memory, or if a
/// thread has copied there and not published the copy.
const unsigned char* published(uint32_t address, uint32_t bytes);
bool same_place(const Where& a, const Where& b);
std::string place(const Where& where);
/// Throws an error of the kernel that runs.
[[noreturn]] void fail(const std::string& message);

}  // namespace emulator
