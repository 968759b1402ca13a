// The list of units, and the choice among them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/units.h"
#include "autograd/kernels/copy.h"

namespace ink {

// Each is defined in the unit's file. It returns null if the processor lacks the unit, or if the
// system does not let us use it.
const GemmUnit* amx_unit();
const GemmUnit* avx512_bf16_unit();
const GemmUnit* avx512_unit();
const GemmUnit* avx2_unit();
const GemmUnit* neon_unit();

namespace {

// All units, in the order in which they are preferred. The choice is the same at every start: it
// reads no clock, because another unit gives other bits. `inkling info` shows the rates of this
// machine, and so whether another order would be faster here.
constexpr std::array<std::pair<std::string_view, const GemmUnit* (*)()>, 6> kUnits = {
    {{"amx", amx_unit},
     {"avx512_bf16", avx512_bf16_unit},
     {"avx512", avx512_unit},
     {"avx2", avx2_unit},
     {"neon", neon_unit},
     {"default", openblas_unit}}};

}  // namespace

const std::vector<const GemmUnit*>& gemm_units() {
  static const std::vector<const GemmUnit*> units = [] {
    std::vector<const GemmUnit*> found;
    for (const auto& [name, unit] : kUnits) {
      if (unit() != nullptr) found.push_back(unit());
    }
    return found;
  }();
  return units;
}

std::vector<double> gemm_rates(DType dtype, const std::vector<const GemmUnit*>& units) {
  constexpr int64_t kSide = 384, kInner = 96;  // what is packed is used 384 times
  constexpr int kRounds = 5;
  using Clock = std::chrono::steady_clock;
  std::vector<double> rates(units.size());
  // All threads are at work, because then a core may be slower than alone; the first one's time
  // counts. Units take turns, so that what disturbs one disturbs all.
  parallel_for(max_threads(), 1, [&](int64_t thread, int64_t) {
    Array a = Array::empty({kSide, kInner}, dtype),
          c = Array::empty({kSide, kSide}, dtype == f64 ? f64 : f32);
    cpu::fill(a, 1);
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < units.size(); ++i) {
        const GemmUnit& unit = *units[i];
        if (!unit.multiplies(dtype)) continue;
        Array scratch =
            Array::empty({unit.scratch_bytes(dtype, kSide, kSide, kInner)}, DType::boolean);
        const GemmOperand operand = operand_of(a);
        const auto start = Clock::now();
        unit.product({kSide, kSide, kInner, operand, operand.transposed(), result_of(c)},
                     scratch.mutable_data<bool>());
        const std::chrono::duration<double> time = Clock::now() - start;
        if (thread == 0) rates[i] = std::max(rates[i], 2 * kSide * kSide * kInner / time.count());
      }
    }
  });
  return rates;
}

namespace {

// The place in the list of the first unit that the environment allows.
size_t first_allowed() {
  const char* name = std::getenv("INKLING_CPU_CAPABILITY");
  std::string names;
  for (size_t i = 0; i < kUnits.size(); ++i) {
    const std::string_view unit = kUnits[i].first;
    if (name != nullptr && unit == name) return i;
    names += (i == 0 ? "" : i + 1 == kUnits.size() ? " or " : ", ") + std::string(unit);
  }
  INK_CHECK(name == nullptr, "INKLING_CPU_CAPABILITY: expected ", names, ", got ", name);
  return 0;
}

// The first unit from this place on that has products of a dtype, or small ones.
const GemmUnit* first_from(size_t place, DType dtype, bool small) {
  for (; place < kUnits.size(); ++place) {
    const GemmUnit* unit = kUnits[place].second();
    if (unit != nullptr && unit->multiplies(dtype) && (!small || unit->pays == nullptr))
      return unit;
  }
  return nullptr;
}

size_t place_of(DType dtype) { return dtype == f32 ? 0 : dtype == f64 ? 1 : 2; }

// [place_of(dtype)][small]
using Choice = std::array<std::array<const GemmUnit*, 2>, 3>;

// The units for each dtype, by the place from which they are looked for.
const Choice& choice_from(size_t place) {
  static const auto choices = [] {
    std::array<Choice, kUnits.size()> all;
    for (size_t i = 0; i < all.size(); ++i) {
      for (const DType dtype : {f32, f64, bf16}) {
        for (const bool small : {false, true})
          all[i][place_of(dtype)][small] = first_from(i, dtype, small);
      }
    }
    return all;
  }();
  return choices[place];
}

}  // namespace

const GemmUnit* gemm_unit(DType dtype, bool small) {
  static const size_t allowed = first_allowed();
  size_t place = allowed;
  if (const GemmUnit* first = context().first_unit) {
    place = 0;
    while (kUnits[place].first != first->name) ++place;
  }
  return choice_from(place)[place_of(dtype)][small];
}

std::string gemm_backend() {
  std::string names;
  for (const GemmUnit* unit : gemm_units()) {
    std::string dtypes;
    for (const DType dtype : {f32, bf16, f64}) {
      const GemmUnit* its = gemm_unit(dtype);
      if (unit == (its != nullptr ? its : openblas_unit()))
        dtypes += (dtypes.empty() ? "" : ", ") + std::string(name_of(dtype));
    }
    if (!dtypes.empty()) names += unit->title + (" for " + dtypes) + "; ";
  }
  names += openblas_version();
#ifdef INKLING_LEVEL  // a portable build: which of its libraries the loader picked
  names += "; row kernels for " INKLING_LEVEL;
#endif
  return names;
}

}  // namespace ink
