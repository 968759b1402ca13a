// Which dimensions a reduction keeps: the shapes of its result and of its gradient.
#pragma once

#include <algorithm>

#include "autograd/basic_ops.h"

namespace ink {

struct ReducedShape {
  Shape from;         // x's shape
  Shape kept;         // the same with the reduced dimensions of size 1
  Shape squeezed;     // x's shape without the reduced dimensions
  Shape dims;         // the reduced dimensions, ascending
  int64_t count = 1;  // elements of x for each element of the result

  /// Empty dims mean all. Throws on a dimension out of range or named twice.
  ReducedShape(const char* op, const Tensor& x, const Shape& which) {
    check_defined(op, x);
    from = kept = x.shape();
    Shape reduced = Shape::filled(std::max<int64_t>(x.dim(), 1), which.empty());
    for (int64_t dim : which) {
      const int64_t d = wrap_dim(op, dim, from);
      INK_CHECK(!reduced[d], op, ": dimension ", d, " is named twice in ", which);
      reduced[d] = 1;
    }
    for (int64_t d = 0; d < x.dim(); ++d) {
      if (reduced[d]) {
        dims.push_back(d);
        count *= from[d];
        kept[d] = 1;
      } else {
        squeezed.push_back(from[d]);
      }
    }
  }

  /// For max and the like, which need at least one element.
  void check_not_empty(const char* op) const {
    for (int64_t d : dims) {
      INK_CHECK(from[d] != 0, op, ": dimension ", d, " of ", from,
                " has no elements to choose from");
    }
  }

  /// All dimensions, the kept ones first, then the reduced ones.
  Shape reduced_last() const {
    Shape order;
    for (int64_t d = 0; d < from.size(); ++d) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
    }
    for (int64_t d : dims) order.push_back(d);
    return order;
  }

  /// y, a new contiguous tensor of shape `kept`, with or without the reduced dimensions.
  Tensor finish(const Tensor& y, bool keepdim) const {
    return keepdim ? y : Tensor(y.array().seen_as({squeezed, contiguous_strides(squeezed), 0}));
  }
  /// A result (or its gradient) in the shape that broadcasts to x's.
  Tensor keep(const Tensor& y) const { return ink::reshape(y, kept); }
  /// The same repeated along the reduced dimensions.
  Tensor spread(const Tensor& y) const { return ink::expand(keep(y), from); }
};

}  // namespace ink
