// Lanes of two vectors in a new order: GCC 11 has one builtin for it, Clang another.
#pragma once

/// The lanes of a and b with the given numbers, b's counted from a's number of lanes on. A macro,
/// because vectors wider than the processor's are better not passed, and because a template would
/// forget how a vector's type is aligned.
#ifdef __clang__
#define INK_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define INK_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype(a < b){__VA_ARGS__})
#endif
