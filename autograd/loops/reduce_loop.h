// The one loop behind every reduction: any dimensions of a tensor of any strides, without a copy.
//
// A type R says what is computed. Its functions work on many accumulators side by side, so that the
// compiler turns them into vector code:
//   Acc                               the state after the elements seen so far
//   none()                            the state after no elements
//   one(acc, width, p, step)          adds p[c step] to acc[c], for each c below width
//   eight(acc, width, p, step, row)   adds p[c step + i row] to acc[c] for i = 0 ... 7, as a tree:
//                                     fast, with three roundings where a chain has eight
//   merge(acc, other)                 adds another state to acc
//   repeat(acc, times)                the state if each element had come `times` times
// The accumulators are those of neighbouring outputs (sums of columns), or several of one output,
// merged at the end (sums of rows).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <type_traits>

#include "autograd/base/parallel.h"
#include "autograd/loops/lanes.h"
#include "autograd/memory/array.h"

namespace ink {

/// The dimensions of x that are reduced, or those that are kept, the one with the largest step
/// first. A step of 0 counts as the largest. Neighbours are joined where one step serves both.
struct ReduceAxes {
  Shape sizes, steps, out_steps;  // steps in elements of x, and of y

  void add(int64_t size, int64_t step, int64_t out_step) {
    const auto larger = [](int64_t a, int64_t b) { return b != 0 && (a == 0 || a > b); };
    int64_t at = sizes.size();
    while (at > 0 && larger(step, steps[at - 1])) --at;
    sizes.insert(at, size);
    steps.insert(at, step);
    out_steps.insert(at, out_step);
  }

  void join() {
    for (int64_t d = sizes.size() - 1; d > 0; --d) {
      if (steps[d - 1] != steps[d] * sizes[d] || out_steps[d - 1] != out_steps[d] * sizes[d])
        continue;
      sizes[d] *= sizes[d - 1];
      sizes.erase(d - 1);
      steps.erase(d - 1);
      out_steps.erase(d - 1);
    }
  }

  struct Axis {
    int64_t size = 1, step = 0, out_step = 0;
  };
  Axis pop(int64_t d) {
    const Axis axis{sizes[d], steps[d], out_steps[d]};
    sizes.erase(d);
    steps.erase(d);
    out_steps.erase(d);
    return axis;
  }
  Axis pop_inner() { return sizes.empty() ? Axis() : pop(sizes.size() - 1); }

  /// Takes the longest axis in place of a shorter one.
  bool exchange(Axis& axis) {
    const auto longest = std::max_element(sizes.begin(), sizes.end());
    if (longest == sizes.end() || *longest <= axis.size) return false;
    const Axis taken = pop(longest - sizes.begin());
    if (axis.size != 1) add(axis.size, axis.step, axis.out_step);
    axis = taken;
    return true;
  }

  /// The offsets of combination i of indices into these dimensions.
  struct Offsets {
    int64_t x = 0, y = 0;
  };
  Offsets offsets(int64_t i) const {
    Offsets at;
    for (int64_t d = sizes.size() - 1; d >= 0; --d) {
      const int64_t k = d > 0 ? i % sizes[d] : i;
      at.x += k * steps[d];
      at.y += k * out_steps[d];
      if (d > 0) i /= sizes[d];
    }
    return at;
  }
};

/// The order in which x is reduced into y: blocks of neighbouring outputs ("columns"), each with
/// runs of elements to combine ("rows"). The rows are split into parts if threads outnumber blocks.
struct ReducePlan {
  static constexpr int64_t kBlock = 512;    // accumulators side by side, at most
  static constexpr int64_t kLanes = 16;     // accumulators of one output
  static constexpr int64_t kShortRow = 32;  // a shorter row gets one accumulator
  static constexpr int64_t kLongRow = 512;  // a shorter row gets half of the lanes
  static constexpr int64_t kFew = 64;       // of a block: with fewer, the loop over blocks is slow

