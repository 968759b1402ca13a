#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace strides_check {

using Strides = Ints (*)(const Ints& sizes, const Ints& strides, const Ints& to);
using Addresses = Ints (*)(const Ints& sizes, const Ints& strides, int64_t offset);

Ints right_strides(const Ints& sizes, const Ints& strides, const Ints& to) {
  Ints result;
  for (size_t d = 0; d < to.size(); ++d) {
    const bool there = d + sizes.size() >= to.size();
    const size_t from = there ? d + sizes.size() - to.size() : 0;
    result.push_back(there && sizes[from] == to[d] ? strides[from] : 0);
  }
  return result;
}
Ints aligned_left(const Ints& sizes, const Ints& strides, const Ints& to) {
  Ints result(to.size(), 0);
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 || to[d] == 1) result[d] = strides[d];
  return result;
}
Ints keeps_stride(const Ints& sizes, const Ints& strides, const Ints& to) {
  Ints result(to.size() - sizes.size(), 0);
  result.insert(result.end(), strides.begin(), strides.end());
  return result;
}
Ints contiguous_of(const Ints& sizes) {
  Ints result(sizes.size(), 1);
  for (size_t d = sizes.size(); d > 1; --d) result[d - 2] = result[d - 1] * sizes[d - 1];
  return result;
}
Ints as_contiguous(const Ints& sizes, const Ints&, const Ints& to) {
  return right_strides(sizes, contiguous_of(sizes), to);
}
Ints of_the_copy(const Ints&, const Ints&, const Ints& to) { return contiguous_of(to); }
Ints zero_for_ones(const Ints& sizes, const Ints& strides, const Ints& to) {
  Ints result = right_strides(sizes, strides, to);
  for (size_t d = 0; d < to.size(); ++d)
    if (to[d] == 1) result[d] = 0;
  return result;
}

template <class F>
Ints walk(const Ints& sizes, bool last_is_fastest, F address) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  Ints result;
  for (int64_t i = 0; i < count; ++i) {
    Ints index(sizes.size());
    int64_t left = i;
    for (size_t k = 0; k < sizes.size(); ++k) {
      const size_t d = last_is_fastest ? sizes.size() - 1 - k : k;
      index[d] = left % sizes[d];
      left /= sizes[d];
    }
    result.push_back(address(index, i));
  }
  return result;
}
int64_t product(const Ints& index, const Ints& strides) {
  int64_t sum = 0;
  for (size_t d = 0; d < index.size(); ++d) sum += index[d] * strides[d];
  return sum;
}
Ints right_addresses(const Ints& sizes, const Ints& strides, int64_t offset) {
  return walk(sizes, true, [&](const Ints& i, int64_t) { return offset + product(i, strides); });
}
Ints first_fastest(const Ints& sizes, const Ints& strides, int64_t offset) {
  return walk(sizes, false, [&](const Ints& i, int64_t) { return offset + product(i, strides); });
}
Ints no_offset(const Ints& sizes, const Ints& strides, int64_t) {
  return right_addresses(sizes, strides, 0);
}
Ints one_after_another(const Ints& sizes, const Ints&, int64_t offset) {
  return walk(sizes, true, [&](const Ints&, int64_t i) { return offset + i; });
}
Ints offset_each_time(const Ints& sizes, const Ints& strides, int64_t offset) {
  return walk(sizes, true, [&](const Ints& i, int64_t) {
    return offset * static_cast<int64_t>(sizes.size()) + product(i, strides);
  });
}

Case of(const std::string& name, const Ints& sizes, const Ints& strides, const Ints& to) {
  return {name, {list(sizes), list(strides), list(to)}};
}
Case at(const std::string& name, const Ints& sizes, const Ints& strides, int64_t offset) {
  return {name, {list(sizes), list(strides), tensor(offset)}};
}

}  // namespace strides_check

Exercise strides_exercise(strides_check::Strides broadcast_strides,
                          strides_check::Addresses addresses) {
  using namespace strides_check;
  return {
      "22_strides",
      "lesson 1",
      {"Which stride makes an index move nowhere? And at which end do you begin to compare sizes?",
       "Begin with zeros for all dimensions of `to`. Dimension d of `sizes` is dimension d + "
       "to.size() - sizes.size() of `to`; where the sizes are equal, it keeps its stride.",
       "addresses: begin with {offset}. For each dimension in order, replace every address by "
       "sizes[d] addresses, strides[d] apart. The last dimension is then the fastest by itself."},
      {"autograd/memory/array.cpp", "Array Array::expanded(",
       "expand is this and nothing else: no element is touched. What runs over strided tensors "
       "merges dimensions that lie one behind the other, and computes one address for each row "
       "instead of each element. A write into an expanded tensor is refused, because many elements "
       "are one."},
      {{"broadcast_strides",
        {"strides"},
        answer(broadcast_strides),
        answer(right_strides),
        {of("a bias for all rows", {4}, {1}, {3, 4}), of("a column", {3, 1}, {1, 1}, {3, 4}),
         of("both", {3, 1}, {7, 1}, {2, 3, 4}), of("nothing is repeated", {2, 3}, {3, 1}, {2, 3}),
         of("a transposed matrix", {3, 2}, {1, 3}, {4, 3, 2}), of("a scalar", {}, {}, {2, 2}),
         of("1 stays 1", {3, 1}, {5, 2}, {3, 1}), of("size 1 in front", {1, 4}, {9, 2}, {3, 4})},
        {{answer(aligned_left),
          "Sizes are aligned at the left end here. It is the last dimensions that correspond."},
         {answer(keeps_stride),
          "A dimension of size 1 keeps its stride where it is repeated: the index would move."},
         {answer(as_contiguous),
          "These are the strides of a contiguous tensor. Keep those that the tensor has."},
         {answer(of_the_copy),
          "These are the strides of a copy. Broadcasting copies nothing: strides of 0 repeat."},
         {answer(zero_for_ones),
          "Where `to` has size 1, too, nothing is repeated, and the stride stays."}}},
       {"addresses",
        {"addresses"},
        answer(addresses),
        answer(right_addresses),
        {at("a matrix", {2, 3}, {3, 1}, 0), at("from an offset on", {2, 2}, {4, 1}, 5),
         at("a transposed matrix", {3, 2}, {1, 3}, 0), at("a broadcast row", {2, 3}, {0, 1}, 2),
         at("three dimensions", {2, 1, 3}, {10, 7, 2}, 1), at("no dimension", {}, {}, 4),
         at("a size of 0", {2, 0}, {1, 1}, 3)},
        {{answer(first_fastest), "The first dimension is the fastest here. It is the last one."},
         {answer(no_offset), "The offset is missing."},
         {answer(one_after_another),
          "This takes elements as they lie one after another. The strides say where they are."},
         {answer(offset_each_time),
          "The offset is added once for each dimension. It is added once."}}}}};
}

}  // namespace ink
