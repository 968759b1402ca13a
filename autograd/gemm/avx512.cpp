// Matrix products on AVX-512: of f32 and f64, and of bf16, in pairs if the processor multiplies
// those.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "autograd/base/target.h"
#include "autograd/gemm/units.h"

#if defined(__x86_64__) && defined(__linux__) && \
    (defined(__AVX512F__) || !defined(INKLING_THIS_MACHINE))
#include <immintrin.h>

INK_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

#include "autograd/gemm/pack.h"
#include "autograd/gemm/panels.h"

namespace ink {
namespace {

// A vector has 16 lanes of 32 bits. Along the inner dimension a lane is one step: an f32, or with
// kPairs two bf16, whose products one instruction sums.
//
// A block of the result, up to 14 rows by 2 vectors, stays in registers during the loop over steps.
// Each step takes 2 vectors of the right operand's panel and a broadcast lane of each row of the
// left operand. The left operand's rows for a block stay in the L1 cache while the right panels
// stream from the L2 cache.
constexpr int64_t kLanes = 16, kVectors = 2, kWidth = kLanes * kVectors, kHeight = 14;
constexpr int64_t kLongestPart = 384;  // steps
constexpr int64_t kColumns = 512;      // of packed right panels
constexpr int64_t kGroup = 8;          // blocks of a transposed left operand, packed at once

// The left operand's rows in bytes: lane (row, step) is at row * row_stride + step * step_stride.
struct Left {
  const char* data;
  int64_t row_stride, step_stride;

  static Left in_place(const GemmOperand& x) {
    const int64_t ld = x.layout.ld * size_of(x.dtype);
    const auto* data = static_cast<const char*>(x.data);
    return x.layout.transposed ? Left{data, 4, ld} : Left{data, ld, 4};
  }
  // 16 lanes for each step.
  static Left packed(const float* data) {
    return {reinterpret_cast<const char*>(data), 4, 4 * kLanes};
  }
};

[[gnu::always_inline]] inline __m512 broadcast(const char* lane) {
  float value;  // not _mm_loadu_si32, because GCC 11.2 loads it into the wrong lane
  std::memcpy(&value, lane, sizeof value);
  return _mm512_set1_ps(value);
}
template <bool kPairs>
[[gnu::always_inline]] inline __m512 add_product(__m512 sum, __m512 a, __m512 b) {
  if constexpr (kPairs) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  } else {
    return _mm512_fmadd_ps(a, b, sum);
  }
}

// Rounds to bf16 as bfloat16(float) does; with kPairs denormals become 0.
template <bool kPairs>
[[gnu::always_inline]] inline __m256i rounded(__m512 x) {
  if constexpr (kPairs) {
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  } else {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), even);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, nan, quiet), 16));
  }
}

// Stores a block as float or bfloat16.
template <bool kPairs, int R, int V, class T>
[[gnu::always_inline]] inline void store_block(const __m512 (&sums)[R][V], T* to, int64_t ld,
                                               __mmask16 last) {
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i, to += ld) {
    for (int v = 0; v < V; ++v) {
      const __mmask16 lanes = v == V - 1 ? last : __mmask16{0xffff};
      if constexpr (std::is_same_v<T, float>) {
        _mm512_mask_storeu_ps(to + v * kLanes, lanes, sums[i][v]);
      } else {
        _mm256_mask_storeu_epi16(to + v * kLanes, lanes, rounded<kPairs>(sums[i][v]));
      }
    }
  }
}

// R rows by V vectors of the result; the last vector has the lanes `last`. Structs of more than 16
// bytes come by reference: a call that copies one reads it in other pieces than those just written,
// and waits until they have left the store buffer.
template <bool kPairs, int R, int V>
void multiply_block(int64_t steps, const Left& left, const float* right, Start start,
                    const GemmResult& c, __mmask16 last) {
  const int64_t element = size_of(c.dtype);
  char* to = static_cast<char*>(c.data);
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {  // prefetches the result, written at the end
    __builtin_prefetch(to + i * c.ld * element, 1);
    __builtin_prefetch(to + (i * c.ld + kWidth - 1) * element, 1);
  }
  __m512 sums[R][V] = {};
  const char* rows[(R + 2) / 3];  // of every third row: the next ones are a stride or two away
#pragma GCC unroll 5
  for (int i = 0; i < R; i += 3) rows[i / 3] = left.data + i * left.row_stride;
  for (int64_t step = 0; step < steps; ++step) {
    __m512 b[V];
    for (int v = 0; v < V; ++v) b[v] = _mm512_load_ps(right + v * kLanes);
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      const __m512 a = broadcast(rows[i / 3] + i % 3 * left.row_stride);
      for (int v = 0; v < V; ++v) sums[i][v] = add_product<kPairs>(sums[i][v], a, b[v]);
    }
    for (const char*& row : rows) row += left.step_stride;
    right += kWidth;
  }
  if (const float* from = start.data; from != nullptr) {
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i, from += start.ld) {
      for (int v = 0; v < V; ++v) {
        const __mmask16 lanes = v == V - 1 ? last : __mmask16{0xffff};
        sums[i][v] = _mm512_add_ps(sums[i][v], _mm512_maskz_loadu_ps(lanes, from + v * kLanes));
      }
    }
  }
  c.dtype == bf16 ? store_block<kPairs>(sums, static_cast<bfloat16*>(c.data), c.ld, last)
                  : store_block<kPairs>(sums, static_cast<float*>(c.data), c.ld, last);
}

