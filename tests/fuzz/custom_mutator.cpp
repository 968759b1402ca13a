// Half of libFuzzer's changes are made by mutate.cpp, which knows the values of JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* bytes, size_t size, size_t most);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t size, size_t most, unsigned seed) {
  if (seed % 2 == 0) return LLVMFuzzerMutate(bytes, size, most);
  static const std::vector<std::string> none;
  std::string text(ink::fuzz::view_of(bytes, size));
  ink::fuzz::Mutator(none, none, seed).change(text);
  if (text.empty()) return LLVMFuzzerMutate(bytes, size, most);
  size = std::min(most, text.size());
  std::memcpy(bytes, text.data(), size);
  return size;
}
