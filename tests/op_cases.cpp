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
      {"matmul", {{{{3, 4}}, {{4, 5}}}, {{{1, 4}}, {{4, 5}}}, {{{3, 4}}, {{4, 1}}}, {{{4}}, {{4}}}, {{{4}}, {{4, 5}}},
                  {{{2, 3, 4}}, {{4}}}, {{{2, 3, 4}}, {{4, 5}}}, {{{2, 3, 4}}, {{2, 4, 5}}}, {{{2, 1, 3, 4}}, {{5, 4, 2}}},
                  {{{3, 4}}, {{2, 4, 2}}}, {{{2, 0}}, {{0, 3}}}, {{{0, 3}}, {{3, 2}}}, {{big}, {{193, 101}}}, {{big}, {{3, 193, 101}}}},
       [](I x) -> Outputs { return {matmul(x[0], x[1])}; }},
      {"matmul.dot", {{{{5}}, {{5}}}, {{{0}}, {{0}}}, {{{100003}}, {{100003}}}}, [](I x) -> Outputs { return {dot(x[0], x[1])}; }, 1e-4},
      {"mul.outer", {{{{3}}, {{4}}}, {{{0}}, {{3}}}, {{{100003}}, {{3}}}}, [](I x) -> Outputs { return {outer(x[0], x[1])}; }},

      // ---- linear, linear_cross_entropy, attention
      {"linear", {{{{3, 4}}, {{5, 4}}, {{5}}}, {{{4}}, {{5, 4}}, {{5}}}, {{{2, 3, 4}}, {{1, 4}}, {{1}}}, {{{0, 4}}, {{5, 4}}, {{5}}},
                  {{{3, 0}}, {{5, 0}}, {{5}}}, {{big}, {{101, 193}}, {{101}}}},
       [](I x) -> Outputs { return {linear(x[0], x[1], x[2])}; }},
      {"linear.no_bias", {{{{3, 4}}, {{5, 4}}}, {{{2, 1, 4}}, {{5, 4}}}, {{{2, 0, 4}}, {{5, 4}}}, {{big}, {{101, 193}}}},
       [](I x) -> Outputs { return {linear(x[0], x[1])}; }},
      {"linear_cross_entropy.mean", {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{2, 3, 4}}, {{5, 4}}, {{2, 3}, ids, 5}},
                                     {{{300, 17}}, {{20001, 17}}, {{300}, ids, 20001}}},
       [](I x) -> Outputs { return {linear_cross_entropy(x[0], x[1], x[2], 2)}; }, 2e-5},
      {"linear_cross_entropy.sum", {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{0, 4}}, {{5, 4}}, {{0}, ids, 5}}, {{big}, {{211, 193}}, {{3, 257}, ids, 211}}},
       [](I x) -> Outputs { return {linear_cross_entropy(x[0], x[1], x[2], -100, Reduction::sum)}; }, 2e-5},
      {"linear_cross_entropy.none", {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{2, 3, 4}}, {{5, 4}}, {{2, 3}, ids, 5}}, {{{0, 4}}, {{5, 4}}, {{0}, ids, 5}},
                                     {{{300, 17}}, {{20001, 17}}, {{300}, ids, 20001}}},
       [](I x) -> Outputs { return {linear_cross_entropy(x[0], x[1], x[2], 3, Reduction::none)}; }, 2e-5},

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