using MultiplyBlock = void (*)(int64_t, const Left&, const float*, Start, const GemmResult&,
                               __mmask16);

template <bool kPairs, int V>
constexpr auto kBlocks = []<size_t... I>(std::index_sequence<I...>) {
  return std::array{static_cast<MultiplyBlock>(multiply_block<kPairs, block_height(I), V>)...};
}
(std::make_index_sequence<block_index(kHeight) + 1>());

// Lines of a matrix in memory (gemm/pack.h) as vectors of lanes.
template <bool kPairs, class T, bool kAlong>
struct LaneLines {
  Lines<T, kAlong> lines;

  // 16 steps of line r (kAlong), or step r of 16 rows or columns, from `at` on; zeros past an end.
  template <bool kWhole>
  __m512i vector(int64_t r, int64_t at) const {
    if constexpr (kPairs) {
      return lines.template vector<kWhole>(r, kAlong ? 2 * at : at).take_piece();
    } else {
      const __mmask16 live =
          kWhole ? __mmask16{0xffff} : first_lanes(r < lines.lines ? lines.width - at : 0);
      const T* from = lines.data + r * lines.ld + at;
      if constexpr (std::is_same_v<T, float>) {
        return _mm512_castps_si512(_mm512_maskz_loadu_ps(live, from));
      } else {
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, from)), 16);
      }
    }
  }
  bool whole(int64_t r, int64_t at) const {
    if constexpr (kPairs) return lines.whole(r, kAlong ? 2 * at : at);
    return r < lines.lines && at + kLanes <= lines.width;
  }
  __m512i operator()(int64_t r, int64_t at) const {
    return whole(r, at) ? vector<true>(r, at) : vector<false>(r, at);
  }
  void prefetch(int64_t r, int64_t at) const {
    const T* from = lines.data + (kPairs && !kAlong ? 2 * r : r) * lines.ld;
    from += kPairs && kAlong ? 2 * at : at;
    __builtin_prefetch(from);
    if (kPairs && !kAlong) __builtin_prefetch(from + lines.ld);
  }
};

// Calls f(lines) for the matrix x, whose lines run along the inner dimension (kAlong) or across it.
template <bool kPairs, bool kAlong, class F>
[[gnu::always_inline]] inline void with_lines(const GemmOperand& x, int64_t count, int64_t width,
                                              const F& f) {
  if (x.dtype == bf16) {
    f(LaneLines<kPairs, bfloat16, kAlong>{
        {static_cast<const bfloat16*>(x.data), x.layout.ld, count, width}});
  } else {
    f(LaneLines<kPairs, float, kAlong>{
        {static_cast<const float*>(x.data), x.layout.ld, count, width}});
  }
}

// The floats of a panel of the right operand: `steps` by 32 columns, with room for a multiple of 16
// steps, and padded so that panels begin in different sets of the cache.
int64_t panel_floats(int64_t steps) { return (up_to_multiple(steps, kLanes) + 2) * kWidth; }

// The right operand's panels.
template <bool kPairs>
void pack_right(float* to, const GemmOperand& x, int64_t inner, int64_t cols, int64_t steps) {
  const int64_t panel_size = panel_floats(steps);
  if (!x.layout.transposed) {
    return with_lines<kPairs, false>(x, inner, cols, [&](const auto& lines) {
      const bool whole = cols % kWidth == 0 && lines.whole(steps - 1, cols - kLanes);
      for (int64_t r = 0; r < steps; ++r) {
        float* panel = to + r * kWidth;
        for (int64_t j = 0; j < cols; j += kWidth, panel += panel_size) {
          for (int64_t v = 0; v < kWidth && j + v < cols; v += kLanes) {
            lines.prefetch(r + 4, j + v);  // runs are too short for the processor's prefetcher
            _mm512_store_si512(panel + v,
                               whole ? lines.template vector<true>(r, j + v) : lines(r, j + v));
          }
        }
      }
    });
  }
  with_lines<kPairs, true>(x, cols, inner, [&](const auto& lines) {
    for (int64_t j = 0; j < cols; j += kLanes) {
      float* panel = to + j / kWidth * panel_size + j % kWidth;
      for (int64_t r = 0; r < steps; r += kLanes) {
        __m512i square[kLanes];
        const bool whole = lines.whole(j + kLanes - 1, r);
        for (int64_t i = 0; i < kLanes; ++i) lines.prefetch(j + kLanes + i, r);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i)
          square[i] = whole ? lines.template vector<true>(j + i, r)
                            : lines.template vector<false>(j + i, r);
        transpose(square);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i)
          _mm512_store_si512(panel + (r + i) * kWidth, square[i]);
      }
    }
  });
}

