// cuda/mma.cuh under the emulator: tensor cores and ldmatrix by their definition in the PTX ISA.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "autograd/base/dtype.h"

namespace emulator {

/// The bf16 in the lower (0) or upper (1) half of a pair.
inline float half_of(uint32_t pair, unsigned which) {
  return std::bit_cast<float>(which ? pair & 0xffff0000u : pair << 16);
}

inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                         Where where = Where::current()) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned char* all = exchange(Collective::product, mine, sizeof mine, where);
  using Words = std::array<uint32_t, 6>;  // a's, then b's
  const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  std::array<Words, 4> rows;  // of the lanes that hold a's rows g and g + 8
  for (unsigned pair = 0; pair < 4; ++pair) rows[pair] = from_lane<Words>(all, 4 * g + pair);
  for (unsigned col = 0; col < 2; ++col) {  // d's columns 2t and 2t + 1
    for (unsigned k = 0; k < 16; k += 2) {  // a's columns, b's rows
      const unsigned pair = k % 8 / 2, far = k / 8;
      const uint32_t y = from_lane<Words>(all, 4 * (2 * t + col) + pair)[4 + far];
      for (unsigned half = 0; half < 2; ++half) {  // d's row g + 8 half
        const uint32_t x = rows[pair][2 * far + half];
        d[2 * half + col] += half_of(x, 0) * half_of(y, 0);
        d[2 * half + col] += half_of(x, 1) * half_of(y, 1);
      }
    }
  }
}

inline void load_matrices(uint32_t (&r)[4], const void* row, Where where = Where::current(),
                          bool transposed = false) {
  using Row = std::array<uint16_t, 8>;
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    throw std::runtime_error("emulator: ldmatrix of a row that is not aligned to 16 bytes");
  const unsigned char* all = exchange(Collective::product, row, sizeof(Row), where);
  const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (unsigned m = 0; m < 4; ++m) {
    const auto element = [&](unsigned i, unsigned j) -> uint32_t {
      return from_lane<Row>(all, 8 * m + i)[j];
    };
    r[m] = transposed ? element(2 * t, g) | element(2 * t + 1, g) << 16
                      : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
  }
}
inline void load_transposed(uint32_t (&r)[4], const void* row, Where where = Where::current()) {
  load_matrices(r, row, where, true);
}

template <int kBytes>
void start_copy(void* to, const void* from, bool there) {
  copy_later(to, there ? from : nullptr, kBytes);
}
template <int kLeft>
void wait_for_copies() {
  finish_copies(kLeft);
}

inline uint32_t pack_bf16(float first, float second) {
  return ink::bfloat16(first).bits | uint32_t{ink::bfloat16(second).bits} << 16;
}
inline float exp2_fast(float x) { return std::exp2(x); }

}  // namespace emulator

namespace ink::cuda {
using emulator::end_copies, emulator::exp2_fast, emulator::load_matrices, emulator::load_transposed,
    emulator::mma_m16n8k16, emulator::pack_bf16, emulator::start_copy, emulator::wait_for_copies;
}  // namespace ink::cuda
