#include "train/cases/op_cases.h"

#include <cmath>
#include <functional>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/engine/checkpoint.h"
#include "autograd/ops.h"

namespace ink {
namespace {

using I = const Inputs&;
constexpr auto normal = In::normal, positive = In::positive, spread = In::spread, mask = In::mask,
               ids = In::ids;

const Shape big{3, 257, 193};

// A reduction over every kind of dims.
Outputs over(const Tensor& x, const std::function<Tensor(const Shape& dims, bool keepdim)>& f) {
  if (x.numel() == 0) return {f({0}, false), f({-1}, true)};
  if (x.dim() < 3) return {f({}, false), f({0}, true)};
  return {f({}, true),     f({0}, false),   f({1}, true),    f({-1}, false),
          f({0, 1}, true), f({2, 0}, true), f({1, 2}, false)};
}
// Sets of one input each: three dimensions, a scalar, zero-size, large.
std::vector<std::vector<In>> one(In::Kind kind = normal) {
  return {{{{2, 3, 4}, kind}}, {{{}, kind}}, {{{2, 0, 3}, kind}}, {{big, kind}}};
}
// A matrix, and what to write to its first column from the second row on.
std::vector<std::vector<In>> row_and_column() {
  return {{{{4, 3}}, {{3}}}, {{{2, 3}}, {{}}}, {{{40009, 3}}, {{40008}}}};
}
Tensor first(const ValuesIndices& found) { return found.values; }
// Sets of two inputs: broadcast, and of one shape.
std::vector<std::vector<In>> two(In::Kind a = normal, In::Kind b = normal) {
  return {{{{2, 3}, a}, {{2, 3}, b}}, {{{2, 1, 3}, a}, {{4, 1}, b}}, {{{}, a}, {{2, 2}, b}},
          {{{5}, a}, {{}, b}},        {{{3}, a}, {{2, 3}, b}},       {{{0, 3}, a}, {{3}, b}},
          {{big, a}, {{257, 1}, b}}};
}
std::vector<std::vector<In>> two_like(In::Kind a = normal, In::Kind b = normal) {
  return {{{{2, 3}, a}, {{2, 3}, b}},
          {{{}, a}, {{}, b}},
          {{{0, 3}, a}, {{0, 3}, b}},
          {{big, a}, {big, b}}};
}

Tensor attend(I x, const AttentionOptions& options) {
  return scaled_dot_product_attention(x[0], x[1], x[2], options);
}
// Queries, keys and values of fewer, as many and more queries than keys.
std::vector<std::vector<In>> cross() {
  return {
      {{{3, 4}}, {{5, 4}}, {{5, 3}}},          {{{2, 1, 5, 4}}, {{2, 1, 3, 4}}, {{2, 1, 3, 4}}},
      {{{4, 4}}, {{4, 4}}, {{4, 1}}},          {{{2, 3, 4}}, {{2, 0, 4}}, {{2, 0, 3}}},
      {{{2, 0, 4}}, {{2, 3, 4}}, {{2, 3, 3}}}, {{{3, 257, 133}}, {{3, 131, 133}}, {{3, 131, 37}}}};
}
// The same with masks that broadcast in every way, and where there are holes, bools of their shape.
// A bias that is the same for all keys changes nothing, so its gradient is only rounding errors.
std::vector<std::vector<In>> masks(In::Kind kind, const Shape& large, bool holes = false) {
  std::vector<std::vector<In>> sets;
  const auto add = [&](const Shape& q, const Shape& k, const Shape& v, const Shape& shape) {
    if (kind == mask || (shape.size() && shape.back() > 1))
      sets.push_back({{q}, {k}, {v}, {shape, kind}});
  };
  for (const Shape& shape : {Shape{2, 2, 3, 5}, Shape{2, 1, 1, 5}, Shape{2, 3, 5}, Shape{3, 5},
                             Shape{5}, Shape{2, 1, 3, 1}, Shape{1, 1}, Shape{}})
    add({2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, shape);
  add({3, 4}, {3, 4}, {3, 2}, {3, 3});
  add({2, 4}, {0, 4}, {0, 4}, {2, 1});
  add({3, 257, 133}, {3, 131, 133}, {3, 131, 37}, large);
  for (auto& set : sets) {
    if (holes) set.push_back({set[3].shape, mask});
  }
  return sets;
}

Outputs pair_of(const std::pair<Tensor, Tensor>& both) { return {both.first, both.second}; }

// x with its first pairs turned, the faster the earlier; the positions are 5, 6, ...
Tensor rotate(const Tensor& x, int64_t pairs, bool interleaved) {
  const Options exact{f64, x.device()};  // f32 rounds large angles
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  const Tensor speeds = pow(100, arange(pairs, exact) / -pairs);
  const Tensor angles = outer(arange(x.size(-2), exact) + 5, speeds);
  return rotary(x, to(cos(angles), dtype), to(sin(angles), dtype), interleaved);
}

// In f64 all tensors are f64, so that differences are exact.
Tensor narrow(const Tensor& x) { return to(x, x.dtype() == f64 ? f64 : bf16); }
// The op under Autocast: f32 inputs give bf16 results and f32 gradients; also with a bf16
// activation.
// The op is a lambda without captures.
template <class Op>
Outputs (*mixed(Op))(I x) {
  return [](I x) -> Outputs {
    const Autocast guard;
    Inputs activation = x;
    activation[0] = narrow(x[0]);
    return {Op()(x), Op()(activation)};
  };
}

std::vector<OpCase> make_cases() {
  return {
      // clang-format off
      // ---- pointwise
      {"add", two(), [](I x) -> Outputs { return {x[0] + x[1]}; }},
      {"add.mixed", two(),
       [](I x) -> Outputs { return {x[0] + narrow(x[1]), narrow(x[0]) + x[1]}; }, 0.03},
      {"add.number", one(), [](I x) -> Outputs { return {x[0] + 0.3, 2 + x[0]}; }},
      {"add.alpha", two(), [](I x) -> Outputs {
         return {add(x[0], x[1], 0.3), sub(x[0], x[1], -2), add(x[0], 0.5, 3), sub(x[0], 2)}; }},
      {"sub", two(), [](I x) -> Outputs { return {x[0] - x[1]}; }},
      {"sub.number", one(), [](I x) -> Outputs { return {x[0] - 0.3}; }},
      {"rsub", one(), [](I x) -> Outputs { return {1 - x[0]}; }},
      {"mul", two(), [](I x) -> Outputs { return {x[0] * x[1]}; }},
      {"mul.factor", {{{{2, 3}}, {{}}}, {{{0, 3}}, {{}}}, {{big}, {{}}}},
       [](I x) -> Outputs { return {narrow(x[0]) * x[1]}; }, 0.03},
      {"mul.number", one(), [](I x) -> Outputs { return {x[0] * 0.3, 2 * x[0]}; }},
      {"div", two(normal, positive), [](I x) -> Outputs { return {x[0] / x[1]}; }},
      {"div.factor",
       {{{{2, 3}}, {{}, positive}}, {{{0, 3}}, {{}, positive}}, {{big}, {{}, positive}}},
       [](I x) -> Outputs { return {narrow(x[0]) / x[1]}; }, 0.03},
      {"div.number", one(), [](I x) -> Outputs { return {x[0] / 0.3}; }},
      {"reciprocal", one(positive), [](I x) -> Outputs { return {2.5 / x[0]}; }},
      {"pow", two(positive, normal), [](I x) -> Outputs { return {pow(x[0], x[1])}; }},
      {"pow.number", one(positive), [](I x) -> Outputs {
         return {pow(x[0], 2), pow(x[0], 3), pow(x[0], -1), pow(x[0], 0.5), pow(x[0], -0.5),
                 pow(x[0], 1.7), pow(x[0], 0), pow(x[0], 1)}; }},
      {"maximum", two(spread, spread), [](I x) -> Outputs { return {maximum(x[0], x[1] * 2)}; }},
      {"maximum.number", one(spread), [](I x) -> Outputs {
         return {maximum(x[0], 0.01), minimum(x[0], 0.01)}; }},
      {"minimum", two(spread, spread), [](I x) -> Outputs { return {minimum(x[0], x[1] * 2)}; }},
      {"atan2", two(normal, positive), [](I x) -> Outputs {
         return {atan2(x[0], x[1]), atan2(x[1], x[0])}; }},
      {"remainder", two(spread, positive), [](I x) -> Outputs {
         return {remainder(tanh(x[0]) * 0.3, x[1])}; }},
      {"remainder.number", one(spread), [](I x) -> Outputs { return {(tanh(x[0]) * 0.7) % 0.75}; }},
      {"clamp.tensors", {{{{2, 3}, spread}, {{3}, spread}}, {{{}, spread}, {{2, 2}, spread}},
                         {{{0, 3}, spread}, {{3}, spread}}, {{big, spread}, {{257, 1}, spread}}},
       [](I x) -> Outputs {
         const Tensor bound = x[1] * 2;
         return {clamp(x[0], bound, bound + 0.7), clamp_min(x[0], bound),
                 clamp_max(x[0], bound)}; }, 1e-5, 0.5},  // rounding to bf16 makes ties
      {"where",
       {{{{2, 1, 3}, mask}, {{4, 1}}, {{3}}}, {{{}, mask}, {{2, 2}}, {{}}},
        {{{0, 3}, mask}, {{3}}, {{1, 1}}}, {{big, mask}, {big}, {{257, 1}}}},
       [](I x) -> Outputs { return {where(x[0], x[1], x[2])}; }},
      {"masked_fill",
       {{{{2, 1, 3}}, {{4, 1}, mask}}, {{{}}, {{}, mask}}, {{{0, 3}}, {{3}, mask}},
        {{big}, {{257, 1}, mask}}},
       [](I x) -> Outputs { return {masked_fill(x[0], x[1], -2.5)}; }},
      {"copy_", {{{{2, 3}}, {{3}}}, {{{}}, {{}}}, {{{0, 3}}, {{3}}}, {{big}, {{257, 1}}}},
       [](I x) -> Outputs {
         Tensor y = x[0] * 2, z = y * 1;
         z.copy_(x[1]);
         return {y + z}; }},
      {"copy_.into_a_view",
       {{{{2, 3}}, {{2}}}, {{{3, 1}}, {{}}}, {{{0, 3}}, {{0}}}, {{big}, {{257}}}},
       [](I x) -> Outputs {
         Tensor z = x[0] * 1;
         z.select(-1, 0).copy_(x[1]);
         return {z}; }},
      {"fill_", one(), [](I x) -> Outputs {
         Tensor y = x[0] * 2, z = y * 1;
         z.fill_(0.5);
         return {y * z}; }},
      {"uniform_", one(), [](I x) -> Outputs {
         Tensor y = x[0] * 2, z = y * 1;
         uniform_(z, 0.5, 0.5);
         return {y * z}; }},
      {"normal_", one(), [](I x) -> Outputs {
         Tensor y = x[0] * 2, z = y * 1;
         normal_(z, 0.5, 0);
         return {y * z}; }},
      {"copy_slices", row_and_column(), [](I x) -> Outputs {
         Tensor y = x[0] * 1;
         y.T().index({0, Slice(1)}) *= x[1];
         return {y}; }},
      {"as_strided", row_and_column(), [](I x) -> Outputs {
         Tensor y = x[0] * 1, row = y.index({1}), column = y.T().index({0, Slice(1)});
         column *= x[1];
         return {row, column, row.expand({2, 3})}; }},
      // Recorded by second derivatives.
      {"gather_strided", row_and_column(), [](I x) -> Outputs {
         Tensor y = x[0] * 1;
         y.T().index({0, Slice(1)}) += x[1] * x[1];
         return {y}; }},
      {"scatter_strided", row_and_column(), [](I x) -> Outputs {
         Tensor y = x[0] * 1, row = y.index({1});
         y *= 2;
         return {row * row}; }},
      {"mul.in_place",
       {{{{2, 3}}, {{2, 3}, positive}, {{3}, mask}}, {{{}}, {{}, positive}, {{}, mask}},
        {{big}, {{257, 1}, positive}, {big, mask}}},
       [](I x) -> Outputs {
         Tensor y = x[0] + 0.5;
         ((((((y += x[1]) *= x[1]) -= x[1]) /= x[1]) += 0.5) *= 3) /= 1.5;
         return {(y -= 0.25).add_(x[1], 0.3).masked_fill_(x[2], 0.7)}; }},
      {"neg", one(), [](I x) -> Outputs { return {-x[0]}; }},
      {"exp", one(), [](I x) -> Outputs { return {exp(x[0])}; }},
      {"log", one(positive), [](I x) -> Outputs { return {log(x[0])}; }},
      {"sqrt", one(positive), [](I x) -> Outputs { return {sqrt(x[0])}; }},
      {"rsqrt", one(positive), [](I x) -> Outputs { return {rsqrt(x[0])}; }},
      {"abs", one(spread), [](I x) -> Outputs { return {abs(x[0])}; }},
      {"sign", one(spread), [](I x) -> Outputs { return {sign(x[0])}; }, 1e-5, 0.03, false},
      {"sin", one(), [](I x) -> Outputs { return {sin(x[0])}; }},
      {"cos", one(), [](I x) -> Outputs { return {cos(x[0])}; }},
      {"tanh", one(), [](I x) -> Outputs { return {tanh(x[0])}; }},
      {"sigmoid", one(), [](I x) -> Outputs { return {sigmoid(x[0])}; }},
      {"relu", one(spread), [](I x) -> Outputs { return {relu(x[0])}; }},
      {"silu", one(), [](I x) -> Outputs { return {silu(x[0])}; }},
      {"erf", one(), [](I x) -> Outputs { return {erf(x[0])}; }},
      {"clamp", one(spread), [](I x) -> Outputs {
         return {clamp(x[0], -0.01, 0.02), clamp_min(x[0], -0.01), clamp_max(x[0], 0.02)}; }},
      {"log1p", one(positive), [](I x) -> Outputs { return {log1p(x[0])}; }},
      {"expm1", one(), [](I x) -> Outputs { return {expm1(x[0])}; }},
      {"floor", one(spread), [](I x) -> Outputs { return {floor(x[0])}; }, 1e-5, 0.03, false},
      {"ceil", one(spread), [](I x) -> Outputs { return {ceil(x[0])}; }, 1e-5, 0.03, false},
      {"trunc", one(spread), [](I x) -> Outputs { return {trunc(x[0])}; }, 1e-5, 0.03, false},
      {"round", one(spread), [](I x) -> Outputs { return {round(x[0])}; }, 1e-5, 0.03, false},
      {"softplus", one(), [](I x) -> Outputs {
         return {softplus(x[0]), softplus(x[0], 2, 0.7)}; }, 1e-5, 0.03, false},
      {"leaky_relu", one(spread), [](I x) -> Outputs { return {leaky_relu(x[0], 0.2)}; }},
      {"elu", one(spread), [](I x) -> Outputs { return {elu(x[0], 0.7)}; }},

      // ---- compare
      {"eq", two(spread, spread), [](I x) -> Outputs {
         return {x[0] == x[1], x[0] != x[1], x[0] < x[1], x[0] <= x[1], x[0] > x[1],
                 x[0] >= x[1]}; }},
      {"eq.number", one(spread), [](I x) -> Outputs {
         return {x[0] == 0, x[0] != 0, x[0] < 0.25, x[0] <= 0.25, x[0] > -0.25, x[0] >= -0.25}; }},
      {"logical_and", two(normal, mask), [](I x) -> Outputs {
         const Tensor a = x[0] > 0;
         return {logical_and(a, x[1]), logical_or(a, x[1]), logical_xor(a, x[1]), logical_not(a),
                 isnan(x[0]), isfinite(x[0])}; }},
      {"isclose", two_like(normal, mask),
       [](I x) -> Outputs { return {isclose(x[0], where(x[1], x[0], x[0] + 1))}; }},

      // ---- reduce
      {"sum", one(normal), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return sum(x[0], dims, keep); }); }},
      {"sum.to", {{{{2, 3, 4}}}, {{{0, 3, 1}}}, {{big}}}, [](I x) -> Outputs {
         return {sum_to(x[0], {x[0].size(1), 1}), sum_to(x[0], {1, x[0].size(1), x[0].size(2)}),
                 sum_to(x[0], {})}; }},
      {"mean", one(normal), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return mean(x[0], dims, keep); }); }},
      {"norm", {{{{2, 3, 4}, spread}}, {{{}, spread}}, {{{2, 0, 3}, spread}}, {{big}}},
       [](I x) -> Outputs {
         if (x[0].numel() > 1000) return {norm(x[0])};
         Outputs norms;
         for (double p : {1.0, 2.0, 3.0, 2.5}) norms.push_back(norm(x[0], p));
         if (x[0].dim() > 1) norms.push_back(norm(x[0], 2, {1, -1}, true));
         return norms; }},
      {"prod", {{{{2, 3, 4}}}, {{{5}}}, {{{2, 0, 3}}}, {{{193, 79, 8}, positive}}}, [](I x) {
         if (x[0].numel() > 1000) return Outputs{prod(x[0], {0}), prod(x[0], {-1}, true)};
         return over(x[0], [&](auto& dims, bool keep) { return prod(x[0], dims, keep); });
       }, 1e-5, 0.1},
      {"amax", one(spread), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return amax(x[0], dims, keep); }); }},
      {"amin", one(spread), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return amin(x[0], dims, keep); }); }},
      {"max", {{{{2, 3, 4}, spread}}, {{{}, spread}}, {{big, spread}}},
       [](I x) -> Outputs { return {max(x[0])}; }},
      {"min", {{{{2, 3, 4}, spread}}, {{{}, spread}}, {{big, spread}}},
       [](I x) -> Outputs { return {min(x[0])}; }},
      {"max.dim", one(spread), [](I x) -> Outputs {
         const auto [a, b] = max(x[0], 0);
         const auto [c, d] = max(x[0], -1, true);
         return {a, b, c, d};
       }},
      {"min.dim", one(spread), [](I x) -> Outputs {
         const auto [a, b] = min(x[0], 0, true);
         const auto [c, d] = min(x[0], -1);
         return {a, b, c, d};
       }},
      {"argmax", {{{{2, 3, 4}, spread}}, {{{3}, spread}}, {{big, spread}}}, [](I x) -> Outputs {
         return {argmax(x[0]), argmax(x[0], 0), argmin(x[0], -1, true), argmin(x[0], {}, true)}; }},
      {"var", {{{{2, 3, 4}}}, {{{5}}}, {{{3, 0, 2}}}, {{big}}}, [](I x) -> Outputs {
         return {var(x[0], {0}), var(x[0], {-1}, 0, true),
                 x[0].numel() > 0 ? var(x[0], {}, 1) : x[0], var(x[0], {0}, 0.5)};
       }},
      {"std", {{{{2, 3, 4}}}, {{{5}}}, {{{3, 0, 2}}}, {{big}}}, [](I x) -> Outputs {
         return {std(x[0], {0}), std(x[0], {-1}, 0, true),
                 x[0].numel() > 0 ? std(x[0], {}, 1) : x[0]};
       }, 1e-5, 0.05},
      {"logsumexp", one(normal), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return logsumexp(x[0], dims, keep); }); }},
      {"any", one(In::mask), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return any(x[0], dims, keep); }); }},
      {"all", one(normal), [](I x) {
         return over(x[0], [&](auto& dims, bool keep) { return all(x[0], dims, keep); }); }},
      {"mse_loss", {{{{2, 3}}, {{2, 3}}}, {{{}}, {{}}}, {{{0, 3}}, {{0, 3}}}, {{big}, {big}}},
       [](I x) -> Outputs {
         return {mse_loss(x[0], x[1], Reduction::sum), mse_loss(x[0], x[1], Reduction::none)}; }},
      {"binary_cross_entropy_with_logits", two_like(normal, positive), [](I x) -> Outputs {
         return {binary_cross_entropy_with_logits(x[0], x[1], Reduction::none)}; }},
      {"binary_cross_entropy", two_like(), [](I x) -> Outputs {
         return {binary_cross_entropy(sigmoid(x[0]) * 0.8 + 0.1, sigmoid(x[1]), Reduction::none)};
       }, 1e-5, 0.1},
      {"smooth_l1_loss", two_like(normal, positive), [](I x) -> Outputs {
         return {smooth_l1_loss(x[0], x[1], Reduction::none, 0.5)}; }},
      {"mse_loss.mean", {{{{2, 3}}, {{2, 3}}}, {{big}, {big}}},
       [](I x) -> Outputs { return {mse_loss(x[0], x[1])}; }},

      // ---- scan
      {"cumsum", one(normal), [](I x) -> Outputs {
         return {cumsum(x[0], 0), cumsum(x[0], -1), cumsum(x[0], x[0].dim() / 2)}; }},
      {"cumprod", {{{{2, 3, 4}}}, {{{2, 0, 3}}}, {{{3000, 40}}}}, [](I x) -> Outputs {
         return {cumprod(x[0], 0), cumprod(x[0] * (x[0] > 0), -1)}; }},
      {"sort", one(spread), [](I x) -> Outputs {
         const auto [a, b] = sort(x[0]);
         const auto [c, d] = sort(x[0], 0, true);
         return {a, b, c, d};
       }},
      {"topk", {{{{2, 3, 4}, spread}}, {{{2, 0, 3}, spread}}, {{big, spread}}}, [](I x) -> Outputs {
         const auto [a, b] = topk(x[0], 2);
         const auto [c, d] = topk(x[0], 1, 0, false);
         return {a, b, c, d, first(topk(x[0], 0, 0)), first(topk(x[0], x[0].size(1), 1))};
       }},

      // ---- views
      {"view", {{{{2, 3, 4}}}, {{{}}}, {{{2, 0, 3}}}, {{big}}}, [](I x) -> Outputs {
         return {x[0].contiguous().view({x[0].numel()}),
                 reshape(x[0], x[0].numel() ? Shape{-1, 1} : x[0].shape())}; }},
      {"reshape", one(), [](I x) -> Outputs {
         return {reshape(x[0].T(), {x[0].numel()}), reshape(x[0].T(), x[0].shape())}; }},
      {"transpose", one(normal), [](I x) -> Outputs { return {transpose(x[0], 0, -1)}; }},
      {"diagonal", {{{{2, 3, 4}}}, {{{3, 3}}}, {{{2, 0, 3}}}, {{big}}}, [](I x) -> Outputs {
         return {diagonal(x[0]), diagonal(x[0], 1, -1, -2), diagonal(x[0], -1, 0, -1)}; }},
      {"diag", {{{{3, 4}}}, {{{0, 3}}}, {{{263, 391}}}}, [](I x) -> Outputs {
         const Tensor v = select(x[0], 1, 0);
         return {diag(v), diag(v, 2), diag(v, -1), diag(x[0]), diag(x[0], 1), trace(x[0])}; }},
      {"unfold", {{{{2, 3, 4}}}, {{{}}}, {{{2, 0, 3}}}, {{big}}}, [](I x) -> Outputs {
         return {unfold(x[0], -1, 1, 2), unfold(x[0], 0, x[0].dim() > 0 ? 2 : 0, 1),
                 unfold(x[0], -1, x[0].dim() > 0 ? 3 : 1, 2)}; }},
      {"permute", {{{{2, 3, 4}}}, {{{2, 0, 3}}}, {{big}}},
       [](I x) -> Outputs { return {permute(x[0], {2, 0, 1}), x[0].T()}; }},
      {"squeeze", {{{{1, 3, 1}}}, {{{1, 0}}}, {{{1, 1000, 1, 101}}}},
       [](I x) -> Outputs { return {squeeze(x[0]), squeeze(x[0], 0), squeeze(x[0], 1)}; }},
      {"unsqueeze", one(normal), [](I x) -> Outputs {
         return {unsqueeze(x[0], 0), unsqueeze(x[0], -1), unsqueeze(x[0], x[0].dim() / 2)}; }},
      {"expand", {{{{2, 1, 3}}}, {{{1}}}, {{{0, 1, 2}}}, {{{259, 1, 401}}}}, [](I x) -> Outputs {
         return {x[0].dim() == 3 ? expand(x[0], {2, -1, 3, -1}) : expand(x[0], {2, 3})}; }},
      {"select", {{{{2, 3, 4}}}, {{{1, 0, 3}}}, {{big}}}, [](I x) -> Outputs {
         return {select(x[0], 0, -1), select(x[0], 0, 0), select(x[0], 2, 1),
                 select(x[0], 2, 2)}; }},
      {"slice", {{{{5, 3, 4}}}, {{{2, 0, 3}}}, {{big}}}, [](I x) -> Outputs {
         return {slice(x[0], 0, 1, -1), slice(x[0], 2, 0, 100, 2), narrow(x[0], 1, 0, x[0].size(1)),
                 slice(x[0], 0, 2, 1), x[0].index({Slice(1, {}, 2), Ellipsis, None, -1})};
       }},
      {"slice_backward", {{{{2, 3}}}, {{{0, 3}}}, {{{263, 391}}}}, [](I x) -> Outputs {
         return {slice_backward(x[0], {x[0].size(0), 3 * x[0].size(1)}, 1, 2, 3 * x[0].size(1),
                                3)}; }},
      {"split", {{{{5, 3, 4}}}, {{{4, 0, 3}}}, {{{7, 257, 59}}}}, [](I x) -> Outputs {
         const auto a = split(x[0], 2), b = chunk(x[0], 3, -1);
         const auto c = split(x[0], std::vector<int64_t>{1, 0, x[0].size(0) - 1});
         return {a[0], a[1], b[0], b.back(), c[1], c[2]};
       }},

      // ---- copy
      {"clone", one(normal),
       [](I x) -> Outputs { return {clone(x[0]), contiguous(transpose(x[0], 0, -1))}; }},
      // To the other dtypes. f64 stays, so that differences are exact.
      {"to", one(normal), [](I x) -> Outputs {
         const DType t = x[0].dtype();
         return {to(x[0], f64), to(x[0], t == f64 ? f64 : t == f32 ? bf16 : f32)};
       }},
      {"cat",
       {{{{2, 3}}, {{2, 1}}, {{2, 2}}}, {{{2, 0}}, {{2, 1}}, {{2, 0}}},
        {{{257, 31}}, {{257, 400}}, {{257, 93}}}},
       [](I x) -> Outputs {
         return {cat({x[0], x[1], x[2]}, 1), cat({x[1], x[0], x[1], x[2], x[1]}, -1)}; }},
      {"cat.two", {{{{2, 3}}, {{1, 3}}}, {{{0, 3}}, {{2, 3}}}, {{{257, 31}}, {{3301, 31}}}},
       [](I x) -> Outputs { return {cat({x[0], x[1]})}; }},
      {"cat.one", {{{{2, 3}}}, {{big}}}, [](I x) -> Outputs { return {cat({x[0]}, 1)}; }},
      {"stack", {{{{2, 3}}, {{2, 3}}}, {{{0, 3}}, {{0, 3}}}, {{{}}, {{}}}, {{big}, {big}}},
       [](I x) -> Outputs {
         return {stack({x[0], x[1]}), stack({x[0], x[1], x[0]}, -1),
                 stack({x[0], x[0], x[1], x[0]}, x[0].dim() / 2)};
       }, 1e-5, 0.1},
      {"stack.one", {{{{2, 3}}}, {{big}}}, [](I x) -> Outputs { return {stack({x[0]}, 1)}; }},
      {"repeat", {{{{2, 3}}}, {{{0, 3}}}, {{{401, 251}}}}, [](I x) -> Outputs {
         return {repeat(x[0], {2, 1, 3}), repeat(x[0], {1, 1}), repeat(x[0], {0, 2})}; }},
      {"flip", one(normal), [](I x) -> Outputs { return {flip(x[0], {0}), flip(x[0], {})}; }},
      {"flip.two", {{{{2, 3, 4}}}, {{{2, 0, 3}}}, {{big}}},
       [](I x) -> Outputs { return {flip(x[0], {0, -1}), flip(x[0], {1, 2})}; }},
      {"roll", {{{{2, 3, 4}}}, {{{2, 0, 3}}}, {{big}}}, [](I x) -> Outputs {
         return {roll(x[0], 5), roll(x[0], {1, -2}, {0, -1}), roll(x[0], 2, 1)}; }},
      {"tril", {{{{2, 3, 4}}}, {{{3, 3}}}, {{{2, 0, 3}}}, {{big}}},
       [](I x) -> Outputs { return {tril(x[0]), tril(x[0], 1), tril(x[0], -9)}; }},
      {"triu", {{{{2, 4, 3}}}, {{{3, 3}}}, {{{2, 3, 0}}}, {{big}}},
       [](I x) -> Outputs { return {triu(x[0]), triu(x[0], 2), triu(x[0], -1)}; }},

      // ---- index
      {"gather",
       {{{{3, 4}}, {{2, 3}, ids, 3}}, {{{3, 4}}, {{0, 4}, ids, 3}},
        {{{257, 401}}, {{300, 359}, ids, 257}}},
       [](I x) -> Outputs { return {gather(x[0], 0, x[1])}; }},
      {"gather.last",
       {{{{2, 3, 4}}, {{2, 2, 7}, ids, 4}}, {{{1, 5}}, {{1, 0}, ids, 5}},
        {{big}, {{3, 257, 193}, ids, 193}}},
       [](I x) -> Outputs { return {gather(x[0], -1, x[1])}; }},
      {"scatter_add",
       {{{{3, 4}}, {{2, 3}}, {{2, 3}, ids, 3}}, {{{3, 4}}, {{0, 4}}, {{0, 4}, ids, 3}},
        {{{257, 401}}, {{300, 359}}, {{300, 359}, ids, 257}}},
       [](I x) -> Outputs { return {scatter_add(x[0], 0, x[2], x[1])}; }},
      {"scatter_add.last",
       {{{{2, 3, 4}}, {{2, 2, 7}}, {{2, 2, 7}, ids, 4}}, {{{5}}, {{0}}, {{0}, ids, 5}},
        {{{1001}}, {{100001}}, {{100001}, ids, 1001}}},
       [](I x) -> Outputs { return {scatter_add(x[0], -1, x[2], x[1])}; }, 1e-5, 0.3},
      {"scatter",
       {{{{3, 4}}, {{2, 3}}, {{2, 3}, ids, 3}}, {{{3, 4}}, {{0, 4}}, {{0, 4}, ids, 3}},
        {{{257, 401}}, {{300, 359}}, {{300, 359}, ids, 257}}},
       [](I x) -> Outputs { return {scatter(x[0], 0, x[2], x[1]), scatter(x[0], 0, x[2], 2)}; }},
      {"index_select",
       {{{{3, 4}}, {{5}, ids, 3}}, {{{3, 4}}, {{0}, ids, 3}}, {{{257, 401}}, {{300}, ids, 257}}},
       [](I x) -> Outputs { return {index_select(x[0], 0, x[1]), index_select(x[0], 1, x[1])}; }},
      {"index",
       {{{{3, 4}}, {{2, 5}, ids, 3}}, {{{3}}, {{}, ids, 3}}, {{{3, 4}}, {{2, 0}, ids, 3}},
        {{{257, 401}}, {{20, 17}, ids, 257}}},
       [](I x) -> Outputs { return {index(x[0], x[1]), x[0].index(x[1] + -1)}; }},
      {"one_hot", {{{{2, 3}, ids, 4}}, {{{0}, ids, 4}}, {{{}, ids, 4}}, {{{257, 401}, ids, 4}}},
       [](I x) -> Outputs { return {one_hot(x[0], 4)}; }},

      // ---- matmul
      {"matmul",
       {{{{3, 4}}, {{4, 5}}}, {{{1, 4}}, {{4, 5}}}, {{{3, 4}}, {{4, 1}}}, {{{4}}, {{4}}},
        {{{4}}, {{4, 5}}}, {{{2, 3, 4}}, {{4}}}, {{{2, 3, 4}}, {{4, 5}}},
        {{{2, 3, 4}}, {{2, 4, 5}}}, {{{2, 1, 3, 4}}, {{5, 4, 2}}}, {{{3, 4}}, {{2, 4, 2}}},
        {{{2, 0}}, {{0, 3}}}, {{{0, 3}}, {{3, 2}}}, {{big}, {{193, 101}}},
        {{big}, {{3, 193, 101}}}},
       [](I x) -> Outputs { return {matmul(x[0], x[1])}; }},
      {"matmul.dot", {{{{5}}, {{5}}}, {{{0}}, {{0}}}, {{{100003}}, {{100003}}}},
       [](I x) -> Outputs { return {dot(x[0], x[1])}; }, 1e-4},
      {"mul.outer", {{{{3}}, {{4}}}, {{{0}}, {{3}}}, {{{100003}}, {{3}}}},
       [](I x) -> Outputs { return {outer(x[0], x[1])}; }},

      // ---- linear, linear_cross_entropy, attention
      {"linear",
       {{{{3, 4}}, {{5, 4}}, {{5}}}, {{{4}}, {{5, 4}}, {{5}}}, {{{2, 3, 4}}, {{1, 4}}, {{1}}},
        {{{0, 4}}, {{5, 4}}, {{5}}}, {{{3, 0}}, {{5, 0}}, {{5}}}, {{big}, {{101, 193}}, {{101}}}},
       [](I x) -> Outputs { return {linear(x[0], x[1], x[2])}; }},
      {"linear.no_bias",
       {{{{3, 4}}, {{5, 4}}}, {{{2, 1, 4}}, {{5, 4}}}, {{{2, 0, 4}}, {{5, 4}}},
        {{big}, {{101, 193}}}},
       [](I x) -> Outputs { return {linear(x[0], x[1])}; }},
      {"linear.mixed",
       {{{{3, 4}}, {{5, 4}}, {{5}}}, {{{0, 4}}, {{5, 4}}, {{5}}}, {{{3, 0}}, {{5, 0}}, {{5}}},
        {{big}, {{101, 193}}, {{101}}}},
       mixed([](I x) { return linear(x[0], x[1], x[2]); }), 0.03},
      {"linear.mixed_no_bias",
       {{{{3, 4}}, {{5, 4}}}, {{{2, 0, 4}}, {{5, 4}}}, {{big}, {{101, 193}}}},
       mixed([](I x) { return linear(x[0], x[1]); }), 0.03},
      {"linear.recompute",
       {{{{3, 5}}, {{5}}, {{5}}, {{4, 5}}}, {{{0, 5}}, {{5}}, {{5}}, {{4, 5}}},
        {{big}, {{193}}, {{193}}, {{101, 193}}}},
       [](I x) -> Outputs {
         const Recompute guard;
         return {linear(layer_norm(x[0], x[1], x[2]), x[3]), linear(rms_norm(x[0], x[1]), x[3]),
                 linear(gelu(x[0]), x[3])}; }, 2e-5, 0.06},
      {"gelu_linear",
       {{{{3, 4}}, {{5, 4}}, {{5}}}, {{{4}}, {{5, 4}}, {{5}}}, {{{2, 0, 4}}, {{5, 4}}, {{5}}},
        {{{3, 0}}, {{5, 0}}, {{5}}}, {{{2, 3, 8}}, {{8, 8}}, {{8}}},
        {{big}, {{101, 193}}, {{101}}}},
       [](I x) -> Outputs { return {gelu_linear(x[0], x[1], x[2])}; }},
      {"gelu_linear.no_bias",
       {{{{3, 4}}, {{5, 4}}}, {{{2, 3, 8}}, {{8, 8}}}, {{big}, {{101, 193}}}},
       [](I x) -> Outputs { return {gelu_linear(x[0], x[1])}; }},
      {"gelu_linear.mixed",
       {{{{3, 4}}, {{5, 4}}, {{5}}}, {{{0, 4}}, {{5, 4}}, {{5}}}, {{{2, 3, 8}}, {{8, 8}}, {{8}}},
        {{big}, {{101, 193}}, {{101}}}},
       mixed([](I x) { return gelu_linear(x[0], x[1], x[2]); }), 0.03},
      {"gelu_linear.mixed_no_bias", {{{{3, 4}}, {{5, 4}}}, {{big}, {{101, 193}}}},
       mixed([](I x) { return gelu_linear(x[0], x[1]); }), 0.03},
      {"gelu_linear.recompute", {{{{3, 4}}, {{5, 4}}, {{5}}}, {{big}, {{101, 193}}, {{101}}}},
       [](I x) -> Outputs {
         const Recompute guard;
         return {gelu_linear(x[0], x[1], x[2])}; }},
      {"gelu_linear.mlp",
       {{{{3, 4}}, {{6, 4}}, {{6}}, {{5, 6}}, {{5}}}, {{{4}}, {{6, 4}}, {{6}}, {{1, 6}}, {{1}}},
        {{{2, 0, 4}}, {{6, 4}}, {{6}}, {{5, 6}}, {{5}}},
        {{{3, 0}}, {{6, 0}}, {{6}}, {{5, 6}}, {{5}}},
        {{{2, 3, 8}}, {{8, 8}}, {{8}}, {{8, 8}}, {{8}}},
        {{big}, {{101, 193}}, {{101}}, {{37, 101}}, {{37}}}},
       [](I x) -> Outputs { return {mlp(x[0], x[1], x[2], x[3], x[4])}; }, 2e-5},
      {"gelu_linear.mlp_mixed",
       {{{{3, 4}}, {{6, 4}}, {{5, 6}}}, {{{2, 3, 8}}, {{8, 8}}, {{8, 8}}},
        {{big}, {{101, 193}}, {{37, 101}}}},
       mixed([](I x) { return mlp(x[0], x[1], {}, x[2], {}); }), 0.03},
      {"causal_attention",
       {{{{3, 4}}, {{3, 4}}, {{3, 4}}}, {{{2, 5, 4}}, {{2, 5, 4}}, {{2, 5, 3}}},
        {{{1, 2, 1, 4}}, {{1, 2, 1, 4}}, {{1, 2, 1, 4}}}, {{{0, 3, 4}}, {{0, 3, 4}}, {{0, 3, 4}}},
        {{{2, 0, 4}}, {{2, 0, 4}}, {{2, 0, 4}}},
        {{{3, 257, 133}}, {{3, 257, 133}}, {{3, 257, 37}}}},
       [](I x) -> Outputs {
         return {scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true})}; }, 2e-5},
      {"scaled_dot_product_attention.full",
       {{{{3, 4}}, {{5, 4}}, {{5, 3}}}, {{{2, 1, 2, 4}}, {{2, 1, 3, 4}}, {{2, 1, 3, 4}}},
        {{{2, 0, 4}}, {{2, 3, 4}}, {{2, 3, 4}}},
        {{{1, 3, 4}}, {{5, 3, 4}}, {{5, 3, 4}}}, {{{5, 1, 3, 4}}, {{5, 2, 3, 4}}, {{2, 3, 4}}},
        {{{3, 257, 133}}, {{3, 131, 133}}, {{3, 131, 37}}}},
       [](I x) -> Outputs {
         return {scaled_dot_product_attention(x[0], x[1], x[2], {.scale = 0.3})}; }, 2e-5},
      {"scaled_dot_product_attention.upper_left", cross(),
       [](I x) -> Outputs { return {attend(x, {.is_causal = true})}; }, 2e-5},
      {"scaled_dot_product_attention.lower_right", cross(),
       [](I x) -> Outputs { return {attend(x, {.causal_lower_right = true})}; }, 2e-5},
      {"scaled_dot_product_attention.window",
       {{{{5, 4}}, {{5, 4}}, {{5, 3}}}, {{{2, 4, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 3}}},
        {{{2, 7, 4}}, {{2, 3, 4}}, {{2, 3, 3}}},
        {{{3, 257, 133}}, {{3, 131, 133}}, {{3, 131, 37}}}},
       [](I x) -> Outputs { return {attend(x, {.is_causal = true, .window = 2})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.window_lower_right", cross(),
       [](I x) -> Outputs { return {attend(x, {.causal_lower_right = true, .window = 3})}; },
       2e-5, 0.06},
      {"scaled_dot_product_attention.bool_mask", masks(mask, {3, 257, 1}),
       [](I x) -> Outputs { return {attend(x, {.attn_mask = x[3]})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.bias", masks(normal, {257, 131}),
       [](I x) -> Outputs { return {attend(x, {.attn_mask = x[3]})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.causal_mask", masks(mask, {3, 1, 131}), [](I x) -> Outputs {
         return {attend(x, {.attn_mask = x[3], .is_causal = true})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.bias_with_holes", masks(normal, {3, 1, 131}, true),
       [](I x) -> Outputs {
         return {attend(x,
                        {.attn_mask = masked_fill(x[3], x[4], -INFINITY),
                         .causal_lower_right = true})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.grouped",
       {{{{2, 3, 4}}, {{1, 5, 4}}, {{1, 5, 3}}}, {{{2, 6, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 3}}},
        {{{0, 3, 4}}, {{0, 3, 4}}, {{0, 3, 4}}}, {{{9, 257, 53}}, {{3, 131, 53}}, {{3, 131, 37}}}},
       [](I x) -> Outputs { return {attend(x, {.causal_lower_right = true})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.dropout", cross(), [](I x) -> Outputs {
         const ContextGuard same_mask;
         return {attend(x, {.dropout_p = 0.3})}; }, 2e-5, 0.06},
      {"scaled_dot_product_attention.all",
       {{{{2, 4, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 3}}, {{4, 1, 5}}, {{2, 1, 1, 5}, mask}},
        {{{3, 4, 257, 37}}, {{3, 2, 131, 37}}, {{3, 2, 131, 17}}, {{4, 1, 131}},
         {{3, 1, 1, 131}, mask}}},
       [](I x) -> Outputs {
         const ContextGuard same_mask;
         return {attend(x,
                        {.attn_mask = masked_fill(x[3], x[4], -INFINITY), .dropout_p = 0.2,
                         .is_causal = true, .scale = 0.4})};
       }, 2e-5, 0.06},
      {"attention_weights",
       {{{{3, 4}}, {{5, 4}}, {{5}, mask}}, {{{2, 4, 3, 4}}, {{2, 2, 5, 4}}, {{2, 1, 3, 1}, mask}},
        {{{2, 4}}, {{0, 4}}, {{2, 1}, mask}},
        {{{3, 257, 133}}, {{3, 131, 133}}, {{3, 1, 131}, mask}}},
       [](I x) -> Outputs {
         const ContextGuard same_mask;
         return {attention_weights(x[0], x[1],
                                   {.attn_mask = x[2], .dropout_p = 0.1,
                                    .causal_lower_right = true})}; }, 2e-5},
      {"seen_scores",
       {{{{3, 4}}, {{5, 4}}}, {{{2, 4, 3, 4}}, {{2, 2, 5, 4}}}, {{{2, 3, 4}}, {{2, 0, 4}}},
        {{{3, 257, 133}}, {{3, 131, 133}}}},
       [](I x) -> Outputs {
         return {attention_weights(x[0], x[1], {.is_causal = true, .window = 2})}; }, 2e-5},
      {"seen_product", cross(), [](I x) -> Outputs {
         const FlagGuard definition(&Context::composed, true);
         return {attend(x, {.is_causal = true})}; }, 2e-5},
      {"linear_cross_entropy.mean",
       {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{2, 3, 4}}, {{5, 4}}, {{2, 3}, ids, 5}},
        {{{2100, 53}}, {{101, 53}}, {{2100}, ids, 101}}},
       [](I x) -> Outputs { return {linear_cross_entropy(x[0], x[1], x[2], 2)}; }, 2e-5},
      {"linear_cross_entropy.sum",
       {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{0, 4}}, {{5, 4}}, {{0}, ids, 5}},
        {{big}, {{211, 193}}, {{3, 257}, ids, 211}}},
       [](I x) -> Outputs {
         return {linear_cross_entropy(x[0], x[1], x[2], -100, Reduction::sum)}; }, 2e-5, 0.06},
      {"linear_cross_entropy.z_loss",
       {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{2100, 53}}, {{101, 53}}, {{2100}, ids, 101}}},
       [](I x) -> Outputs {
         return {linear_cross_entropy(x[0], x[1], x[2], 2, Reduction::mean, 0.1),
                 linear_cross_entropy(x[0], x[1], x[2], 2, Reduction::none, 0.1)}; }, 2e-5},
      {"linear_cross_entropy.none",
       {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{2, 3, 4}}, {{5, 4}}, {{2, 3}, ids, 5}},
        {{{0, 4}}, {{5, 4}}, {{0}, ids, 5}}, {{{2100, 53}}, {{101, 53}}, {{2100}, ids, 101}}},
       [](I x) -> Outputs {
         return {linear_cross_entropy(x[0], x[1], x[2], 3, Reduction::none)}; }, 2e-5},

      {"linear_cross_entropy.mixed",
       {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{0, 4}}, {{5, 4}}, {{0}, ids, 5}},
        {{{2100, 53}}, {{101, 53}}, {{2100}, ids, 101}}},
       mixed([](I x) {
         return linear_cross_entropy(x[0], x[1], x[2], -100, Reduction::sum); }), 0.03},
      {"linear_cross_entropy.mixed_none",
       {{{{6, 4}}, {{5, 4}}, {{6}, ids, 5}}, {{{2100, 53}}, {{101, 53}}, {{2100}, ids, 101}}},
       mixed([](I x) { return linear_cross_entropy(x[0], x[1], x[2], 3, Reduction::none); }), 0.03},

      // ---- softmax, log_softmax, layer_norm, rms_norm
      {"softmax", {{{{2, 3}}}, {{{5}}}, {{{0, 2}}}, {{{2, 0}}}, {{big}}},
       [](I x) -> Outputs { return {softmax(x[0])}; }},
      {"softmax.dim", {{{{2, 3, 4}}}, {{{2, 0, 3}}}, {{big}}},
       [](I x) -> Outputs { return {softmax(x[0], 1)}; }},
      {"log_softmax", {{{{2, 3}}}, {{{5}}}, {{{0, 2}}}, {{{2, 0}}}, {{big}}},
       [](I x) -> Outputs { return {log_softmax(x[0])}; }},
      {"log_softmax.dim", {{{{2, 3, 4}}}, {{{2, 0, 3}}}, {{big}}},
       [](I x) -> Outputs { return {log_softmax(x[0], 0)}; }},
      {"layer_norm",
       {{{{3, 5}}, {{5}}, {{5}}}, {{{5}}, {{5}}, {{5}}}, {{{0, 2}}, {{2}}, {{2}}},
        {{{2, 0}}, {{0}}, {{0}}}, {{big}, {{193}}, {{193}}}},
       [](I x) -> Outputs { return {layer_norm(x[0], x[1], x[2])}; }},
      {"layer_norm.plain", {{{{3, 5}}}, {{{0, 2}}}, {{big}}},
       [](I x) -> Outputs { return {layer_norm(x[0], {}, {}, 1e-3)}; }},
      {"layer_norm.weight", {{{{3, 5}}, {{5}}}, {{{0, 2}}, {{2}}}, {{big}, {{193}}}},
       [](I x) -> Outputs { return {layer_norm(x[0], x[1])}; }},
      {"layer_norm.bias", {{{{3, 5}}, {{5}}}, {{{0, 2}}, {{2}}}, {{big}, {{193}}}},
       [](I x) -> Outputs { return {layer_norm(x[0], Tensor(), x[1])}; }},
      {"layer_norm.mixed",
       {{{{3, 5}}, {{5}}, {{5}}}, {{{0, 2}}, {{2}}, {{2}}}, {{big}, {{193}}, {{193}}}},
       mixed([](I x) { return layer_norm(x[0], x[1], x[2]); }), 0.03},
      {"layer_norm.mixed_weight", {{{{3, 5}}, {{5}}}, {{{0, 2}}, {{2}}}, {{big}, {{193}}}},
       mixed([](I x) { return layer_norm(x[0], x[1]); }), 0.03},
      {"add_layer_norm",
       {{{{3, 5}}, {{3, 5}}, {{5}}, {{5}}}, {{{5}}, {{5}}, {{5}}, {{5}}},
        {{{0, 2}}, {{0, 2}}, {{2}}, {{2}}}, {{{2, 0}}, {{2, 0}}, {{0}}, {{0}}},
        {{big}, {big}, {{193}}, {{193}}}},
       [](I x) -> Outputs { return pair_of(add_layer_norm(x[0], x[1], x[2], x[3])); }},
      {"add_layer_norm.plain", {{{{3, 5}}, {{3, 5}}}, {{{0, 2}}, {{0, 2}}}, {{big}, {big}}},
       [](I x) -> Outputs { return pair_of(add_layer_norm(x[0], x[1])); }},
      {"add_layer_norm.weight",
       {{{{3, 5}}, {{3, 5}}, {{5}}}, {{{0, 2}}, {{0, 2}}, {{2}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs { return pair_of(add_layer_norm(x[0], x[1], x[2])); }},
      {"add_layer_norm.sum_alone", {{{{3, 5}}, {{3, 5}}, {{5}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs { return {add_layer_norm(x[0], x[1], x[2], x[2]).first}; }},
      {"add_layer_norm.norm_alone", {{{{3, 5}}, {{3, 5}}, {{5}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs { return {add_layer_norm(x[0], x[1], x[2], x[2]).second}; }},
      {"add_layer_norm.dropout",
       {{{{3, 5}}, {{3, 5}}, {{5}}}, {{{0, 2}}, {{0, 2}}, {{2}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs {
         const ContextGuard same_mask;
         return pair_of(add_layer_norm(x[0], x[1], x[2], {}, 1e-5, 0.3)); }},
      {"add_layer_norm.mixed",
       {{{{3, 5}}, {{3, 5}}, {{5}}, {{5}}}, {{{0, 2}}, {{0, 2}}, {{2}}, {{2}}},
        {{big}, {big}, {{193}}, {{193}}}},
       [](I x) -> Outputs {
         const Autocast guard;
         return pair_of(add_layer_norm(x[0], narrow(x[1]), x[2], x[3])); }, 0.03},
      {"add_rms_norm",
       {{{{3, 5}}, {{3, 5}}, {{5}}}, {{{5}}, {{5}}, {{5}}}, {{{0, 2}}, {{0, 2}}, {{2}}},
        {{{2, 0}}, {{2, 0}}, {{0}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs { return pair_of(add_rms_norm(x[0], x[1], x[2])); }},
      {"add_rms_norm.plain", {{{{3, 5}}, {{3, 5}}}, {{{0, 2}}, {{0, 2}}}, {{big}, {big}}},
       [](I x) -> Outputs { return pair_of(add_rms_norm(x[0], x[1], {}, 1e-3)); }},
      {"add_rms_norm.sum_alone", {{{{3, 5}}, {{3, 5}}, {{5}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs { return {add_rms_norm(x[0], x[1], x[2]).first}; }},
      {"add_rms_norm.norm_alone", {{{{3, 5}}, {{3, 5}}, {{5}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs { return {add_rms_norm(x[0], x[1], x[2]).second}; }},
      {"add_rms_norm.dropout",
       {{{{3, 5}}, {{3, 5}}, {{5}}}, {{{0, 2}}, {{0, 2}}, {{2}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs {
         const ContextGuard same_mask;
         return pair_of(add_rms_norm(x[0], x[1], x[2], 1e-6, 0.3)); }},
      {"add_rms_norm.mixed",
       {{{{3, 5}}, {{3, 5}}, {{5}}}, {{{0, 2}}, {{0, 2}}, {{2}}}, {{big}, {big}, {{193}}}},
       [](I x) -> Outputs {
         const Autocast guard;
         return pair_of(add_rms_norm(x[0], narrow(x[1]), x[2])); }, 0.03},
      {"rms_norm.mixed", {{{{3, 5}}, {{5}}}, {{{0, 2}}, {{2}}}, {{big}, {{193}}}},
       mixed([](I x) { return rms_norm(x[0], x[1]); }), 0.03},
      {"rms_norm",
       {{{{3, 5}}, {{5}}}, {{{5}}, {{5}}}, {{{0, 2}}, {{2}}}, {{{2, 0}}, {{0}}}, {{big}, {{193}}}},
       [](I x) -> Outputs { return {rms_norm(x[0], x[1])}; }},
      {"rms_norm.plain", {{{{3, 5}}}, {{{0, 2}}}, {{big}}},
       [](I x) -> Outputs { return {rms_norm(x[0], {}, 1e-3)}; }},

      // ---- rotary, swiglu
      {"rotary", {{{{2, 3, 4}}}, {{{3, 2}}}, {{{2, 0, 4}}}, {{{2, 2, 5, 6}}}, {{big}}},
       [](I x) -> Outputs { return {rotate(x[0], x[0].size(-1) / 2, false)}; }},
      {"rotary.interleaved", {{{{2, 3, 4}}}, {{{3, 2}}}, {{{2, 0, 4}}}, {{big}}},
       [](I x) -> Outputs { return {rotate(x[0], x[0].size(-1) / 2, true)}; }},
      {"rotary.part", {{{{2, 3, 5}}}, {{{3, 2}}}, {{{2, 0, 4}}}, {{big}}},
       [](I x) -> Outputs { return {rotate(x[0], 1, false), rotate(x[0], 1, true)}; }},
      {"swiglu", two_like(), [](I x) -> Outputs { return {swiglu(x[0], x[1])}; }},
      {"swiglu.recompute", two_like(),
       [](I x) -> Outputs {
         const Recompute guard;
         return {swiglu(x[0], x[1]) * x[1]}; }},

      // ---- cross_entropy, embedding, dropout, gelu
      {"cross_entropy",
       {{{{4, 3}}, {{4}, ids, 3}}, {{{2, 3, 5}}, {{2, 3}, ids, 5}}, {{{5}}, {{}, ids, 5}},
        {{{0, 2}}, {{0}, ids, 2}}, {{big}, {{3, 257}, ids, 193}}},
       [](I x) -> Outputs { return {cross_entropy(x[0], x[1])}; }},
      {"cross_entropy.ignore",
       {{{{7, 3}}, {{7}, ids, 3}}, {{{0, 2}}, {{0}, ids, 2}}, {{big}, {{3, 257}, ids, 193}}},
       [](I x) -> Outputs { return {cross_entropy(x[0], x[1], 1)}; }},
      {"cross_entropy.z_loss",
       {{{{7, 3}}, {{7}, ids, 3}}, {{{0, 2}}, {{0}, ids, 2}}, {{big}, {{3, 257}, ids, 193}}},
       [](I x) -> Outputs { return {cross_entropy(x[0], x[1], 1, Reduction::none, 0.3)}; }},
      {"cross_entropy.sum",
       {{{{7, 3}}, {{7}, ids, 3}}, {{{0, 2}}, {{0}, ids, 2}}, {{big}, {{3, 257}, ids, 193}}},
       [](I x) -> Outputs { return {cross_entropy(x[0], x[1], 1, Reduction::sum)}; }},
      {"cross_entropy.none",
       {{{{7, 3}}, {{7}, ids, 3}}, {{{5}}, {{}, ids, 5}}, {{{0, 2}}, {{0}, ids, 2}},
        {{big}, {{3, 257}, ids, 193}}},
       [](I x) -> Outputs { return {cross_entropy(x[0], x[1], 1, Reduction::none)}; }},
      {"embedding",
       {{{{2, 3}, ids, 4}, {{4, 5}}}, {{{}, ids, 4}, {{4, 5}}}, {{{0}, ids, 4}, {{4, 2}}},
        {{{5}, ids, 4}, {{4, 0}}}, {{{3, 257}, ids, 601}, {{601, 193}}}},
       [](I x) -> Outputs { return {embedding(x[0], x[1])}; }},
      {"dropout", {{{{3, 5}}}, {{{}}}, {{{0, 2}}}, {{big}}},
       [](I x) -> Outputs { const ContextGuard same_mask; return {dropout(x[0], 0.3)}; }},
      {"checkpoint", {{{{2, 3}}, {{3}}}, {{{0, 2}}, {{2}}}, {{big}, {{193}}}}, [](I x) -> Outputs {
         return {checkpoint([](I y) { return tanh(y[0] * y[1]) + y[0]; }, {x[0], x[1]})}; }},
      {"gelu.erf", one(), [](I x) -> Outputs { return {gelu(x[0])}; }},
      {"gelu.tanh", one(), [](I x) -> Outputs { return {gelu(x[0], Gelu::tanh)}; }},
      // clang-format on
  };
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = make_cases();
  return cases;
}

}  // namespace ink
