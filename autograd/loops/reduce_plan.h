// The order in which a reduction reads an array of any strides, for the loops of both devices.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "autograd/base/parallel.h"
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
  static constexpr int64_t kShortRow = 16;  // a shorter row gets one accumulator (narrow: 32)
  static constexpr int64_t kLongRow = 512;  // a shorter row gets half of the lanes
  static constexpr int64_t kFew = 64;       // of a block: with fewer, the loop over blocks is slow

  ReduceAxes outer, outer_rows;
  ReduceAxes::Axis columns, rows;
  int64_t repeats = 1;  // how often each element counts: the sizes of reduced dims with step 0
  int64_t lanes;        // a power of two times the columns where rows follow each other without gap
  bool one_by_one;      // each output has all lanes to itself, and its elements follow each other
  int64_t blocks, units, total_rows, parts, grain;

  /// y has x's dimensions, the reduced ones with size 1.
  ReducePlan(const Array& y, const Array& x) {
    for (int64_t d = 0; d < x.dim(); ++d) {
      const int64_t size = x.shape()[d], step = x.strides()[d];
      if (size == 1) continue;
      if (y.shape()[d] != 1) {
        outer.add(size, step, y.strides()[d]);
      } else if (step == 0 && size > 1) {  // a size of 0 has no element to count
        repeats *= size;
      } else {
        outer_rows.add(size, step, 0);
      }
    }
    outer.join();
    outer_rows.join();
    rows = outer_rows.pop_inner();
    // On a CPU, narrow elements (bf16, bool) are converted, row by row: short rows take long.
    const bool narrow = size_of(x.dtype()) < 4;
    // Does an output have several rows, not very short, whose elements follow each other?
    const bool in_lines =
        !narrow && !outer_rows.sizes.empty() && rows.step == 1 && rows.size >= kLanes / 2;
    if (!in_lines && columns_first(narrow ? 2 * kShortRow : kShortRow)) columns = outer.pop_inner();
    // A block of few elements takes a longer dimension in place of a short one.
    if (!in_lines && columns.size * rows.size < kFew &&
        (columns.size == 1 || !outer.exchange(columns)))
      outer_rows.exchange(rows);
    total_rows = outer_rows.sizes.numel() * rows.size;
    if (columns.size == 1) columns.step = rows.step;  // a step from lane to lane
    const bool gapless = rows.step == columns.size * columns.step;
    const int64_t fold = gapless ? kLanes / std::max<int64_t>(columns.size, 1) : 0;
    lanes = columns.size * static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(fold)));
    lanes = std::max(lanes, columns.size);
    one_by_one = columns.size == 1 && columns.step == 1 && lanes == kLanes;
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
  bool columns_first(int64_t short_row) const {
    if (outer.sizes.empty()) return false;
    const int64_t step = outer.steps.back();
    return step != 0 && (rows.step == 0 || step < rows.step || rows.size < short_row);
  }
};

}  // namespace ink
