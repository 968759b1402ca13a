#include "autograd/loops/reduce_loop.h"

#include <cstddef>
#include <memory>

#include "autograd/base/parallel.h"
#include "autograd/loops/convert.h"
#include "autograd/loops/strided_loop.h"

namespace ink {
namespace {

constexpr int64_t kBlock = ReducePlan::kBlock;

// Adds elements of x to accumulators: where they lie, if they follow each other and have the
// reduction's dtype, else by way of a buffer.
class Source {
 public:
  Source(const detail::Reducer& reducer, const Array& x)
      : reducer_(reducer), start_(address_of(x)), size_(size_of(x.dtype())) {
    if (x.dtype() != reducer.element) convert_ = detail::conversion(reducer.element, x.dtype());
  }

  // acc[c] += x[begin + c step + row next], for c < width and row < count.
  void add_columns(std::byte* acc, int64_t width, int64_t begin, int64_t step, int64_t count,
                   int64_t next) const {
    if (convert_ == nullptr && step == 1)
      return reducer_.add_columns(acc, width, at(begin), count, next);
    constexpr int64_t kRows = 8;  // that are added as one tree
    alignas(64) std::byte buffer[kRows * kBlock * 8];
    const int64_t most = kBlock / width * kRows;
    for (; count > 0; count -= most, begin += most * next) {
      const int64_t rows = std::min(count, most);
      read_rows(buffer, rows, width, begin, step, next);
      reducer_.add_columns(acc, width, buffer, rows, width);
    }
  }

  // acc[k] += x[begin + k next + i], for k < outputs and i < n.
  void add_rows(std::byte* acc, int64_t outputs, int64_t begin, int64_t n, int64_t next) const {
    if (convert_ == nullptr) return reducer_.add_rows(acc, outputs, at(begin), n, next);
    constexpr int64_t kPart = 8 * kBlock;
    alignas(64) std::byte buffer[kPart * 8];
    const int64_t most = std::max<int64_t>(1, kPart / n);  // rows in the buffer, or a part of one
    for (int64_t k = 0; k < outputs; k += most, begin += most * next) {
      const int64_t rows = std::min(most, outputs - k);
      for (int64_t i = 0; i < n; i += kPart) {
        const int64_t part = std::min(kPart, n - i);
        read_rows(buffer, rows, part, begin + i, 1, next);
        reducer_.add_rows(acc + k * reducer_.bytes, rows, buffer, part, part);
      }
    }
  }

 private:
  const std::byte* at(int64_t i) const { return start_ + i * size_; }

  // to[row width + c] = x[begin + c step + row next]
  void read_rows(std::byte* to, int64_t rows, int64_t width, int64_t begin, int64_t step,
                 int64_t next) const {
    if (step == 1 && next == width) return read(to, rows * width, begin, 1);
    for (int64_t row = 0; row < rows; ++row)
      read(to + row * width * size_of(reducer_.element), width, begin + row * next, step);
  }

  // to[c] = x[begin + c step]
  void read(std::byte* to, int64_t width, int64_t begin, int64_t step) const {
    alignas(64) std::byte gathered[kBlock * 8];
    std::byte* elements = convert_ == nullptr ? to : gathered;
    if (step == 1) return convert_(to, at(begin), width);
    for_bits(size_, [&]<class Bits>(Bits) {
      const Bits* from = reinterpret_cast<const Bits*>(at(begin));
      for (int64_t c = 0; c < width; ++c) reinterpret_cast<Bits*>(elements)[c] = from[c * step];
    });
    if (convert_ != nullptr) convert_(to, elements, width);
  }

