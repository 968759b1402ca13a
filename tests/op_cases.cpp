#include "tests/op_cases.h"

namespace ink {
namespace {

using I = const Inputs&;
constexpr auto normal = In::normal, positive = In::positive, spread = In::spread, mask = In::mask,
               ids = In::ids;

const Shape big{3, 257, 193};

std::vector<OpCase> make_cases() {
  return {
      // clang-format off
      // ---- pointwise
      {"add", {{{{2, 3}}, {{2, 3}}}, {{{2, 1, 3}}, {{4, 1}}}, {{{}}, {{2, 2}}}, {{{0, 3}}, {{3}}}, {{big}, {{257, 1}}}},
       [](I x) -> Outputs { return {x[0] + x[1]}; }},
      {"mul", {{{{2, 3}}, {{2, 3}}}, {{{2, 1, 3}}, {{4, 1}}}, {{{}}, {{2, 2}}}, {{{0, 3}}, {{3}}}, {{big}, {{257, 1}}}},
       [](I x) -> Outputs { return {x[0] * x[1]}; }},
      {"exp", {{{{2, 3}}}, {{{0, 2}}}, {{big}}}, [](I x) -> Outputs { return {exp(x[0])}; }},

      // ---- compare

      // ---- reduce

      // ---- scan

      // ---- views

      // ---- copy

      // ---- index

      // ---- matmul

      // ---- linear, linear_cross_entropy, attention

      // ---- softmax, log_softmax, layer_norm, rms_norm

      // ---- cross_entropy, embedding, dropout, gelu

      // ---- nn

      // clang-format on
  };
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = make_cases();
  return cases;
}

}  // namespace ink
