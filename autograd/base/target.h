// Functions for a processor that the rest of the file is not compiled for.
//
//   INK_BEGIN_TARGET("avx512f,avx512bw")
//   ...
//   INK_END_TARGET
//
// Include headers before INK_BEGIN_TARGET, because a shared header's functions must be compiled the
// same in every file. Only functions that are local to the file (gemm/pack.h) may come after it.
#pragma once

#define INK_PRAGMA(...) _Pragma(#__VA_ARGS__)
#ifdef __clang__
#define INK_BEGIN_TARGET(features) \
  INK_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define INK_END_TARGET INK_PRAGMA(clang attribute pop)
#else
#define INK_BEGIN_TARGET(features) INK_PRAGMA(GCC push_options) INK_PRAGMA(GCC target(features))
#define INK_END_TARGET INK_PRAGMA(GCC pop_options)
// GCC 11 and 12 warn about values that their own intrinsics leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
