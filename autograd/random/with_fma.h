// Loops of std::fma that are fast in a build for any processor.
#pragma once

#include <cstdint>  // says if this is glibc

// In a build for any x86-64, std::fma is a call, ten times as slow as the instruction. So a
// function with INK_WITH_FMA is compiled for processors that have the instruction, too, with all
// that is inlined into it. glibc chooses when the program is loaded.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__FMA__)
#define INK_WITH_FMA __attribute__((target_clones("default", "fma")))
#else
#define INK_WITH_FMA
#endif
