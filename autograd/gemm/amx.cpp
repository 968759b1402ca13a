// Matrix products on the tile unit of recent Intel processors (AMX, bf16).
//
// bf16 operands are used as they are. An f32 x is split into three bf16, x = x1 + x2 + x3, each the
// rounded remainder of those before it, with 8 of the 24 bits. Of the nine products in a b, the six
// with indices i + j <= 4 are computed. The other three are below 2^-26 of a b, less than f32's own
// rounding. Products of bf16 are exact in f32 and sums run in f32, so the result is as good as that
// of f32 arithmetic (test_gemm_units measures both against f64), at 6/16 of its multiplications.
// AVX-512 computes a block instead if three bf16 cannot represent an element (infinity, NaN, a
// number that rounds to infinity), or if a row or column is so small that its pieces or their
// products are denormal, which the unit treats as 0.
//   Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
//   Higher-Precision Computations, 2019.
#include <algorithm>
#include <vector>

#include "autograd/base/target.h"
#include "autograd/gemm/units.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(INKLING_NO_AMX) && \
    (defined(__AMX_BF16__) || !defined(INKLING_THIS_MACHINE))
#include <sys/syscall.h>
#include <unistd.h>

INK_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")

#include "autograd/gemm/pack.h"

namespace ink {

const GemmUnit* avx512_bf16_unit();  // gemm/avx512.cpp
const GemmUnit* avx512_unit();

namespace {

// A tile is 16 rows of 64 bytes. A tile of the left operand holds 16 rows of 32 bf16 along the
// inner dimension. A tile of the right one holds 16 columns of 32, pair by pair: row r has elements
// 2 r and 2 r + 1 of every column. Seen as matrices of 32-bit pairs, one is the transpose of the
// other.
constexpr int64_t kTile = 16, kInner = 32, kTileElements = kTile * kInner;
// A block of the result has 2 x 2 tiles. A panel is all that one row (column) of blocks reads of
// the left (right) operand: for every 32 of the inner dimension, two tiles of each piece.
constexpr int64_t kBlock = 2 * kTile;
constexpr int64_t kPiece = kBlock * kInner;      // elements of two tiles, of one piece
constexpr int64_t kRows = 128, kColumns = 2048;  // of packed panels: in the L2 and L3 caches
constexpr int64_t kLongestPart = 512;            // of the inner dimension, with three pieces
constexpr int64_t kCachedBytes = 1 << 20;        // right panels that the L2 cache keeps

enum class Side { left, right };

// A packed operand: for each panel and each 32 of the inner dimension, P pieces of two tiles.
template <int P>
struct Packed {
  uint16_t* data;
  int64_t steps;

  // Row r of the first piece's tile number `tile`, which holds 16 rows (left) or columns (right).
  uint16_t* row(int64_t tile, int64_t step, int64_t r) const {
    return data + (tile / 2 * steps + step) * P * kPiece + tile % 2 * kTileElements + r * kInner;
  }
};

// Stores one vector in P pieces, kPiece elements apart.
template <int P, class V>
[[gnu::always_inline]] inline void store_pieces(uint16_t* to, V rest, Seen& seen, __m512& largest) {
  if (P > 1) rest.note_size(largest);
  for (int piece = 0; piece < P; ++piece) {
    _mm512_store_si512(to + piece * kPiece, rest.take_piece());
    if (P > 1 && piece == 0) rest.note_not_finite(seen);
  }
}

// The largest |x| so far of the lines being packed. A vector in memory is a part of one line
// (kAlong), or an element of each of 16.
template <bool kAlong>
struct Largest {
  __m512 of[kAlong ? kTile : kColumns / kTile];
  int64_t count;

  explicit Largest(int64_t n) : count(n) { std::fill_n(of, n, _mm512_setzero_ps()); }
  void move_to(Seen& seen) {
    for (int64_t i = 0; i < count; ++i) {
      kAlong ? seen.add_line(of[i]) : seen.add_lines(of[i]);
      of[i] = _mm512_setzero_ps();
    }
  }
};

// Packs vectors in memory as rows of tiles, in order: a line (or two) is read from end to end.
template <int P, class T, bool kAlong>
Seen pack_rows(const Packed<P> to, const Lines<T, kAlong> from, int64_t vectors, int64_t chunks) {
  Seen seen = Seen::nothing();
  Largest<kAlong> largest(kAlong ? 1 : chunks);
  for (int64_t r = 0; r < vectors; ++r) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t at = chunk * (kAlong ? kInner : kTile);
      uint16_t* row =
          kAlong ? to.row(r / kTile, chunk, r % kTile) : to.row(chunk, r / kTile, r % kTile);
      __m512& of = largest.of[kAlong ? 0 : chunk];
      if (from.whole(r, at)) {
        store_pieces<P>(row, from.template vector<true>(r, at), seen, of);
      } else {
        store_pieces<P>(row, from.template vector<false>(r, at), seen, of);
      }
    }
    if (P > 1 && kAlong) largest.move_to(seen);
  }
  if (P > 1) largest.move_to(seen);
  return seen;
}