  ReduceAxes outer, outer_rows;
  ReduceAxes::Axis columns, rows;
  int64_t repeats = 1;  // how often each element counts: the sizes of reduced dims with step 0
  int64_t lanes;        // a power of two times the columns where rows follow each other without gap
  bool one_by_one;      // each output has all lanes to itself, and its elements follow each other
  bool one_run;         // all of them: they are not several runs
  int64_t blocks, units, total_rows, parts, grain;

  /// y has x's dimensions, the reduced ones with size 1.
  ReducePlan(const Array& y, const Array& x) {
    for (int64_t d = 0; d < x.dim(); ++d) {
      const int64_t size = x.shape()[d], step = x.strides()[d];
      if (size == 1) continue;
      if (y.shape()[d] != 1) {
        outer.add(size, step, y.strides()[d]);
      } else if (step == 0 && size > 1) {
        repeats *= size;
      } else {
        outer_rows.add(size, step, 0);
      }
    }
    outer.join();
    outer_rows.join();
    rows = outer_rows.pop_inner();
    if (columns_first()) columns = outer.pop_inner();
    // A block of few elements takes a longer dimension in place of a short one.
    if (columns.size * rows.size < kFew && (columns.size == 1 || !outer.exchange(columns)))
      outer_rows.exchange(rows);
    total_rows = outer_rows.sizes.numel() * rows.size;
    if (columns.size == 1) columns.step = rows.step;
    const bool gapless = rows.step == columns.size * columns.step;
    const int64_t fold = gapless ? kLanes / std::max<int64_t>(columns.size, 1) : 0;
    lanes = columns.size * static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(fold)));
    lanes = std::max(lanes, columns.size);
    one_by_one = columns.size == 1 && columns.step == 1 && lanes == kLanes;
    one_run = outer_rows.sizes.empty();
    blocks = (columns.size + kBlock - 1) / kBlock;
    units = outer.sizes.numel() * blocks;
    const int64_t work = total_rows * std::min(columns.size, kBlock);
    const int64_t wanted = units == 0 || max_threads() == 1 ? 1 : 4 * max_threads() / units;
    parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, work / kGrain));
    grain = kGrain / std::max<int64_t>(work, 1);
  }

  /// Block number i: its width, and where its first column lies.
  struct Unit {
    int64_t width, x, y;
  };
  Unit unit(int64_t i) const {
    const int64_t line = blocks == 1 ? i : i / blocks;  // divisions take longer than short rows
    const int64_t column = (i - line * blocks) * kBlock;
    const ReduceAxes::Offsets at = outer.offsets(line);
    return {std::min(kBlock, columns.size - column), at.x + column * columns.step,
            at.y + column * columns.out_step};
  }

  /// How many blocks of one output each, from number i to below `end`, lie one step apart.
  struct Neighbours {
    int64_t count, step, out_step;
  };
  Neighbours neighbours(int64_t i, int64_t end) const {
    if (outer.sizes.empty()) return {1, 0, 0};
    const int64_t size = outer.sizes.back();
    return {std::min(end - i, size - i % size), outer.steps.back(), outer.out_steps.back()};
  }

  /// The rows from begin on, below end, that lie `rows.step` apart, and where the first one is.
  struct Run {
    int64_t count, x;
  };
  Run run(int64_t begin, int64_t end) const {
    const int64_t before = begin < rows.size ? 0 : begin / rows.size;
    const int64_t row = begin - before * rows.size;
    return {std::min(rows.size - row, end - begin), outer_rows.offsets(before).x + row * rows.step};
  }

 private:
  // Neighbouring outputs share the lanes if their elements lie closer together than those of one
  // output, or if one output has too few elements for lanes of its own.
  bool columns_first() const {
    if (outer.sizes.empty()) return false;
    const int64_t step = outer.steps.back();
    return step != 0 && (rows.step == 0 || step < rows.step || rows.size < kShortRow);
  }
};

