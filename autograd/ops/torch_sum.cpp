// sum and mean of f32 and f64 under ImitateTorch, in the order of one thread of PyTorch 2.15 with
// AVX2 or AVX-512. Two cases are not covered: bf16, and sums over several dimensions of which some
// are expanded in x.
#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "autograd/kernels/reduce.h"
#include "autograd/loops/reduce_loop.h"

namespace ink::cpu {
// sums[k] = the sum of p[i step + k lane_step] over i below n. The levels are like the digits of a
// counter: when one has added up `run` numbers, it carries its sum to the next one.
template <int64_t lanes, class T>
static void cascade(T* sums, const T* p, int64_t n, int64_t step, int64_t lane_step) {
  const auto run =
      int64_t{1} << std::max<int64_t>(4, std::bit_width(static_cast<uint64_t>(n) - 1) / 4);
  T levels[4][lanes] = {};
  for (int64_t i = 0; i < n;) {
    for (const int64_t end = std::min(n, i + run); i < end; ++i) {
      for (int64_t k = 0; k < lanes; ++k) levels[0][k] += p[i * step + k * lane_step];
    }
    for (int64_t to = 1, full = run; to < 4 && i % full == 0; ++to, full *= run) {
      for (int64_t k = 0; k < lanes; ++k) levels[to][k] += std::exchange(levels[to - 1][k], T{0});
    }
  }
  for (int64_t k = 0; k < lanes; ++k)
    sums[k] = levels[0][k] + levels[1][k] + levels[2][k] + levels[3][k];
}

// The same with four cascades in turn, for one lane, or for all lanes side by side.
template <int64_t lanes, class T>
static void four_cascades(T* sums, const T* p, int64_t n, int64_t step) {
  T parts[4 * lanes];
  cascade<4 * lanes>(parts, p, n / 4, 4 * step, step / lanes);
  for (int64_t k = 0; k < lanes; ++k) {
    for (int64_t i = n / 4 * 4; i < n; ++i) parts[k] += p[i * step + k];
    sums[k] = parts[k] + parts[k + lanes] + parts[k + 2 * lanes] + parts[k + 3 * lanes];
  }
}

// y += the sums of x along `row`, one for each of `column`.
template <class T>
static void add_sums(T* y, const T* x, ReduceAxes::Axis row, ReduceAxes::Axis column) {
  constexpr int64_t lanes = 32 / sizeof(T);  // of an AVX2 register
  T sums[4 * lanes];
  int64_t j = 0;
  for (; row.step == 1 && row.size >= lanes && j < column.size; ++j) {
    const T *p = x + j * column.step, *rest = p + row.size / lanes * lanes;
    four_cascades<lanes>(sums, p, row.size / lanes, lanes);
    const T sum = std::accumulate(rest, p + row.size, T{0});
    y[j * column.out_step] += std::accumulate(sums, sums + lanes, sum);
  }
  const bool vectors = column.step == 1 && column.size >= lanes;
  const int64_t block = vectors ? 4 * lanes : row.step < column.step ? 1 : 4;
  for (int64_t width; j < column.size; j += width) {
    const T* p = x + j * column.step;
    width = j + block <= column.size ? block : 1;
    if (width == 4 * lanes) cascade<4 * lanes>(sums, p, row.size, row.step, 1);
    if (width == 4) cascade<4>(sums, p, row.size, row.step, column.step);
    if (width == 1) four_cascades<1>(sums, p, row.size, row.step);
    for (int64_t k = 0; k < width; ++k) y[(j + k) * column.out_step] += sums[k];
  }
}

// The axes from the outermost loop to the innermost: kept ones, then reduced ones by falling step.
static ReduceAxes torch_axes(const Array& y, const Array& x) {
  Shape order;  // the outermost first
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.shape()[d] != 1) order.push_back(d);
  }
  const auto rank = [&](int64_t d) { return y.shape()[d] == 1 ? x.strides()[d] : INT64_MAX; };
  std::stable_sort(order.begin(), order.end(), [=](auto a, auto b) { return rank(a) > rank(b); });
  ReduceAxes axes;
  for (int64_t d : order) {
    axes.sizes.push_back(x.shape()[d]);
    axes.steps.push_back(x.strides()[d]);
    axes.out_steps.push_back(y.shape()[d] == 1 ? 0 : y.strides()[d]);
  }
  axes.join();
  return axes;
}

template <class T>
void sum_as_torch(Array& y, const Array& x) {
  T* out = y.mutable_data<T>();
  std::fill_n(out, y.numel(), T{0});
  ReduceAxes axes = torch_axes(y, x);
  ReduceAxes::Axis row;
  if (!axes.sizes.empty() && axes.out_steps.back() == 0) row = axes.pop_inner();
  const ReduceAxes::Axis column = axes.pop_inner();
  for (int64_t i = 0; x.numel() != 0 && i < axes.sizes.numel(); ++i) {
    const ReduceAxes::Offsets at = axes.offsets(i);
    add_sums(out + at.y, x.data<T>() + at.x, row, column);
  }
}
template void sum_as_torch<float>(Array&, const Array&);
template void sum_as_torch<double>(Array&, const Array&);

}  // namespace ink::cpu
