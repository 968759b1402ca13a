#include "autograd/loops/map.h"

#include <array>
#include <cstddef>

#include "autograd/loops/convert.h"
#include "autograd/loops/rows.h"
#include "autograd/loops/strided_loop.h"

namespace ink {
namespace {

constexpr int64_t kChunk = 512;  // elements gathered at a time: well inside the first cache
// Shorter rows are gathered into chunks:
constexpr int64_t kShortRow = 128;        // bytes of the widest operand
constexpr int64_t kShortRepeated = 256;   // bytes, where an operand repeats an element or a row
constexpr int64_t kShortConverted = 256;  // elements, where an operand is converted

// Where the elements of a run lie: `width` of them next to each other or `inner` apart, and again
// from `stride` on.
struct RunSteps {
  int64_t width, inner, stride;
  bool contiguous() const { return stride == width && (width == 1 || inner == 1); }
  bool constant() const { return stride == 0 && width == 1; }
  // Calls f(piece, i, where) for the pieces of a chunk of n elements, which begins at a multiple of
  // width; i: a piece's place in the chunk.
  template <class F>
  void for_pieces(int64_t begin, int64_t n, const F& f) const {
    const int64_t row = width, next = inner, step = stride;  // in registers
    if (row == 1) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < n; ++i) f(Piece<1>(), i, (begin + i) * step);
      return;
    }
    with_piece(next == 0 || next == 1 ? row : 1, [=, &f](auto piece) {
      int64_t at = begin / row * step;
      for (int64_t i = 0; i < n; i += row, at += step)
        piece.cover(row, [&](int64_t k) { f(piece, i + k, at + k * next); });
    });
  }
};

// How an operand is stored, and what the row takes.
struct Form {
  int64_t size, taken_size;  // bytes of an element
  RunSteps steps;
  detail::Convert convert, back;  // null: the row takes what is stored
  bool direct() const { return convert == nullptr && steps.contiguous(); }
};

// Writes the number at x as often as a block has elements.
void repeat_number(std::byte* to, const std::byte* x, const Form& form) {
  alignas(8) std::byte number[8];
  const auto repeat = [&](int64_t size, const std::byte* from) {
    for_bits(size, [&]<class Bits>(Bits) {
      std::fill_n(reinterpret_cast<Bits*>(to), detail::kMapBlock,
                  *reinterpret_cast<const Bits*>(from));
    });
  };
  if (form.convert == nullptr) return repeat(form.size, x);
  form.convert(number, x, 1);
  repeat(form.taken_size, number);
}

// An operand's run of elements, shown as the row takes them: a chunk that follows each other and
// needs no conversion is used where it is.
class Run {
 public:
  Run(std::byte* start, const Form& form) : start_(start), form_(form) {
    if (form_.steps.constant()) repeat_number(elements_, start, form_);
  }

  const std::byte* read(int64_t begin, int64_t n) {
    if (form_.direct()) return start_ + begin * form_.size;
    // What repeats is the same in each chunk, and the first chunk is the longest.
    if (!form_.steps.constant() && (form_.steps.stride != 0 || begin == 0)) read_chunk(begin, n);
    return elements_;
  }
  std::byte* to_write(int64_t begin) {
    return form_.direct() ? start_ + begin * form_.size : elements_;
  }
  // Puts what was written to a chunk where it belongs.
  void write(int64_t begin, int64_t n) {
    if (form_.direct()) return;
    const std::byte* from = elements_;
    std::byte* const to = form_.steps.contiguous() ? start_ + begin * form_.size : stored_;
    if (form_.back != nullptr) {
      form_.back(to, elements_, n);
      from = to;
    }
    if (form_.steps.contiguous()) return;
    for_bits(form_.size, [&]<class Bits>(Bits) {
      auto* const y = reinterpret_cast<Bits*>(start_);
      const auto* const x = reinterpret_cast<const Bits*>(from);
      const auto scatter = [y, x](auto piece, int64_t i, int64_t at) { piece.copy(y + at, x + i); };
      form_.steps.for_pieces(begin, n, scatter);
    });
  }

 private:
  void read_chunk(int64_t begin, int64_t n) {
    const std::byte* from = start_ + begin * form_.size;
    if (!form_.steps.contiguous()) {
      std::byte* const to = form_.convert == nullptr ? elements_ : stored_;
      for_bits(form_.size, [&]<class Bits>(Bits) {
        auto* const y = reinterpret_cast<Bits*>(to);
        const auto* const x = reinterpret_cast<const Bits*>(start_);
        if (form_.steps.inner == 0 && form_.steps.width > 1)
          return form_.steps.for_pieces(
              begin, n, [y, x](auto piece, int64_t i, int64_t at) { piece.fill(y + i, x[at]); });
        form_.steps.for_pieces(
            begin, n, [y, x](auto piece, int64_t i, int64_t at) { piece.copy(y + i, x + at); });
      });
      from = to;
    }
    if (form_.convert != nullptr) form_.convert(elements_, from, n);
  }

  std::byte* start_;
  const Form& form_;
  alignas(64) std::byte elements_[kChunk * 8], stored_[kChunk * 8];
};

