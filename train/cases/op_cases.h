// One row per op. The rows drive every check of tests/autograd/test_ops.cpp (values, gradients,
// layouts, dtypes, guard bytes, ...), the table of `inkling gradcheck`, and the benchmarks.
#pragma once

#include <string>
#include <vector>

#include "autograd/basic_ops.h"

namespace ink {

/// How to make an input of a row. Floating ones are differentiated unless constant.
struct In {
  enum Kind {
    normal,    // N(0, 1)
    positive,  // uniform in [0.5, 2): for log, sqrt, divisors
    /// All elements apart by at least 0.01 and away from 0 by 0.005: for max, sort, relu and abs,
    /// where ties are kinks.
    spread,
    mask,  // bool, half of them true
    ids,   // i64 in [0, limit)
  };
  Shape shape;
  Kind kind = normal;
  int64_t limit = 0;      // of ids
  bool constant = false;  // floating, but not differentiated
};

using Inputs = std::vector<Tensor>;
using Outputs = std::vector<Tensor>;

struct OpCase {
  std::string name;  // as passed to record; ".branch" may follow: "cross_entropy.none"
  /// Several sets: small (all broadcasts and corners), zero-size, and one of over 100,000 elements
  /// with odd sizes, such as 3 x 257 x 193, past vector width, tile and grain.
  std::vector<std::vector<In>> inputs;
  Outputs (*op)(const Inputs&);  // not a std::function, because each takes long to compile
  double f32_tolerance = 1e-5;   // of max|f32 - f64| / max|f64|, values and gradients
  double bf16_tolerance = 0.03;
  bool second_derivative = true;  // check d2, too
};

/// All rows; op_cases.cpp.
const std::vector<OpCase>& op_cases();

}  // namespace ink