// Cuts rows into blocks of nearly equal, even heights up to kHeight. Three odd rows come last.
struct Blocks {
  int64_t rows, odd = next_height(rows) == rows ? 0 : 3,
                even = (rows - odd + kHeight - 1) / kHeight, count = even + (odd > 0);

  int64_t begin(int64_t block) const {
    const int64_t end = rows - odd;
    return block > even ? rows : std::min(end, (end + 1) / 2 * block / even * 2);
  }
};

// Can the left operand be read in place, and is that faster? Rows that lie whole pages apart share
// a few sets of the L1 cache: packing them pays if there are many columns.
template <bool kPairs>
bool reads_in_place(const GemmOperand& x, int64_t inner, int64_t cols) {
  constexpr int64_t kFewColumns = 256, kPage = 4096;
  const bool has_lanes =
      kPairs ? x.dtype == bf16 && !x.layout.transposed && inner % 2 == 0 : x.dtype == f32;
  const bool spread = !x.layout.transposed && x.layout.ld * size_of(x.dtype) % kPage != 0;
  return has_lanes && (spread || cols <= kFewColumns);
}

// The left operand's rows, in `memory`.
template <bool kPairs>
Left pack_rows(float* memory, const GemmOperand& x, int64_t rows, int64_t inner, int64_t steps) {
  const int64_t ld = up_to_multiple(steps, kLanes) + kLanes;  // in different sets of the cache
  with_lines<kPairs, true>(x, rows, inner, [&](const auto& lines) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t r = 0; r < steps; r += kLanes)
        _mm512_store_si512(memory + i * ld + r, lines(i, r));
    }
  });
  return {reinterpret_cast<const char*>(memory), 4 * ld, 4};
}

// Packs the rows of blocks first to first + kGroup of a transposed left operand, step by step, so
// that memory is read in long runs: 16 lanes from the beginning of each block.
template <bool kPairs>
void pack_group(float* memory, const GemmOperand& x, const Blocks& blocks, int64_t first,
                int64_t inner, int64_t steps) {
  int64_t begin[kGroup];
  const int64_t n = std::min(kGroup, blocks.count - first);
  for (int64_t b = 0; b < n; ++b) begin[b] = blocks.begin(first + b);
  with_lines<kPairs, false>(x, inner, blocks.rows, [&](const auto& lines) {
    for (int64_t r = 0; r < steps; ++r) {
      for (int64_t b = 0; b < n; ++b)
        _mm512_store_si512(memory + (b * steps + r) * kLanes, lines(r, begin[b]));
    }
  });
}

// Brings rows of the left operand to the L1 cache, while the block before them is computed.
void fetch_rows(const GemmOperand& x, int64_t begin, int64_t end, int64_t inner) {
  const int64_t element = size_of(x.dtype);
  for (int64_t i = begin; i < end; ++i) {
    const char* row = static_cast<const char*>(x.data) + i * x.layout.ld * element;
    for (int64_t at = 0; at < inner * element; at += 64) _mm_prefetch(row + at, _MM_HINT_T0);
  }
}

// Cuts the steps of the inner dimension into equal parts.
int64_t part_steps(int64_t steps, bool whole) {
  if (whole || steps <= kLongestPart) return up_to_multiple(steps, kLanes);
  const int64_t parts = (steps + kLongestPart - 1) / kLongestPart;
  return up_to_multiple((steps + parts - 1) / parts, kLanes);
}

// Room for a packed block of rows, or for a group of transposed blocks.
int64_t left_floats(int64_t steps) { return kLanes * kGroup * steps; }

