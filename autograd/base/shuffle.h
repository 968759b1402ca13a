// INK_SHUFFLE puts lanes of two vectors in a new order. GCC 11 and Clang have different builtins.
#pragma once

/// The lanes of a and b with the given numbers, b's counted from a's number of lanes on. A macro,
/// because vectors wider than the processor's should not be passed to functions, and because a
/// template would drop the alignment of a vector's type.
#ifdef __clang__
#define INK_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define INK_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype(a < b){__VA_ARGS__})
#endif
