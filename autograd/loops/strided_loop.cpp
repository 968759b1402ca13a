#include "autograd/loops/strided_loop.h"

#include <algorithm>
#include <utility>

namespace ink {

// The dimensions of x, the longest stride first; as they are if elements are repeated.
static Shape in_order(const Array& x, bool repeats) {
  Shape dims = x.shape();
  const Shape& strides = x.strides();
  for (int64_t d = 0; d < dims.size(); ++d) dims[d] = d;
  if (repeats) return dims;
  for (int64_t* d = dims.begin(); d != dims.end(); ++d) {  // stable
    for (int64_t* e = d; e != dims.begin() && strides[e[-1]] < strides[*e]; --e)
      std::swap(e[-1], *e);
  }
  return dims;
}

Shape by_stride(const Array& x) { return in_order(x, false); }

Array empty_in_order(const Shape& sizes, const Shape& order, DType dtype, Device device) {
  Layout layout{sizes, sizes, 0};
  int64_t step = 1;
  for (int64_t i = order.size() - 1; i >= 0; --i) {
    layout.strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return Array::empty({step}, dtype, device).seen_as(layout);
}

std::byte* writable_address_of(Array& y) {
  for_any(y.dtype(), [&]<class T>(T) { y.mutable_data<T>(); });
  return address_of(y);
}

template <int N>
StridedLoop<N>::StridedLoop(const Shape& shape, const std::array<const Array*, N>& operands) {
  // Does dimension d continue the last one kept? (The last stride must be size times this one, for
  // every operand.)
  const auto joins = [&](int64_t d) {
    for (size_t k = 0; k < N; ++k) {
      if (strides[k].back() != operands[k]->strides()[d] * operands[k]->shape()[d]) return false;
    }
    return true;
  };
  for (const int64_t d : in_order(*operands[0], operands[0]->strides().has(0))) {
    if (shape[d] == 1) continue;
    if (!sizes.empty() && joins(d)) {
      sizes.back() *= shape[d];
      for (size_t k = 0; k < N; ++k) strides[k].back() = operands[k]->strides()[d];
    } else {
      sizes.push_back(shape[d]);
      for (size_t k = 0; k < N; ++k) strides[k].push_back(operands[k]->strides()[d]);
    }
  }
  if (sizes.empty()) {
    sizes.push_back(shape.numel());
    for (Shape& s : strides) s.push_back(1);
  }
}

template <int N>
void StridedLoop<N>::run(const void* self, RunGroups f, int64_t grain) const {
  const int64_t inner = sizes.back(), last = sizes.size() - 2;
  parallel_for(sizes.numel(), grain, [=, this](int64_t begin, int64_t end) {
    constexpr int64_t kGroups = 16;  // of rows at a time, because f is not inlined
    Group groups[kGroups];
    int64_t n = 0;
    Position at(*this, begin / inner);
    Offsets next{};
    for (size_t k = 0; k < N && last >= 0; ++k) next[k] = strides[k][last];
    for (int64_t column = begin % inner; begin < end; column = 0) {
      const bool whole = column == 0 && end - begin >= inner;
      const int64_t left = last < 0 ? 1 : sizes[last] - at.index[last];
      const int64_t count = whole ? std::min(left, (end - begin) / inner) : 1;
      const int64_t size = whole ? inner : std::min(inner - column, end - begin);
      groups[n] = {at.offsets, {count, size, next}};
      for (size_t k = 0; k < N; ++k) groups[n].first[k] += column * strides[k].back();
      begin += count * size;
      at.next(count);
      if (++n < kGroups && begin < end) continue;
      f(self, groups, n);
      n = 0;
    }
  });
}

constexpr int64_t kShortRun = 32;  // elements: beside fewer, the begin of a run takes long

template <int N>
int64_t StridedLoop<N>::take_short_rows(int64_t least, Offsets& inner) {
  const int64_t last = sizes.size() - 1, width = sizes.back();
  if (last == 0 || width >= least || width == 0) return 1;
  sizes.erase(last);
  for (size_t k = 0; k < N; ++k) {
    inner[k] = strides[k].back();
    strides[k].erase(last);
  }
  const int64_t longest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
  if (width * sizes.back() < kShortRun) {
    std::swap(sizes[longest], sizes.back());
    for (Shape& s : strides) std::swap(s[longest], s.back());
  }
  return width;
}

template <int N>
StridedLoop<N>::Position::Position(const StridedLoop& loop, int64_t row)
    : loop_(loop), index(Shape::filled(loop.sizes.size(), 0)) {
  for (int64_t d = loop.sizes.size() - 2; d >= 0; --d) {
    index[d] = row % loop.sizes[d];
    row /= loop.sizes[d];
    for (size_t k = 0; k < N; ++k) offsets[k] += index[d] * loop.strides[k][d];
  }
}

template <int N>
void StridedLoop<N>::Position::next(int64_t rows) {
  for (int64_t d = loop_.sizes.size() - 2; d >= 0; --d, rows = 1) {
    const bool wraps = (index[d] += rows) == loop_.sizes[d];
    const int64_t steps = wraps ? rows - loop_.sizes[d] : rows;
    for (size_t k = 0; k < N; ++k) offsets[k] += steps * loop_.strides[k][d];
    if (!wraps) return;
    index[d] = 0;
  }
}

template struct StridedLoop<1>;
template struct StridedLoop<2>;
template struct StridedLoop<3>;
template struct StridedLoop<4>;
template struct StridedLoop<5>;  // rotary on a GPU

}  // namespace ink
