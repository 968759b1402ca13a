// Gradient checks: compare the gradients of backward with central differences, for the library's
// ops and layers, and for yours:
//
//   Linear layer(3, 4);
//   layer.to(f64);
//   auto inputs = layer.parameters();
//   inputs.push_back(randn({2, 3}, f64).requires_grad_());
//   GradcheckReport report = gradcheck([&](auto& x) { return layer(x.back()); }, inputs);
//   if (!report.ok) std::cout << report << "\n";
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/inspect/wrong_gradient.h"

namespace ink {

struct GradcheckOptions {
  double eps = 1e-6;  // the step of the differences
  /// |analytic - numeric| <= rtol |numeric| + atol scale, where scale is the largest |numeric| of
  /// the tensor, or 1e-3 if that is more
  double rtol = 1e-5;
  double atol = 1e-7;
  /// Tensors up to this size are checked element by element, larger ones along random directions.
  int64_t max_elements = 100;
  int directions = 4;
  uint64_t seed = 1;  // of the upstream gradient and the directions
  /// What a report calls the inputs; "input 0" and so on where there is no name.
  std::vector<std::string> names = {};
  bool finds_ops = true;  // each op that ran is checked by itself, too (wrong_gradient.h)
};

/// What a check found; `ok` only if every element was within tolerance. The element named is the
/// one that came closest to, or went furthest past, its tolerance.
struct CheckedElements {
  bool ok = true;
  double worst = 0;   // |analytic - numeric| / tolerance
  size_t input = 0;   // which of the inputs
  std::string place;  // "[1, 2]", or "direction 3" in a large tensor
  double analytic = 0, numeric = 0, tolerance = 0;
  int64_t checked = 0;  // elements and directions
  explicit operator bool() const { return ok; }
};
/// The same of one input.
struct CheckedInput : CheckedElements {
  std::string name;
  Shape shape;
  std::string doubt;  // why the differences of all that failed say nothing: a kink, rounding
};
/// The whole check. Printed, one that failed names the op at fault, if that was found, and then the
/// worst element and each input.
struct GradcheckReport : CheckedElements {
  std::vector<CheckedInput> inputs;  // those that were checked
  OpsCheck ops;                      // of a check that failed
  std::string note;                  // of one for which no op is at fault: what else may be
};
std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);

/// A function of the inputs; it may also reach them by itself, as a module reaches its parameters.
using CheckedFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Checks d outputs / d input for every f64 leaf among `inputs` that requires grad, from a random
/// upstream gradient. Inputs are moved by eps in place and put back. f is called many times and
/// draws the same random numbers each time: default_generator() then stands as after one call, and
/// the random position of dropout as before it. (A thread that checks while others draw sets
/// context().generator to one of its own.) The vjp of each op that ran must also be right however
/// its upstream gradients come (check_vjps), no op may keep itself alive, and inputs that are not
/// contiguous must give the same. If the check fails, check_ops finds the op at fault.
/// At a point without a derivative, such as relu at 0, it fails and says so. Throws on f32 and bf16
/// inputs that require grad and outputs computed from them, when there is no input to check, and
/// when no output depends on them in the graph.
GradcheckReport gradcheck(const CheckedFunction& f, const TensorList& inputs,
                          GradcheckOptions options = {});
/// Checks the second derivatives: the gradient of the gradient, with respect to inputs and upstream
/// gradient. The gradient under create_graph must also equal the plain one.
GradcheckReport gradgradcheck(const CheckedFunction& f, const TensorList& inputs,
                              GradcheckOptions options = {});

namespace detail {
/// Converts to anything: finds how many members a struct has.
struct AnyMember {
  template <class T>
  operator T() const;
};
template <class T, size_t... I>
constexpr bool has_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember())...}; };
}
template <class T, size_t most = 6>
constexpr size_t members() {
  if constexpr (most == 0 || has_members<T>(std::make_index_sequence<most>()))
    return most;
  else
    return members<T, most - 1>();
}

/// Appends the tensors of what a function returned: of a tensor, a pair, tuple, optional, list or
/// map of such, or of a struct of up to six members. What is not a tensor, and an undefined one, is
/// left out.
template <class T>
void append_tensors(std::vector<Tensor>& all, const T& value) {
  const auto append = [&](const auto&... parts) { (append_tensors(all, parts), ...); };
  if constexpr (std::is_convertible_v<const T&, Tensor>) {
    if (const Tensor x = value; x.defined()) all.push_back(x);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>) {
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply(append, value);
  } else if constexpr (requires { value.begin() != value.end(); }) {
    for (const auto& part : value) append(part);
  } else if constexpr (requires { value.has_value() ? *value : *value; }) {
    if (value.has_value()) append(*value);
  } else if constexpr (std::is_aggregate_v<T>) {
    constexpr size_t n = members<T>();
    if constexpr (n == 1) {
      const auto& [a] = value;
      append(a);
    } else if constexpr (n == 2) {
      const auto& [a, b] = value;
      append(a, b);
    } else if constexpr (n == 3) {
      const auto& [a, b, c] = value;
      append(a, b, c);
    } else if constexpr (n == 4) {
      const auto& [a, b, c, d] = value;
      append(a, b, c, d);
    } else if constexpr (n == 5) {
      const auto& [a, b, c, d, e] = value;
      append(a, b, c, d, e);
    } else if constexpr (n == 6) {
      const auto& [a, b, c, d, e, f] = value;
      append(a, b, c, d, e, f);
    }
  }
}
template <class F>
CheckedFunction checked_function(F& f) {
  return [&f](const std::vector<Tensor>& x) {
    std::vector<Tensor> outputs;
    append_tensors(outputs, f(x));
    return outputs;
  };
}
template <class F>
concept ReturnsNoList = !std::is_convertible_v<std::invoke_result_t<F&, const std::vector<Tensor>&>,
                                               std::vector<Tensor>>;
}  // namespace detail

/// The same for functions that return a tensor, or several in a pair, a tuple or a struct.
template <detail::ReturnsNoList F>
GradcheckReport gradcheck(F f, const TensorList& inputs, GradcheckOptions options = {}) {
  return gradcheck(detail::checked_function(f), inputs, options);
}
template <detail::ReturnsNoList F>
GradcheckReport gradgradcheck(F f, const TensorList& inputs, GradcheckOptions options = {}) {
  return gradgradcheck(detail::checked_function(f), inputs, options);
}

}  // namespace ink
