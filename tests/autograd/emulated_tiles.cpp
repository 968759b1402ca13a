// gemm/amx.cpp with tiles that AVX-512 computes, so that its packing and its blocks are tested on
// processors without a tile unit.
#include "tests/autograd/emulated_tiles.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(INKLING_NO_AMX)
#include <immintrin.h>

#include <cstring>

#include "autograd/base/target.h"

#undef INKLING_THIS_MACHINE  // which may lack what the file is compiled for
#define INK_EMULATED [[gnu::target("avx512f,avx512bw,avx512bf16")]] static inline

namespace {

struct Tile {
  __m512i rows[16];
};
thread_local Tile tiles[8];

INK_EMULATED void load(int tile, const void* from, int64_t stride) {
  for (int64_t i = 0; i < 16; ++i)
    std::memcpy(&tiles[tile].rows[i], static_cast<const char*>(from) + i * stride, 64);
}
INK_EMULATED void store(int tile, void* to, int64_t stride) {
  for (int64_t i = 0; i < 16; ++i)
    std::memcpy(static_cast<char*>(to) + i * stride, &tiles[tile].rows[i], 64);
}
INK_EMULATED __m512 first(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
INK_EMULATED __m512 second(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}
// c += a b, where row k of b has a pair of elements for each column. As Intel's manual says: the
// first and the second elements of pairs are summed apart, and denormals are 0.
INK_EMULATED void multiply_add(int c, int a, int b) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // denormals are 0, of operands and of results
  for (int i = 0; i < 16; ++i) {
    int pairs[16];
    std::memcpy(pairs, &tiles[a].rows[i], 64);
    __m512 firsts = _mm512_setzero_ps(), seconds = firsts;
    for (int k = 0; k < 16; ++k) {
      const __m512i x = _mm512_set1_epi32(pairs[k]), y = tiles[b].rows[k];
      firsts = _mm512_fmadd_ps(first(x), first(y), firsts);
      seconds = _mm512_fmadd_ps(second(x), second(y), seconds);
    }
    const __m512 sum = _mm512_add_ps(firsts, seconds);
    tiles[c].rows[i] =
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(tiles[c].rows[i]), sum));
  }
  _mm_setcsr(before);
}
INK_EMULATED void clear(int tile) { std::memset(&tiles[tile], 0, sizeof(Tile)); }

}  // namespace

#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_zero
#undef _tile_loadconfig
#undef _tile_release
#define _tile_loadd load
#define _tile_stored store
#define _tile_dpbf16ps multiply_add
#define _tile_zero clear
#define _tile_loadconfig(config) static_cast<void>(config)
#define _tile_release() static_cast<void>(0)
#define amx_unit unit_of_real_tiles
#include "autograd/gemm/amx.cpp"

namespace ink {

const GemmUnit* emulated_tiles_unit() {
  if (avx512_bf16_unit() == nullptr) return nullptr;
  static const GemmUnit unit{"emulated_tiles",
                             "AMX tiles, emulated",
                             [](DType dtype) { return dtype != f64; },
                             nullptr,
                             scratch_bytes,
                             product,
                             avx512_bf16_unit()->round_row,
                             keep_busy};
  return &unit;
}

}  // namespace ink
#else

namespace ink {

const GemmUnit* emulated_tiles_unit() { return nullptr; }

}  // namespace ink

#endif
