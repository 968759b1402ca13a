// An undefined tensor, such as the gradient of a parameter that was not used, is an error that
// names the op and the argument, in every op and method.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "tests/support/error_of.h"

namespace ink {
namespace {

const std::string kWhy =
    " is undefined: it was never given a value, or it is the gradient of a tensor that no backward "
    "has reached";

struct Call {
  std::string op;
  int argument;  // 0: what a method is called on
  std::function<void()> run;
};

void expect_named(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    const std::string which =
        call.argument == 0 ? "the tensor" : "argument " + std::to_string(call.argument);
    EXPECT_EQ(error_of(call.run), call.op + ": " + which + kWhy);
  }
}

const Tensor u;

TEST(Undefined, InOpsOfOneTensor) {
  std::vector<Call> calls;
  using Op = Tensor (*)(const Tensor&);
  const std::vector<std::pair<const char*, Op>> unary{{"neg", neg},
                                                      {"exp", exp},
                                                      {"log", log},
                                                      {"sqrt", sqrt},
                                                      {"rsqrt", rsqrt},
                                                      {"abs", abs},
                                                      {"sign", sign},
                                                      {"sin", sin},
                                                      {"cos", cos},
                                                      {"tanh", tanh},
                                                      {"sigmoid", sigmoid},
                                                      {"relu", relu},
                                                      {"silu", silu},
                                                      {"erf", erf},
                                                      {"logical_not", logical_not},
                                                      {"isnan", isnan},
                                                      {"isfinite", isfinite},
                                                      {"max", max},
                                                      {"min", min},
                                                      {"contiguous", contiguous},
                                                      {"clone", clone}};
  for (const auto& [name, op] : unary) calls.push_back({name, 1, [op = op] { op(u); }});
  using Reduce = Tensor (*)(const Tensor&, const Shape&, Flag);
  const std::vector<std::pair<const char*, Reduce>> reductions{
      {"sum", sum},   {"mean", mean}, {"any", any},   {"all", all},
      {"amax", amax}, {"amin", amin}, {"prod", prod}, {"logsumexp", logsumexp}};
  for (const auto& [name, op] : reductions)
    calls.push_back({name, 1, [op = op] { op(u, {}, false); }});
  expect_named(calls);
  expect_named({{"mul", 1, [] { u * 2; }},
                {"add", 1, [] { 1 + u; }},
                {"sub", 1, [] { u - 1; }},
                {"sub", 1, [] { 1 - u; }},
                {"div", 1, [] { u / 2; }},
                {"div", 1, [] { 2 / u; }},
                {"neg", 1, [] { -u; }},
                {"pow", 1, [] { pow(u, 2); }},
                {"eq", 1, [] { static_cast<void>(u == 1); }},
                {"clamp", 1, [] { clamp(u, 0); }},
                {"gelu", 1, [] { gelu(u); }},
                {"var", 1, [] { var(u); }},
                {"std", 1, [] { ink::std(u); }},
                {"max", 1, [] { max(u, 0); }},
                {"argmax", 1, [] { argmax(u); }},
                {"cumsum", 1, [] { cumsum(u, 0); }},
                {"sort", 1, [] { sort(u); }},
                {"topk", 1, [] { topk(u, 1); }},
                {"sum_to", 1, [] { sum_to(u, {}); }},
                {"to", 1, [] { to(u, f64); }},
                {"to", 1, [] { to(u, cpu_device); }},
                {"tril", 1, [] { tril(u); }},
                {"flip", 1, [] { flip(u, {0}); }},
                {"repeat", 1, [] { repeat(u, {2}); }},
                {"one_hot", 1, [] { one_hot(u, 2); }},
                {"softmax", 1, [] { softmax(u); }},
                {"log_softmax", 1, [] { log_softmax(u); }},
                {"layer_norm", 1, [] { layer_norm(u); }},
                {"rms_norm", 1, [] { rms_norm(u); }},
                {"dropout", 1, [] { dropout(u, 0.5); }},
                {"split", 1, [] { split(u, 1); }},
                {"chunk", 1, [] { chunk(u, 2); }},
                {"multinomial", 1, [] { multinomial(u, 1); }},
                {"uniform_", 1, [] { uniform_(u); }},
                {"normal_", 1, [] { normal_(u); }}});
}

TEST(Undefined, InOpsOfSeveral) {
  const Tensor x = ones({2, 2}), ids = tensor({0, 1});
  expect_named(
      {{"add", 2, [&] { x + u; }},
       {"sub", 1, [&] { u - x; }},
       {"mul", 2, [&] { x* u; }},
       {"div", 1, [&] { u / x; }},
       {"pow", 2, [&] { pow(x, u); }},
       {"maximum", 2, [&] { maximum(x, u); }},
       {"lt", 1, [&] { static_cast<void>(u < x); }},
       {"logical_or", 2, [&] { logical_or(x, u); }},
       {"equal", 2, [&] { equal(x, u); }},
       {"isclose", 1, [&] { isclose(u, x); }},
       {"allclose", 2, [&] { allclose(x, u); }},
       {"where", 1, [&] { where(u, x, x); }},
       {"where", 3, [&] { where(x > 0, x, u); }},
       {"masked_fill", 2, [&] { masked_fill(x, u, 0); }},
       {"cat", 2,
        [&] {
          cat({x, u});
        }},
       {"stack", 1,
        [&] {
          stack({u, x});
        }},
       {"matmul", 2, [&] { matmul(x, u); }},
       {"dot", 1, [&] { dot(u, x); }},
       {"outer", 2, [&] { outer(x, u); }},
       {"gather", 2, [&] { gather(x, 0, u); }},
       {"scatter_add", 3, [&] { scatter_add(x, 0, ids, u); }},
       {"index_select", 2, [&] { index_select(x, 0, u); }},
       {"index", 2, [&] { x.index(u); }},
       {"linear", 2, [&] { linear(x, u); }},
       {"embedding", 1, [&] { embedding(u, x); }},
       {"cross_entropy", 2, [&] { cross_entropy(x, u); }},
       {"linear_cross_entropy", 3, [&] { linear_cross_entropy(x, x, u); }},
       {"mse_loss", 2, [&] { mse_loss(x, u); }},
       {"mlp", 4, [&] { mlp(x, x, {}, u, {}); }},
       {"gelu_linear", 1, [&] { gelu_linear(u, x, {}); }},
       {"add_layer_norm", 2, [&] { add_layer_norm(x, u, {}, {}); }},
       {"scaled_dot_product_attention", 3, [&] { scaled_dot_product_attention(x, x, u); }}});
}

TEST(Undefined, InMethods) {
  Tensor v, x = ones({2});
  expect_named({{"shape", 0, [] { u.shape(); }},
                {"dim", 0, [] { u.dim(); }},
                {"size", 0, [] { u.size(0); }},
                {"numel", 0, [] { u.numel(); }},
                {"dtype", 0, [] { u.dtype(); }},
                {"device", 0, [] { u.device(); }},
                {"options", 0, [] { u.options(); }},
                {"is_contiguous", 0, [] { u.is_contiguous(); }},
                {"storage", 0, [] { u.storage(); }},
                {"data", 0, [] { u.data<float>(); }},
                {"mutable_data", 0, [&] { v.mutable_data<float>(); }},
                {"item", 0, [] { u.item(); }},
                {"tolist", 0, [] { u.tolist(); }},
                {"detach", 0, [] { u.detach(); }},
                {"clone", 1, [] { u.clone(); }},
                {"view", 1, [] { u.view({1}); }},
                {"reshape", 1, [] { u.reshape({1}); }},
                {"transpose", 1, [] { u.transpose(0, 1); }},
                {"flatten", 0, [] { u.flatten(); }},
                {"index", 0, [] { u.index({0}); }},
                {"T", 0, [] { u.T(); }},
                {"fill_", 0, [&] { v.fill_(0); }},
                {"add_", 0, [&] { v += 1; }},
                {"mul_", 1, [&] { x *= u; }},
                {"copy_", 1, [&] { x.copy_(u); }},
                {"copy_", 1, [&] { x.index({0}) = u; }},
                {"index_put_", 1, [&] { x.index_put_({tensor({0})}, u); }},
                {"requires_grad_", 0, [&] { v.requires_grad_(); }},
                {"backward", 1, [] { u.backward(); }}});
  EXPECT_FALSE(u.defined() || u.requires_grad() || u.is_view() || u.grad().defined());
  std::ostringstream text;
  text << u;
  EXPECT_EQ(text.str(), "tensor(undefined)");
}

TEST(Undefined, AnOpOfOnesOwnThatGivesNothingIsNamed) {
  const Tensor x = ones({2}).requires_grad_();
  const auto vjp = [](const Tensor& dy) -> Grads { return {dy}; };
  EXPECT_EQ(error_of([&] { record("test_own", {x}, Tensor(), vjp); }),
            "test_own: the tensor" + kWhy);
}

// A hand-written update of a model, one of whose parameters was not used.
TEST(Undefined, AnUnusedParameterInAnUpdateLoop) {
  const Tensor used = ones({2}).requires_grad_(), unused = ones({2}).requires_grad_();
  sum(used).backward();
  const NoGrad no_grad;
  std::string error;
  for (Tensor p : {used, unused}) error = error_of([&] { p.sub_(p.grad() * 0.1); });
  EXPECT_EQ(error, "mul: argument 1" + kWhy);
}

}  // namespace
}  // namespace ink