namespace detail {

// Adds `count` rows of `width` elements to acc[0 .. width). Step and Width are int64_t, or
// constants at compile time.
template <class R, class T, class Width, class Step>
void absorb_rows(typename R::Acc* acc, Width width, const T* x, Step step, int64_t count,
                 int64_t row_step) {
  for (; count >= 8; count -= 8, x += 8 * row_step) R::eight(acc, width, x, step, row_step);
  for (; count > 0; --count, x += row_step) R::one(acc, width, x, step);
}

// Adds rows begin .. end of one block of columns to acc[0 .. lanes), and what is too short for all
// lanes to rest[0 .. width).
template <class R, class T, class Width, class Lanes, class Step>
void absorb_block(typename R::Acc* acc, Lanes lanes, typename R::Acc* rest, Width width, Step step,
                  const T* x, const ReducePlan& plan, int64_t begin, int64_t end) {
  const int64_t fold = lanes / width;
  while (begin < end) {
    const ReducePlan::Run run = plan.run(begin, end);
    const int64_t count = run.count, folded = count / fold;
    const T* p = x + run.x;
    absorb_rows<R>(acc, lanes, p, step, folded, fold * plan.rows.step);
    p += folded * fold * plan.rows.step;
    if (fold > 1) absorb_rows<R>(rest, width, p, step, count - folded * fold, plan.rows.step);
    begin += count;
  }
}

// Rows begin .. end of one output, whose elements follow each other in every run. Its lanes stay in
// registers.
template <class R, class T, int64_t n_lanes>
typename R::Acc absorb_row(const T* x, const ReducePlan& plan, int64_t begin, int64_t end) {
  constexpr std::integral_constant<int64_t, 1> one;
  constexpr std::integral_constant<int64_t, n_lanes> lanes;
  typename R::Acc own[lanes], rest = R::none();  // apart: a store into a vector delays its load
  std::fill_n(own, lanes(), R::none());
  while (begin < end) {
    const ReducePlan::Run run =
        plan.one_run ? ReducePlan::Run{end - begin, begin} : plan.run(begin, end);
    const T* p = x + run.x;
    int64_t n = run.count;
    for (; n >= 8 * lanes; n -= 8 * lanes, p += 8 * lanes) R::eight(own, lanes, p, one, lanes);
    for (; n >= lanes; n -= lanes, p += lanes) R::one(own, lanes, p, one);
    for (; n > 0; --n, ++p) R::one(&rest, one, p, one);
    begin += run.count;
  }
  const auto merged = [](typename R::Acc acc, const typename R::Acc& other) {
    R::merge(acc, other);
    return acc;
  };
  return merged(join_lanes<lanes>(own, merged), rest);
}

// The same with the lanes for the length of the rows.
template <class R, class T>
typename R::Acc absorb_row(const T* x, const ReducePlan& plan, int64_t begin, int64_t end) {
  constexpr int64_t kLanes = ReducePlan::kLanes;
  return plan.rows.size < ReducePlan::kLongRow ? absorb_row<R, T, kLanes / 2>(x, plan, begin, end)
                                               : absorb_row<R, T, kLanes>(x, plan, begin, end);
}

// The same as absorb_block with what is known at compile time in the common cases.
template <class R, class T>
void absorb_part(typename R::Acc* acc, int64_t width, const T* x, const ReducePlan& plan,
                 int64_t begin, int64_t end) {
  constexpr std::integral_constant<int64_t, 1> one;
  constexpr std::integral_constant<int64_t, ReducePlan::kLanes> few;
  const int64_t lanes = plan.lanes > plan.columns.size ? plan.lanes : width;
  const int64_t step = plan.columns.step;
  if (plan.one_by_one) {
    acc[0] = absorb_row<R>(x, plan, begin, end);
    return;
  }
  std::fill_n(acc, lanes, R::none());
  if (step != 1) {
    absorb_block<R>(acc, lanes, acc, width, step, x, plan, begin, end);
  } else if (lanes == few) {
    absorb_block<R>(acc, few, acc, width, one, x, plan, begin, end);
  } else {
    absorb_block<R>(acc, lanes, acc, width, one, x, plan, begin, end);
  }
  for (int64_t half = lanes / 2; half >= width; half /= 2) {
#pragma omp simd
    for (int64_t c = 0; c < half; ++c) R::merge(acc[c], acc[c + half]);
  }
}

/// Joins at(0), ... at(7) as a tree.
template <class At, class Join>
[[gnu::always_inline]] inline auto tree_of_eight(At at, Join join) {
  return join(join(join(at(0), at(1)), join(at(2), at(3))),
              join(join(at(4), at(5)), join(at(6), at(7))));
}

/// The same for F = Extreme (folds.h), with one look for NaN per two values.
template <class F, class At>
[[gnu::always_inline]] inline typename F::Near extreme_of_eight(At at) {
  const auto best = tree_of_eight(at, [](auto a, auto b) { return F::of_numbers(a, b); });
  if constexpr (!F::Limits::has_quiet_NaN) return best;
  const auto nan = [&](int64_t i) -> int { return std::isunordered(at(i), at(i + 1)); };
  const int nans = nan(0) | nan(2) | nan(4) | nan(6);
  return nans ? F::Limits::quiet_NaN() : best;
}

}  // namespace detail

