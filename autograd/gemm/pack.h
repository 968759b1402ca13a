// Rows and columns of matrices on their way into the panels that gemm/amx.cpp and gemm/avx512.cpp
// multiply: runs of 16 or 32 elements as vectors, bf16 in pairs along the inner dimension.
//
// Include it where the target is AVX-512 with bf16. Everything is local to the file, because code
// that one file compiles for its processor must not end up in another file's.
#pragma once

#include <type_traits>

#include <immintrin.h>

#include "autograd/gemm/transpose.h"
#include "autograd/gemm/units.h"

namespace ink {
namespace {

inline int64_t up_to_multiple(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

inline __mmask16 first_lanes(int64_t n) {
  return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

// The f32 values from which a block of the result starts, rows ld apart; zeros if null.
struct Start {
  const float* data = nullptr;
  int64_t ld = 0;

  Start at(int64_t row, int64_t col) const {
    return data == nullptr ? *this : Start{data + row * ld + col, ld};
  }
};

// What packing has learnt about an operand. Its lines are rows of the left operand, columns of the
// right one.
struct Seen {
  __m512 finite;  // NaN where something is not finite
  __m512 least;   // of the lines' largest |x|, the smallest that is not 0

  // Not a constructor, because g++ compiles an implicit one for another target.
  static Seen nothing() { return {_mm512_setzero_ps(), _mm512_set1_ps(0x1.fffffep127f)}; }
  // Notes 16 lines by their largest |x|.
  void add_lines(__m512 largest) {
    const __mmask16 some = _mm512_cmp_ps_mask(largest, _mm512_setzero_ps(), _CMP_GT_OQ);
    least = _mm512_mask_min_ps(least, some, least, largest);
  }
  // Notes one line by the largest |x| of its 16 parts.
  void add_line(__m512 largest) { add_lines(_mm512_set1_ps(_mm512_reduce_max_ps(largest))); }
  bool all_finite() const {
    return _mm512_cmp_ps_mask(finite, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0;
  }
};

// Two vectors of f32 that become one of bf16 pairs: elements 0..15 and 16..31 of a run along the
// inner dimension (kAlong), or 16 columns' elements 2 r and 2 r + 1.
template <bool kAlong>
struct Pairs {
  __m512 low, high;

  // Rounds both to bf16 and keeps the remainders.
  __m512i take_piece() {
    const auto packed = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    if constexpr (kAlong) {
      low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(packed)));
      high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64(packed, 1)));
      return packed;
    } else {
      const __m512i pairs = interleaved(packed);
      low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
      high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_and_si512(
                                     pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000)))));
      return pairs;
    }
  }
  static __m512 widened(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  // Elements i and 16 + i side by side.
  static __m512i interleaved(__m512i x) {
    alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), x);
  }
  // Notes how large the elements are. Call it before the first piece is taken.
  void note_size(__m512& largest) const {
    constexpr int kLargerMagnitude = 0b1011;
    largest =
        _mm512_range_ps(_mm512_range_ps(low, high, kLargerMagnitude), largest, kLargerMagnitude);
  }
  // Notes remainders that are not finite. Call it after that.
  void note_not_finite(Seen& seen) const {
    const __m512 zero = _mm512_setzero_ps();
    seen.finite = _mm512_add_ps(seen.finite, _mm512_fmadd_ps(low, zero, _mm512_mul_ps(high, zero)));
  }
};

// A row of a tile, of bf16.
struct Ready {
  __m512i row;

  __m512i take_piece() const { return row; }
  void note_size(__m512&) const {}
  void note_not_finite(Seen&) const {}
};

// Lines of a matrix in memory, ld apart, such as rows of the left operand with `width` elements
// along the inner dimension (kAlong). Past the last line and past `width` they read as zeros.
template <class T, bool kAlong>
struct Lines {
  const T* data;
  int64_t ld, lines, width;

  // 32 elements of line r from `at` on (kAlong), or 16 each of lines 2 r and 2 r + 1. f32 gives
  // Pairs, bf16 a row of a tile. kWhole: none is past an end.
  template <bool kWhole>
  auto vector(int64_t r, int64_t at) const {
    const int64_t line = kAlong ? r : 2 * r;
    const T *low = data + line * ld + at, *high = low + (kAlong ? 16 : ld);
    __mmask16 low_lanes = 0xffff, high_lanes = 0xffff;
    if constexpr (!kWhole) {
      low_lanes = first_lanes(line < lines ? width - at : 0);
      high_lanes = first_lanes(kAlong ? (line < lines ? width - at - 16 : 0)
                                      : (line + 1 < lines ? width - at : 0));
    }
    if constexpr (std::is_same_v<T, float>) {
      return Pairs<kAlong>{_mm512_maskz_loadu_ps(low_lanes, low),
                           _mm512_maskz_loadu_ps(high_lanes, high)};
    } else {
      const __m256i a = _mm256_maskz_loadu_epi16(low_lanes, low),
                    b = _mm256_maskz_loadu_epi16(high_lanes, high);
      const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
      return Ready{kAlong ? both : Pairs<false>::interleaved(both)};
    }
  }
  // Is vector (r, at) whole?
  bool whole(int64_t r, int64_t at) const {
    return (kAlong ? r < lines && at + 32 <= width : 2 * r + 1 < lines && at + 16 <= width);
  }
};

// A square of 32-bit elements. They are copied to vectors of their own type and back, because
// transpose_square, as any template, forgets that its type may alias another one.
[[gnu::always_inline]] inline void transpose(__m512i* rows) {
  typedef int32_t Row __attribute__((vector_size(64)));
  Row square[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) square[i] = reinterpret_cast<Row>(rows[i]);
  transpose_square(square);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = reinterpret_cast<__m512i>(square[i]);
}

}  // namespace
}  // namespace ink