// Packs vectors in memory as columns of tiles: 16 of them are transposed in registers.
template <int P, bool kWhole, class T, bool kAlong>
void pack_transposed_tile(uint16_t* to, const Lines<T, kAlong>& from, int64_t r0, int64_t at,
                          Seen& seen, __m512* largest) {
  __m512i pieces[P][kTile];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kTile; ++r) {
    auto rest = from.template vector<kWhole>(r0 + r, at);
    if (P > 1) rest.note_size(largest[kAlong ? r : 0]);
    for (int piece = 0; piece < P; ++piece) {
      pieces[piece][r] = rest.take_piece();
      if (P > 1 && piece == 0) rest.note_not_finite(seen);
    }
  }
  for (int piece = 0; piece < P; ++piece) {
    transpose(pieces[piece]);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTile; ++r)
      _mm512_store_si512(to + piece * kPiece + r * kInner, pieces[piece][r]);
  }
}
template <int P, class T, bool kAlong>
Seen pack_transposed(const Packed<P> to, const Lines<T, kAlong> from, int64_t vectors,
                     int64_t chunks) {
  Seen seen = Seen::nothing();
  Largest<kAlong> largest(kAlong ? kTile : chunks);
  for (int64_t r = 0; r < vectors; r += kTile) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t at = chunk * (kAlong ? kInner : kTile);
      uint16_t* tile = kAlong ? to.row(r / kTile, chunk, 0) : to.row(chunk, r / kTile, 0);
      __m512* of = largest.of + (kAlong ? 0 : chunk);
      if (from.whole(r + kTile - 1, at)) {
        pack_transposed_tile<P, true>(tile, from, r, at, seen, of);
      } else {
        pack_transposed_tile<P, false>(tile, from, r, at, seen, of);
      }
    }
    if (P > 1 && kAlong) largest.move_to(seen);
  }
  if (P > 1) largest.move_to(seen);
  return seen;
}

// Can pieces represent these operands? They cannot if an element is not finite, or if pieces or
// their products are denormal. (The third piece of a line's largest element is 2^-24 of it, and
// 2^-126 is the smallest normal number.)
bool pieces_suffice(const Seen& left, const Seen& right) {
  const float a = _mm512_reduce_min_ps(left.least), b = _mm512_reduce_min_ps(right.least);
  return left.all_finite() && right.all_finite() && std::min({a, b, a * b}) >= 0x1p-102f;
}

// Packs `outer` rows (left) or columns (right) of `inner` elements each.
template <int P, Side side>
Seen pack(uint16_t* to, const GemmOperand& x, int64_t outer, int64_t inner) {
  const int64_t tiles = 2 * ((outer + kBlock - 1) / kBlock), steps = (inner + kInner - 1) / kInner;
  const Packed<P> packed{to, steps};
  const auto typed = [&]<class T>(const T* data) {
    if (x.layout.transposed == (side == Side::right)) {
      const Lines<T, true> lines{data, x.layout.ld, outer, inner};
      return side == Side::left ? pack_rows(packed, lines, kTile * tiles, steps)
                                : pack_transposed(packed, lines, kTile * tiles, steps);
    }
    const Lines<T, false> lines{data, x.layout.ld, inner, outer};
    return side == Side::right ? pack_rows(packed, lines, kTile * steps, tiles)
                               : pack_transposed(packed, lines, kTile * steps, tiles);
  };
  if constexpr (P == 1) {  // otherwise both operands are f32
    if (x.dtype == bf16) return typed(static_cast<const bfloat16*>(x.data));
  }
  return typed(static_cast<const float*>(x.data));
}