/// Reduces x (elements of T) into the shape of y: x's dimensions, the reduced ones of size 1.
/// Several threads call write(offset in y, acc, address of the first element) for the outputs.
template <class R, class T, class Write>
void reduce_loop(const Array& y, const Array& x, Write&& write) {
  using Acc = typename R::Acc;
  const ReducePlan plan(y, x);
  const T* in = x.data<T>();
  const auto finish_one = [&](const ReducePlan::Unit& unit, int64_t c, Acc& acc) {
    if (plan.repeats != 1) R::repeat(acc, plan.repeats);
    write(unit.y + c * plan.columns.out_step, acc, in + unit.x + c * plan.columns.step);
  };
  const auto finish = [&](const ReducePlan::Unit& unit, Acc* acc) {
    for (int64_t c = 0; c < unit.width; ++c) finish_one(unit, c, acc[c]);
  };
  if (plan.parts == 1) {
    parallel_for(plan.units, plan.grain, [&](int64_t begin, int64_t end) {
      std::array<Acc, static_cast<size_t>(ReducePlan::kBlock)> acc;
      for (int64_t i = begin; i < end; ++i) {
        ReducePlan::Unit unit = plan.unit(i);
        if (plan.one_by_one) {
          const ReducePlan::Neighbours next = plan.neighbours(i, end);
          for (int64_t k = 0; k < next.count; ++k, unit.x += next.step, unit.y += next.out_step) {
            Acc one = detail::absorb_row<R>(in + unit.x, plan, 0, plan.total_rows);
            finish_one(unit, 0, one);
          }
          i += next.count - 1;
          continue;
        }
        detail::absorb_part<R>(acc.data(), unit.width, in + unit.x, plan, 0, plan.total_rows);
        finish(unit, acc.data());
      }
    });
    return;
  }
  const int64_t tasks = plan.units * plan.parts;
  const std::unique_ptr<Acc[]> partial(new Acc[static_cast<size_t>(tasks * plan.kBlock)]);
  parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ReducePlan::Unit unit = plan.unit(i / plan.parts);
      const int64_t part = i % plan.parts;
      detail::absorb_part<R>(&partial[static_cast<size_t>(i * plan.kBlock)], unit.width,
                             in + unit.x, plan, plan.total_rows * part / plan.parts,
                             plan.total_rows * (part + 1) / plan.parts);
    }
  });
  for (int64_t i = 0; i < plan.units; ++i) {
    const ReducePlan::Unit unit = plan.unit(i);
    Acc* acc = &partial[static_cast<size_t>(i * plan.parts * plan.kBlock)];
    for (int64_t part = 1; part < plan.parts; ++part) {
      for (int64_t c = 0; c < unit.width; ++c) R::merge(acc[c], acc[part * plan.kBlock + c]);
    }
    finish(unit, acc);
  }
}

}  // namespace ink