template <int N, size_t... K>
void map_operands(detail::MapRow row, const void* f, Array& y, DType y_dtype,
                  const detail::MapInput* inputs, std::index_sequence<K...>) {
  StridedLoop<N> loop(y.shape(), {&y, &inputs[K].array...});
  const std::array<DType, N> stored{y.dtype(), inputs[K].array.dtype()...};
  const std::array<DType, N> taken{y_dtype, inputs[K].dtype...};
  const std::array<std::byte*, N> start{writable_address_of(y), address_of(inputs[K].array)...};
  const int64_t most = std::max({size_of(y.dtype()), size_of(inputs[K].array.dtype())...});
  std::array<int64_t, N> inner{};
  const int64_t bytes = (loop.repeats(K + 1) || ...) ? kShortRepeated : kShortRow;
  const int64_t short_row = stored == taken ? bytes / most : kShortConverted;
  const int64_t width = loop.take_short_rows(short_row, inner);

  std::array<Form, N> forms;
  std::array<int64_t, N> step;
  bool direct = true;
  for (size_t k = 0; k < N; ++k) {
    const RunSteps steps{width, inner[k], loop.inner_stride(k)};
    forms[k] = {size_of(stored[k]), size_of(taken[k]), steps, nullptr, nullptr};
    if (stored[k] != taken[k]) {
      forms[k].convert = detail::conversion(taken[k], stored[k]);
      forms[k].back = detail::conversion(stored[k], taken[k]);
    }
    step[k] = k > 0 && steps.constant() ? 0 : detail::kMapBlock;
    direct = direct && (forms[k].direct() || step[k] == 0);
  }
  const int64_t grain = kGrain / width / (most == 8 ? 2 : 1);  // 8 bytes take twice as long as 4
  if (direct) {
    const auto run_rows = [&](const auto& offset, const Rows<N>& rows) {
      alignas(64) std::byte numbers[N][detail::kMapBlock * 8];
      std::byte* p[] = {start[0] + offset[0] * forms[0].size,
                        start[K + 1] + offset[K + 1] * forms[K + 1].size...};
      const int64_t next[] = {rows.next[0] * forms[0].size,
                              rows.next[K + 1] * forms[K + 1].size...};
      for (int64_t r = 0; r < rows.count; ++r) {
        const void* const x[] = {step[K + 1] == 0 ? numbers[K + 1] : p[K + 1]...};
        for (size_t k = 1; k < N; ++k) {
          if (step[k] == 0 && (r == 0 || next[k] != 0)) repeat_number(numbers[k], p[k], forms[k]);
        }
        row(f, rows.size, p[0], x, &step[1]);
        p[0] += next[0];
        ((p[K + 1] += next[K + 1]), ...);
      }
    };
    return loop.for_each_rows(run_rows, grain);
  }
  const int64_t chunk = kChunk / width * width;
  const auto run_row = [&](const auto& offset, int64_t runs) {
    const auto run = [&](size_t k) { return Run(start[k] + offset[k] * forms[k].size, forms[k]); };
    Run to = run(0), from[] = {run(K + 1)...};
    for (int64_t begin = 0, n = runs * width; begin < n; begin += chunk) {
      const int64_t count = std::min(chunk, n - begin);
      const void* const x[] = {from[K].read(begin, count)...};
      row(f, count, to.to_write(begin), x, &step[1]);
      to.write(begin, count);
    }
  };
  loop.for_each_row(run_row, grain);
}

template <class To, class From>
void convert(void* to, const void* from, int64_t n) {
  const auto converted = [](From v) { return static_cast<To>(static_cast<compute_t<From>>(v)); };
  detail::map_elements(converted, n, static_cast<To*>(to), static_cast<const From*>(from));
}

}  // namespace

Array repeated(double number, DType dtype, const Shape& shape) {
  Array one = Array::empty({}, dtype);
  for_any(dtype, [&]<class T>(T) { *one.mutable_data<T>() = static_cast<T>(number); });
  return one.expanded(shape);
}

detail::Convert detail::conversion(DType to, DType from) {
  return for_any(to, [&]<class To>(To) -> Convert {
    return for_any(from, [&]<class From>(From) -> Convert { return convert<To, From>; });
  });
}

void detail::check_rows(const char* op, std::initializer_list<const Array*> arrays) {
  const Array& y = **arrays.begin();
  for (const Array* x : arrays) {
    INK_CHECK(x->defined(), op, ": an array of rows is undefined");
    INK_CHECK(x->dim() >= 1, op, ": expected rows, got a scalar");
    INK_CHECK(x->shape() == y.shape(), op, ": expected rows of ", y.shape(),
              ", as the result, got ", x->shape());
    const bool by_rows = x->dim() == 2 && (x->strides()[1] == 1 || x->size(1) == 1);
    INK_CHECK(by_rows || x->is_contiguous(), op, ": expected contiguous rows, got strides ",
              x->strides(), " of ", x->shape(), "; call contiguous() first");
  }
}

void detail::map_rows(MapRow row, const void* f, Array& y, DType y_dtype,
                      std::initializer_list<MapInput> inputs) {
  const auto run = [&]<size_t... K>(std::index_sequence<K...> each) {
    map_operands<sizeof...(K) + 1>(row, f, y, y_dtype, inputs.begin(), each);
  };
  if (inputs.size() == 1) return run(std::make_index_sequence<1>());
  if (inputs.size() == 2) return run(std::make_index_sequence<2>());
  run(std::make_index_sequence<3>());
}

}  // namespace ink