// Tiles 0 to 3 sum a block of the result; 4 and 5 are the left operand's, 6 and 7 the right one's.
[[gnu::always_inline]] inline void load_left(const uint16_t* piece) {
  _tile_loadd(4, piece, 2 * kInner);
  _tile_loadd(5, piece + kTileElements, 2 * kInner);
}
[[gnu::always_inline]] inline void load_right(const uint16_t* piece) {
  _tile_loadd(6, piece, 2 * kInner);
  _tile_loadd(7, piece + kTileElements, 2 * kInner);
}
[[gnu::always_inline]] inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// All products of 32 of the inner dimension, small ones first.
template <int P>
[[gnu::always_inline]] inline void multiply_step(const uint16_t* a, const uint16_t* b) {
  if constexpr (P == 1) {
    load_left(a), load_right(b), multiply_tiles();
  } else {
    load_left(a), load_right(b + 2 * kPiece), multiply_tiles();  // a1 b3
    load_right(b + kPiece), multiply_tiles();                    // a1 b2
    load_left(a + kPiece), multiply_tiles();                     // a2 b2
    load_right(b), multiply_tiles();                             // a2 b1
    load_left(a + 2 * kPiece), multiply_tiles();                 // a3 b1
    load_left(a), multiply_tiles();                              // a1 b1
  }
}

// One block of the result.
template <int P>
void multiply_block(int64_t steps, const uint16_t* a, const uint16_t* b, Start start, float* c,
                    int64_t ld) {
  asm volatile("" ::: "memory");  // the compiler does not know what tile instructions read
  if (start.data != nullptr) {
    const float* below = start.data + kTile * start.ld;
    _tile_loadd(0, start.data, 4 * start.ld);
    _tile_loadd(1, start.data + kTile, 4 * start.ld);
    _tile_loadd(2, below, 4 * start.ld);
    _tile_loadd(3, below + kTile, 4 * start.ld);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step)
    multiply_step<P>(a + step * P * kPiece, b + step * P * kPiece);
  float* below = c + kTile * ld;
  _tile_stored(0, c, 4 * ld);
  _tile_stored(1, c + kTile, 4 * ld);
  _tile_stored(2, below, 4 * ld);
  _tile_stored(3, below + kTile, 4 * ld);
  asm volatile("" ::: "memory");
}

// The same for rows x cols of a block, at element `at` of c.
template <int P>
void multiply_part(int64_t steps, const uint16_t* a, const uint16_t* b, Start start,
                   const GemmResult& c, int64_t at, int64_t rows, int64_t cols) {
  if (c.dtype != bf16 && rows == kBlock && cols == kBlock)
    return multiply_block<P>(steps, a, b, start, static_cast<float*>(c.data) + at, c.ld);
  alignas(64) float block[kBlock * kBlock];
  for (int64_t i = 0; i < rows && start.data != nullptr; ++i)
    std::copy_n(start.data + i * start.ld, cols, block + i * kBlock);
  multiply_block<P>(steps, a, b, start.data != nullptr ? Start{block, kBlock} : Start{}, block,
                    kBlock);
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = block + i * kBlock;
    if (c.dtype != bf16) {
      std::copy_n(from, cols, static_cast<float*>(c.data) + at + i * c.ld);
      continue;
    }
    const auto row = reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_load_ps(from + 16), _mm512_load_ps(from)));
    const auto live = static_cast<__mmask32>((uint64_t{1} << cols) - 1);
    _mm512_mask_storeu_epi16(static_cast<bfloat16*>(c.data) + at + i * c.ld, live, row);
  }
}

int64_t packed_rows(int64_t m) { return std::min(kRows, up_to_multiple(m, kBlock)); }

// Cuts the inner dimension into equal parts so that a left and a right panel fit the L1 and L2
// caches together.
int64_t inner_part(int64_t k, int pieces) {
  const int64_t longest = pieces == 1 ? kLongestBf16Inner : kLongestPart;
  const int64_t parts = (k + longest - 1) / longest;
  return up_to_multiple((k + parts - 1) / parts, kInner);
}

// A product on AVX-512, which takes any f32.
void multiply_elsewhere(const GemmProduct& part) {
  const GemmUnit& unit = *avx512_unit();
  struct alignas(64) Line {
    char bytes[64];
  };
  const int64_t bytes = unit.scratch_bytes(f32, part.m, part.n, part.k);
  std::vector<Line> scratch(static_cast<size_t>(bytes) / 64 + 1);
  unit.product(part, scratch.data());
}