  const detail::Reducer& reducer_;
  const std::byte* start_;
  int64_t size_;
  detail::Convert convert_ = nullptr;
};

// Adds rows begin .. end of a block of columns at `x` to acc[0 .. width).
void add_block(const detail::Reducer& reducer, const Source& source, std::byte* acc, int64_t width,
               int64_t x, const ReducePlan& plan, int64_t begin, int64_t end) {
  const int64_t lanes = plan.lanes > plan.columns.size ? plan.lanes : width, fold = lanes / width;
  const int64_t step = plan.columns.step, next = plan.rows.step;
  reducer.clear(acc, lanes);
  while (begin < end) {
    const ReducePlan::Run run = plan.run(begin, end);
    const int64_t folded = run.count / fold, left = run.count - folded * fold;
    source.add_columns(acc, lanes, x + run.x, step, folded, fold * next);
    if (left > 0)
      source.add_columns(acc, width, x + run.x + folded * fold * next, step, left, next);
    begin += run.count;
  }
  for (int64_t half = lanes / 2; half >= width; half /= 2)
    reducer.merge(acc, acc + half * reducer.bytes, half);
}

// Adds rows begin .. end of `outputs` outputs, the first one at `x`, to acc[0 .. outputs). Their
// elements follow each other in every run.
void add_outputs(const detail::Reducer& reducer, const Source& source, std::byte* acc,
                 int64_t outputs, int64_t x, int64_t next, const ReducePlan& plan, int64_t begin,
                 int64_t end) {
  reducer.clear(acc, outputs);
  while (begin < end) {
    const ReducePlan::Run run = plan.run(begin, end);
    source.add_rows(acc, outputs, x + run.x, run.count, next);
    begin += run.count;
  }
}

}  // namespace

void detail::run_reduction(const Reducer& reducer, Array& y, const Array& x) {
  const ReducePlan plan(y, x);
  const Source source(reducer, x);
  std::byte* const out = writable_address_of(y);
  const int64_t out_size = size_of(y.dtype());
  const Convert convert =
      y.dtype() == reducer.result ? nullptr : conversion(y.dtype(), reducer.result);
  // y[at + k step] = the results of acc[k]
  const auto write = [&](std::byte* acc, int64_t n, int64_t at, int64_t step) {
    alignas(64) std::byte results[kBlock * 8], converted[kBlock * 8];
    std::byte* const to = out + at * out_size;
    const bool direct = convert == nullptr && (step == 1 || n == 1);
    reducer.results(reducer.self, direct ? to : results, acc, n, plan.repeats);
    if (direct) return;
    const std::byte* from = results;
    if (convert != nullptr) {
      convert(converted, results, n);
      from = converted;
    }
    for_bits(out_size, [&]<class Bits>(Bits) {
      const Bits* result = reinterpret_cast<const Bits*>(from);
      for (int64_t k = 0; k < n; ++k) reinterpret_cast<Bits*>(to)[k * step] = result[k];
    });
  };
  const auto buffer = [&](int64_t blocks) {
    return std::unique_ptr<std::byte[]>(
        new std::byte[static_cast<size_t>(blocks * kBlock * reducer.bytes)]);
  };

  if (plan.parts == 1) {
    parallel_for(plan.units, plan.grain, [&](int64_t begin, int64_t end) {
      const auto acc = buffer(1);
      while (begin < end) {
        const ReducePlan::Unit unit = plan.unit(begin);
        if (plan.one_by_one) {
          const ReducePlan::Neighbours all = plan.neighbours(begin, end);
          const int64_t count = std::min(all.count, kBlock);
          add_outputs(reducer, source, acc.get(), count, unit.x, all.step, plan, 0,
                      plan.total_rows);
          write(acc.get(), count, unit.y, all.out_step);
          begin += count;
        } else {
          add_block(reducer, source, acc.get(), unit.width, unit.x, plan, 0, plan.total_rows);
          write(acc.get(), unit.width, unit.y, plan.columns.out_step);
          ++begin;
        }
      }
    });
    return;
  }
  const int64_t tasks = plan.units * plan.parts, block_bytes = kBlock * reducer.bytes;
  const auto partial = buffer(tasks);
  parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ReducePlan::Unit unit = plan.unit(i / plan.parts);
      const int64_t part = i % plan.parts, first = plan.total_rows * part / plan.parts,
                    last = plan.total_rows * (part + 1) / plan.parts;
      std::byte* const acc = partial.get() + i * block_bytes;
      if (plan.one_by_one) {
        add_outputs(reducer, source, acc, 1, unit.x, 0, plan, first, last);
      } else {
        add_block(reducer, source, acc, unit.width, unit.x, plan, first, last);
      }
    }
  });
  for (int64_t i = 0; i < plan.units; ++i) {
    const ReducePlan::Unit unit = plan.unit(i);
    std::byte* const acc = partial.get() + i * plan.parts * block_bytes;
    for (int64_t part = 1; part < plan.parts; ++part)
      reducer.merge(acc, acc + part * block_bytes, unit.width);
    write(acc, unit.width, unit.y, plan.columns.out_step);
  }
}

}  // namespace ink