template <bool kPairs>
void multiply(const GemmProduct& p, void* scratch) {
  constexpr int64_t kStep = kPairs ? 2 : 1;
  const int64_t part = part_steps((p.k + kStep - 1) / kStep, p.c.dtype == bf16);
  const Blocks blocks{p.m};
  float *left_memory = static_cast<float*>(scratch), *right = left_memory + left_floats(part);
  for (int64_t j0 = 0; j0 < p.n; j0 += kColumns) {
    const int64_t cols = std::min(kColumns, p.n - j0);
    for (int64_t k0 = 0; k0 < p.k; k0 += kStep * part) {
      const int64_t inner = std::min(kStep * part, p.k - k0), steps = (inner + kStep - 1) / kStep,
                    panel = panel_floats(steps);
      const bool in_place = reads_in_place<kPairs>(p.a, inner, p.n);
      pack_right<kPairs>(right, p.b.from(k0, j0), inner, cols, steps);
      const Start start = k0 > 0 || p.accumulate
                              ? Start{static_cast<const float*>(p.c.data), p.c.ld}
                              : Start{static_cast<const float*>(p.bias), 0};
      for (int64_t block = 0; block < blocks.count; ++block) {
        const int64_t i = blocks.begin(block), end = blocks.begin(block + 1), rows = end - i;
        const GemmOperand a = p.a.from(i, k0), below = p.a.from(end, k0);
        const bool transposed = a.layout.transposed, last = block + 1 == blocks.count;
        if (!in_place && transposed && block % kGroup == 0)
          pack_group<kPairs>(left_memory, p.a.from(0, k0), blocks, block, inner, steps);
        const Left left = in_place     ? Left::in_place(a)
                          : transposed ? Left::packed(left_memory + block % kGroup * steps * kLanes)
                                       : pack_rows<kPairs>(left_memory, a, rows, inner, steps);
        const int64_t next_rows = last ? 0 : blocks.begin(block + 2) - end;
        for (int64_t j = 0; j < cols; j += kWidth) {
          if (!transposed && !last)
            fetch_rows(below, next_rows * j / cols, next_rows * std::min(j + kWidth, cols) / cols,
                       inner);
          const int64_t live = std::min(kWidth, cols - j);
          const auto& kernels = live > kLanes ? kBlocks<kPairs, 2> : kBlocks<kPairs, 1>;
          kernels[block_index(rows)](steps, left, right + j / kWidth * panel, start.at(i, j0 + j),
                                     p.c.from(i, j0 + j),
                                     first_lanes(live > kLanes ? live - kLanes : live));
        }
      }
    }
  }
}

// 14 rows by 2 vectors of doubles.
using Doubles = Panels<double, 64, 14, 2>;

int64_t scratch_bytes(DType dtype, int64_t m, int64_t n, int64_t k) {
  if (dtype == f64) return Doubles::scratch_bytes(m, n, k);
  const int64_t steps = up_to_multiple(std::min(k, kLongestBf16Inner), kLanes);
  const int64_t panels = (std::min(n, kColumns) + kWidth - 1) / kWidth;
  return 4 * (left_floats(steps) + panels * panel_floats(steps));
}

void round_row(bfloat16* to, const float* from, int64_t n, float factor) {
  const __m512 scale = _mm512_set1_ps(factor);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 live = first_lanes(n - i);
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(live, from + i), scale);
    _mm256_mask_storeu_epi16(to + i, live, rounded<true>(x));
  }
}

void product(const GemmProduct& p, void* scratch) {
  p.c.dtype == f64 ? Doubles::product(p, scratch) : multiply<false>(p, scratch);
}

double keep_busy(DType dtype, int64_t rounds) {
  return dtype == f64 ? multiply_adds<double, 64>(rounds) : multiply_adds<float, 64>(rounds);
}

double keep_pairs_busy(DType, int64_t rounds) {
  constexpr int kChains = 24;  // the instruction takes longer than a multiply-add
  __m512 sums[kChains] = {};
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], ones, ones);
      asm volatile("" : "+v"(sums[i]));  // otherwise the compiler would see that all are equal
    }
  }
  return 4.0 * kChains * kLanes * static_cast<double>(rounds);
}

bool has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

const GemmUnit* avx512_bf16_unit() {
  static const GemmUnit unit{
      "avx512_bf16", "AVX-512 with bf16", [](DType dtype) { return dtype == bf16; },
      nullptr,       scratch_bytes,       multiply<true>,
      round_row,     keep_pairs_busy};
  static const bool there = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return there ? &unit : nullptr;
}

const GemmUnit* avx512_unit() {
  static const GemmUnit unit{"avx512", "AVX-512",     [](DType) { return true; },
                             nullptr,  scratch_bytes, product,
                             nullptr,  keep_busy};
  static const bool there = has_avx512();
  return there ? &unit : nullptr;
}

}  // namespace ink

INK_END_TARGET
#else

namespace ink {

const GemmUnit* avx512_bf16_unit() { return nullptr; }
const GemmUnit* avx512_unit() { return nullptr; }

}  // namespace ink

#endif