template <int P>
void multiply(const GemmProduct& p, uint16_t* scratch) {
  const int64_t m = p.m, n = p.n, k = p.k;
  const int64_t part = inner_part(k, P), panel = P * kBlock;  // elements of a panel, per inner one
  uint16_t *left = scratch, *right = left + packed_rows(m) * P * part;
  for (int64_t j0 = 0; j0 < n; j0 += kColumns) {
    const int64_t cols = std::min(kColumns, n - j0);
    for (int64_t k0 = 0; k0 < k; k0 += part) {
      const int64_t inner = std::min(part, k - k0), padded = up_to_multiple(inner, kInner);
      const Seen in_right = pack<P, Side::right>(right, p.b.from(k0, j0), cols, inner);
      for (int64_t i0 = 0; i0 < m; i0 += kRows) {
        const int64_t rows = std::min(kRows, m - i0);
        const Seen in_left = pack<P, Side::left>(left, p.a.from(i0, k0), rows, inner);
        const bool adds = k0 > 0 || p.accumulate;
        const Start from = adds ? Start{static_cast<const float*>(p.c.data), p.c.ld}
                                : Start{static_cast<const float*>(p.bias), 0};
        if (P > 1 && !pieces_suffice(in_left, in_right)) {
          multiply_elsewhere({rows, cols, inner, p.a.from(i0, k0), p.b.from(k0, j0),
                              p.c.from(i0, j0), adds, adds ? nullptr : from.at(0, j0).data});
          continue;
        }
        const auto part_of_result = [&](int64_t i, int64_t j) {
          multiply_part<P>(padded / kInner, left + i / kBlock * panel * padded,
                           right + j / kBlock * panel * padded, from.at(i0 + i, j0 + j), p.c,
                           (i0 + i) * p.c.ld + j0 + j, std::min(kBlock, rows - i),
                           std::min(kBlock, cols - j));
        };
        if (2 * panel * padded * cols / kBlock <= kCachedBytes) {  // row by row, as in memory
          for (int64_t i = 0; i < rows; i += kBlock) {
            for (int64_t j = 0; j < cols; j += kBlock) part_of_result(i, j);
          }
        } else {  // a right panel is fetched once
          for (int64_t j = 0; j < cols; j += kBlock) {
            for (int64_t i = 0; i < rows; i += kBlock) part_of_result(i, j);
          }
        }
      }
    }
  }
}

// Sets the shape of all eight tiles; the destructor makes the unit idle again.
struct TileConfig {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } memory;

  TileConfig() {
    asm volatile("" : : "r"(&memory) : "memory");  // g++ believes that only 8 bytes are read
    _tile_loadconfig(&memory);
  }
  ~TileConfig() { _tile_release(); }
};

// An f32 product takes six of bf16.
double keep_busy(DType dtype, int64_t rounds) {
  const TileConfig config;
  for (int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  const double flops = 4.0 * 2 * kTile * kTile * kInner * static_cast<double>(rounds);
  return dtype == bf16 ? flops : flops / 6;
}

bool ask_for_tiles() {
  __builtin_cpu_init();
  unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
  asm("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  const bool has_unit = (edx >> 22 & 1) && (edx >> 24 & 1);   // AMX-BF16, AMX-TILE
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return has_unit && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Packing takes k (m + n) steps, the product m n k. f32 operands are packed in three pieces, which
// only many products of each element repay: m = n = k = 128 takes as long as on AVX-512.
bool pays(DType dtype, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kLeastWork = 1 << 16, kLeastProducts = 96;
  if (m * n * k < kLeastWork || std::min({m, n, k}) < kTile) return false;
  return dtype == bf16 || m * n >= kLeastProducts * (m + n);
}

int64_t scratch_bytes(DType, int64_t m, int64_t n, int64_t k) {
  const int64_t cols = std::min(kColumns, up_to_multiple(n, kBlock));
  return std::max(3 * inner_part(k, 3), inner_part(k, 1)) * 2 * (packed_rows(m) + cols);
}

void product(const GemmProduct& p, void* scratch) {
  const TileConfig config;
  auto* packed = static_cast<uint16_t*>(scratch);
  p.dtype() == bf16 ? multiply<1>(p, packed) : multiply<3>(p, packed);
}

}  // namespace

const GemmUnit* amx_unit() {
  static const bool there = ask_for_tiles();
  if (!there) return nullptr;
  static const GemmUnit unit{"amx",
                             "AMX tiles",
                             [](DType dtype) { return dtype != f64; },
                             pays,
                             scratch_bytes,
                             product,
                             avx512_bf16_unit()->round_row,
                             keep_busy};
  return &unit;
}

}  // namespace ink

INK_END_TARGET
#else

namespace ink {

const GemmUnit* amx_unit() { return nullptr; }

}  // namespace ink

#endif
