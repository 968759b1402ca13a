// One line an op: how it is called here with the arguments of PyTorch's.
#include "ops.h"
#include "autograd/random/generator.h"

#include <cmath>
#include <limits>

namespace ink::parity {
namespace {

using A = Arguments;

Outputs both(const ValuesIndices& y) { return {y.values, y.indices}; }

Reduction reduction(A& a) {
  const std::string name = a.text("reduction", "mean");
  return name == "mean" ? Reduction::mean : name == "sum" ? Reduction::sum : Reduction::none;
}

// f(input, other), where other may be a number.
template <class F>
Call with_other(F f, const char* other = "other") {
  return [=](A& a) -> Outputs {
    if (a.is_tensor(other)) return {f(a.t("input"), a.t(other))};
    return {f(a.t("input"), a.scalar(other))};
  };
}
Call unary(Tensor (*f)(const Tensor&)) {
  return [=](A& a) -> Outputs { return {f(a.t("input"))}; };
}
Call binary(Tensor (*f)(const Tensor&, const Tensor&), const char* other = "other") {
  return [=](A& a) -> Outputs { return {f(a.t("input"), a.t(other))}; };
}
Call reduce(Tensor (*f)(const Tensor&, const Shape&, Flag)) {
  return [=](A& a) -> Outputs { return {f(a.t("input"), a.dims("dim"), a.flag("keepdim"))}; };
}

// f(input, other, alpha), or f(input, other) where alpha is not given.
template <class F>
Call with_alpha(F f) {
  return [=](A& a) -> Outputs {
    const bool is_tensor = a.is_tensor("other");
    const Tensor x = a.t("input"), y = is_tensor ? a.t("other") : Tensor();
    if (!a.has("alpha")) return {is_tensor ? f(x, y) : f(x, a.scalar("other"))};
    const Scalar alpha = a.scalar("alpha");
    return {is_tensor ? f(x, y, alpha) : f(x, a.scalar("other"), alpha)};
  };
}

// A number, also where it comes as a tensor.
Scalar value_of(A& a) {
  return a.is_tensor("value") ? Scalar(a.t("value").item()) : a.scalar("value");
}
Tensor clamped(A& a) {
  if (a.is_tensor("min") || a.is_tensor("max")) return clamp(a.t("input"), a.t("min"), a.t("max"));
  return clamp(a.t("input"), a.maybe("min"), a.maybe("max"));
}

// A write in place into a copy, since a leaf refuses.
template <class F>
Call in_place(F f) {
  return [=](A& a) -> Outputs {
    Tensor x = a.t("input").clone();
    f(x, a);
    return {x};
  };
}

Index index_of(A& a, const Json& one) {
  if (one.is_object() && one.contains("t")) return a.made(one);
  if (one.is_null()) return None;
  if (one.is_string()) return Ellipsis;
  if (one.is_number()) return one.get<int64_t>();
  const auto end = [&](int i) {
    const Json& value = one["slice"][static_cast<size_t>(i)];
    return value.is_null() ? std::nullopt : std::optional<int64_t>(value.get<int64_t>());
  };
  return Slice(end(0), end(1), end(2).value_or(1));
}

// input[indices], of which there are at most five.
Tensor indexed(A& a) {
  std::vector<Index> all;
  for (const Json& one : a["indices"]) all.push_back(index_of(a, one));
  const Tensor x = a.t("input");
  switch (all.size()) {
    case 0:
      return x.index({});
    case 1:
      // PyTorch's x[:] is not its x[:,], which the cases hold.
      return std::holds_alternative<Slice>(all[0].value) ? x.index({all[0]}) : x[all[0]];
    case 2:
      return x.index({all[0], all[1]});
    case 3:
      return x.index({all[0], all[1], all[2]});
    case 4:
      return x.index({all[0], all[1], all[2], all[3]});
    default:
      return x.index({all[0], all[1], all[2], all[3], all[4]});
  }
}

// A norm over the last dimensions, by way of one that has them as one.
template <class Norm>
Tensor over_last(A& a, const char* shown, Norm norm) {
  const Tensor x = a.t("input");
  const Shape sizes = a.dims("normalized_shape");
  Shape flat = x.shape();
  for (int64_t i = 0; i < sizes.size(); ++i) {
    INK_CHECK(flat.size() > 0 && flat.back() == sizes[sizes.size() - 1 - i], a.op,
              ": expected the last sizes of ", x.shape(), ", got ", sizes);
    flat.erase(flat.size() - 1);
  }
  flat.push_back(sizes.numel());
  const auto line = [](const Tensor& p) { return p.defined() ? p.flatten() : p; };
  if (sizes.size() == 1) return norm(x, a.t("weight"), a.t("bias"));
  const Tensor y = norm(x.reshape(flat), line(a.t("weight")), line(a.t("bias")));
  return shown_as(shown, y.reshape(x.shape()));
}

ClassOptions class_options(A& a, const Tensor& x) {
  ClassOptions options;
  options.weight = a.t("weight");
  options.ignore_index = a.i("ignore_index", -100);
  options.reduction = reduction(a);
  options.label_smoothing = a.number("label_smoothing");
  options.dim = x.dim() > 1 ? 1 : 0;
  return options;
}

std::map<std::string, Call> make() {
  std::map<std::string, Call> ops;
  // ---- elementwise
  ops["add"] = with_alpha([](const auto&... x) { return add(x...); });
  ops["sub"] = with_alpha([](const auto&... x) { return sub(x...); });
  ops["mul"] = with_other([](const Tensor& a, const auto& b) { return mul(a, b); });
  ops["div"] = with_other([](const Tensor& a, const auto& b) { return div(a, b); });
  ops["atan2"] = binary(atan2);
  ops["clamp_min"] =
      with_other([](const Tensor& x, const auto& min) { return clamp_min(x, min); }, "min");
  ops["clamp_max"] =
      with_other([](const Tensor& x, const auto& max) { return clamp_max(x, max); }, "max");
  ops["rsub"] = [](A& a) -> Outputs { return {a.scalar("other") - a.t("input")}; };
  ops["rdiv"] = [](A& a) -> Outputs { return {a.scalar("other") / a.t("input")}; };
  ops["pow"] = with_other([](const Tensor& a, const auto& b) { return pow(a, b); }, "exponent");
  ops["maximum"] = binary(maximum);
  ops["minimum"] = binary(minimum);
  ops["eq"] = with_other([](const Tensor& a, const auto& b) { return a == b; });
  ops["ne"] = with_other([](const Tensor& a, const auto& b) { return a != b; });
  ops["lt"] = with_other([](const Tensor& a, const auto& b) { return a < b; });
  ops["le"] = with_other([](const Tensor& a, const auto& b) { return a <= b; });
  ops["gt"] = with_other([](const Tensor& a, const auto& b) { return a > b; });
  ops["ge"] = with_other([](const Tensor& a, const auto& b) { return a >= b; });
  ops["logical_and"] = binary(logical_and);
  ops["logical_or"] = binary(logical_or);
  ops["logical_xor"] = binary(logical_xor);
  ops["logical_not"] = unary(logical_not);
  ops["isnan"] = unary(isnan);
  ops["isfinite"] = unary(isfinite);
  for (const auto& [name, f] :
       std::map<std::string, Tensor (*)(const Tensor&)>{{"neg", neg},
                                                        {"abs", abs},
                                                        {"sign", sign},
                                                        {"relu", relu},
                                                        {"exp", exp},
                                                        {"sqrt", sqrt},
                                                        {"rsqrt", rsqrt},
                                                        {"sin", sin},
                                                        {"cos", cos},
                                                        {"tanh", tanh},
                                                        {"sigmoid", sigmoid},
                                                        {"floor", floor},
                                                        {"ceil", ceil},
                                                        {"round", round},
                                                        {"trunc", trunc},
                                                        {"log1p", log1p},
                                                        {"expm1", expm1},
                                                        {"square", square},
                                                        {"isinf", isinf},
                                                        {"erf", erf},
                                                        {"log", log},
                                                        {"silu", silu},
                                                        {"contiguous", contiguous},
                                                        {"clone", clone}})
    ops[name] = unary(f);
  ops["reciprocal"] = [](A& a) -> Outputs { return {1.0 / a.t("input")}; };
  ops["gelu"] = [](A& a) -> Outputs {
    return {gelu(a.t("input"), a.text("approximate", "none") == "tanh" ? Gelu::tanh : Gelu::erf)};
  };
  ops["clamp"] = [](A& a) -> Outputs { return {clamped(a)}; };
  ops["where"] = [](A& a) -> Outputs {
    const Tensor condition = a.t("condition");
    if (!a.is_tensor("input") && !a.is_tensor("other"))
      return {where(condition, a.scalar("input"), a.scalar("other"))};
    if (!a.is_tensor("input")) return {where(condition, a.scalar("input"), a.t("other"))};
    if (!a.is_tensor("other")) return {where(condition, a.t("input"), a.scalar("other"))};
    return {where(condition, a.t("input"), a.t("other"))};
  };
  ops["remainder"] = with_other([](const Tensor& a, const auto& b) { return a % b; });
  ops["rpow"] = [](A& a) -> Outputs { return {pow(a.scalar("self"), a.t("exponent"))}; };
  ops["bitwise_and"] = binary([](const Tensor& a, const Tensor& b) { return a & b; });
  ops["bitwise_or"] = binary([](const Tensor& a, const Tensor& b) { return a | b; });
  ops["bitwise_xor"] = binary([](const Tensor& a, const Tensor& b) { return a ^ b; });
  ops["bitwise_not"] = unary([](const Tensor& a) { return ~a; });
  ops["softplus"] = [](A& a) -> Outputs {
    return {softplus(a.t("input"), a.number("beta", 1), a.number("threshold", 20))};
  };
  ops["leaky_relu"] = [](A& a) -> Outputs {
    return {leaky_relu(a.t("input"), a.number("negative_slope", 0.01))};
  };
  ops["elu"] = [](A& a) -> Outputs { return {elu(a.t("input"), a.number("alpha", 1))}; };
  ops["masked_fill"] = [](A& a) -> Outputs {
    return {masked_fill(a.t("input"), a.t("mask"), value_of(a))};
  };
  ops["isclose"] = [](A& a) -> Outputs {
    return {isclose(a.t("input"), a.t("other"), a.number("rtol", 1e-5), a.number("atol", 1e-8),
                    a.flag("equal_nan"))};
  };
  // ---- reductions
  ops["sum"] = reduce(sum);
  ops["mean"] = reduce(mean);
  ops["any"] = reduce(any);
  ops["all"] = reduce(all);
  ops["amax"] = reduce(amax);
  ops["amin"] = reduce(amin);
  ops["prod"] = reduce(prod);
  ops["logsumexp"] = reduce(logsumexp);
  ops["var"] = [](A& a) -> Outputs {
    return {var(a.t("input"), a.dims("dim"), a.number("correction", 1), a.flag("keepdim"))};
  };
  ops["std"] = [](A& a) -> Outputs {
    return {std(a.t("input"), a.dims("dim"), a.number("correction", 1), a.flag("keepdim"))};
  };
  ops["var_mean"] = [](A& a) -> Outputs {
    const auto [var, mean] =
        var_mean(a.t("input"), a.dims("dim"), a.number("correction", 1), a.flag("keepdim"));
    return {var, mean};
  };
  ops["norm"] = [](A& a) -> Outputs {
    return {norm(a.t("input"), a.number("p", 2), a.dims("dim"), a.flag("keepdim"))};
  };
  ops["max"] = [](A& a) -> Outputs {
    if (a.is_tensor("other")) return {maximum(a.t("input"), a.t("other"))};
    if (!a.has("dim")) return {max(a.t("input"))};
    return both(max(a.t("input"), a.i("dim"), a.flag("keepdim")));
  };
  ops["min"] = [](A& a) -> Outputs {
    if (!a.has("dim")) return {min(a.t("input"))};
    return both(min(a.t("input"), a.i("dim"), a.flag("keepdim")));
  };
  ops["argmax"] = [](A& a) -> Outputs {
    return {argmax(a.t("input"), a.maybe_i("dim"), a.flag("keepdim"))};
  };
  ops["argmin"] = [](A& a) -> Outputs {
    return {argmin(a.t("input"), a.maybe_i("dim"), a.flag("keepdim"))};
  };
  ops["cumsum"] = [](A& a) -> Outputs { return {cumsum(a.t("input"), a.i("dim"))}; };
  ops["cumprod"] = [](A& a) -> Outputs { return {cumprod(a.t("input"), a.i("dim"))}; };
  ops["argsort"] = [](A& a) -> Outputs {
    return {argsort(a.t("input"), a.i("dim", -1), a.flag("descending"))};
  };
  ops["sort"] = [](A& a) { return both(sort(a.t("input"), a.i("dim", -1), a.flag("descending"))); };
  ops["topk"] = [](A& a) {
    return both(topk(a.t("input"), a.i("k"), a.i("dim", -1), a.flag("largest", true)));
  };
  // ---- views and copies
  ops["view"] = [](A& a) -> Outputs { return {a.t("input").view(a.dims("shape"))}; };
  ops["reshape"] = [](A& a) -> Outputs { return {reshape(a.t("input"), a.dims("shape"))}; };
  ops["flatten"] = [](A& a) -> Outputs {
    return {a.t("input").flatten(a.i("start_dim"), a.i("end_dim", -1))};
  };
  ops["transpose"] = [](A& a) -> Outputs {
    return {transpose(a.t("input"), a.i("dim0"), a.i("dim1"))};
  };
  ops["permute"] = [](A& a) -> Outputs { return {permute(a.t("input"), a.dims("dims"))}; };
  ops["squeeze"] = [](A& a) -> Outputs { return {squeeze(a.t("input"), a.maybe_i("dim"))}; };
  ops["unsqueeze"] = [](A& a) -> Outputs { return {unsqueeze(a.t("input"), a.i("dim"))}; };
  ops["expand"] = [](A& a) -> Outputs { return {expand(a.t("input"), a.dims("size"))}; };
  ops["select"] = [](A& a) -> Outputs { return {select(a.t("input"), a.i("dim"), a.i("index"))}; };
  ops["narrow"] = [](A& a) -> Outputs {
    return {narrow(a.t("input"), a.i("dim"), a.i("start"), a.i("length"))};
  };
  ops["split"] = [](A& a) -> Outputs {
    if (!a.is_list("split_size_or_sections"))
      return split(a.t("tensor"), a.i("split_size_or_sections"), a.i("dim"));
    const auto sizes = a["split_size_or_sections"].get<std::vector<int64_t>>();
    return split(a.t("tensor"), sizes, a.i("dim"));
  };
  ops["chunk"] = [](A& a) -> Outputs { return chunk(a.t("input"), a.i("chunks"), a.i("dim")); };
  ops["unbind"] = [](A& a) -> Outputs { return unbind(a.t("input"), a.i("dim")); };
  ops["diagonal"] = [](A& a) -> Outputs {
    return {diagonal(a.t("input"), a.i("offset"), a.i("dim1", 0), a.i("dim2", 1))};
  };
  ops["unfold"] = [](A& a) -> Outputs {
    return {unfold(a.t("input"), a.i("dimension"), a.i("size"), a.i("step"))};
  };
  ops["pad"] = [](A& a) -> Outputs {
    return {pad(a.t("input"), a.dims("pad"), a.has("value") ? a.scalar("value") : Scalar(0))};
  };
  ops["repeat_interleave"] = [](A& a) -> Outputs {
    if (a.is_tensor("repeats"))
      return {repeat_interleave(a.t("input"), a.t("repeats"), a.maybe_i("dim"))};
    return {repeat_interleave(a.t("input"), a.i("repeats"), a.maybe_i("dim"))};
  };
  ops["concat"] = [](A& a) -> Outputs { return {concat(a.ts("tensors"), a.i("dim"))}; };
  ops["to"] = [](A& a) -> Outputs { return {to(a.t("input"), a.dtype().dtype)}; };
  ops["cat"] = [](A& a) -> Outputs { return {cat(a.ts("tensors"), a.i("dim"))}; };
  ops["stack"] = [](A& a) -> Outputs { return {stack(a.ts("tensors"), a.i("dim"))}; };
  ops["repeat"] = [](A& a) -> Outputs { return {repeat(a.t("input"), a.dims("repeats"))}; };
  ops["flip"] = [](A& a) -> Outputs { return {flip(a.t("input"), a.dims("dims"))}; };
  ops["roll"] = [](A& a) -> Outputs {
    return {roll(a.t("input"), a.dims("shifts"), a.dims("dims"))};
  };
  ops["diag"] = [](A& a) -> Outputs { return {diag(a.t("input"), a.i("diagonal"))}; };
  ops["trace"] = unary(trace);
  ops["tril"] = [](A& a) -> Outputs { return {tril(a.t("input"), a.i("diagonal"))}; };
  ops["triu"] = [](A& a) -> Outputs { return {triu(a.t("input"), a.i("diagonal"))}; };
  // ---- products
  ops["matmul"] = binary(matmul);
  ops["dot"] = binary(dot);
  ops["outer"] = binary(outer, "vec2");
  ops["bmm"] = binary(bmm, "mat2");
  ops["einsum"] = [](A& a) -> Outputs {
    return {einsum(a.text("equation", ""), a.ts("operands"))};
  };
  // ---- ids
  ops["index"] = [](A& a) -> Outputs { return {indexed(a)}; };
  ops["nonzero"] = unary(nonzero);
  ops["masked_select"] = binary(masked_select, "mask");
  ops["scatter"] = [](A& a) -> Outputs {
    if (a.is_tensor("src")) return {scatter(a.t("input"), a.i("dim"), a.t("index"), a.t("src"))};
    return {scatter(a.t("input"), a.i("dim"), a.t("index"), a.scalar("src"))};
  };
  ops["gather"] = [](A& a) -> Outputs { return {gather(a.t("input"), a.i("dim"), a.t("index"))}; };
  ops["scatter_add"] = [](A& a) -> Outputs {
    return {scatter_add(a.t("input"), a.i("dim"), a.t("index"), a.t("src"))};
  };
  ops["index_select"] = [](A& a) -> Outputs {
    return {index_select(a.t("input"), a.i("dim"), a.t("index"))};
  };
  ops["index_put"] = [](A& a) -> Outputs {
    return {index_put(a.t("input"), a.ts("indices"), a.t("values"), a.flag("accumulate"))};
  };
  ops["one_hot"] = [](A& a) -> Outputs { return {one_hot(a.t("input"), a.i("num_classes", -1))}; };
  ops["embedding"] = [](A& a) -> Outputs {
    if (!a.has("padding_idx")) return {embedding(a.t("input"), a.t("weight"))};
    return {embedding(a.t("input"), a.t("weight"), a.i("padding_idx"))};
  };
  // ---- fused
  ops["linear"] = [](A& a) -> Outputs {
    return {linear(a.t("input"), a.t("weight"), a.t("bias"))};
  };
  ops["softmax"] = [](A& a) -> Outputs { return {softmax(a.t("input"), a.i("dim"))}; };
  ops["log_softmax"] = [](A& a) -> Outputs { return {log_softmax(a.t("input"), a.i("dim"))}; };
  ops["layer_norm"] = [](A& a) -> Outputs {
    return {layer_norm(a.t("input"), a.dims("normalized_shape"), a.t("weight"), a.t("bias"),
                       a.number("eps", 1e-5))};
  };
  ops["group_norm"] = [](A& a) -> Outputs {
    return {group_norm(a.t("input"), a.i("num_groups"), a.t("weight"), a.t("bias"),
                       a.number("eps", 1e-5))};
  };
  ops["rms_norm"] = [](A& a) -> Outputs {
    return {over_last(a, a.t("input").dtype() == bf16 ? "to_copy" : "mul",
                      [&](const Tensor& x, const Tensor& w, const Tensor&) {
                        // PyTorch's default is the dtype's own eps.
                        const double eps = x.dtype() == f64   ? 0x1p-52
                                           : x.dtype() == f32 ? 0x1p-23
                                                              : 0x1p-7;
                        return rms_norm(x, w, a.number("eps", eps));
                      })};
  };
  ops["cross_entropy"] = [](A& a) -> Outputs {
    const Tensor x = a.t("input");
    return {cross_entropy(x, a.t("target"), class_options(a, x))};
  };
  ops["nll_loss"] = [](A& a) -> Outputs {
    const Tensor x = a.t("input");
    return {nll_loss(x, a.t("target"), class_options(a, x))};
  };
  ops["l1_loss"] = [](A& a) -> Outputs {
    return {l1_loss(a.t("input"), a.t("target"), reduction(a))};
  };
  ops["smooth_l1_loss"] = [](A& a) -> Outputs {
    return {smooth_l1_loss(a.t("input"), a.t("target"), reduction(a), a.number("beta", 1))};
  };
  ops["binary_cross_entropy_with_logits"] = [](A& a) -> Outputs {
    return {binary_cross_entropy_with_logits(a.t("input"), a.t("target"), reduction(a))};
  };
  ops["binary_cross_entropy"] = [](A& a) -> Outputs {
    return {binary_cross_entropy(a.t("input"), a.t("target"), reduction(a))};
  };
  ops["kl_div"] = [](A& a) -> Outputs {
    return {kl_div(a.t("input"), a.t("target"), reduction(a), a.flag("log_target"))};
  };
  ops["mse_loss"] = [](A& a) -> Outputs {
    return {mse_loss(a.t("input"), a.t("target"), reduction(a))};
  };
  ops["scaled_dot_product_attention"] = [](A& a) -> Outputs {
    AttentionOptions options;
    options.attn_mask = a.t("attn_mask");
    options.dropout_p = a.number("dropout_p");
    options.is_causal = a.flag("is_causal");
    if (a.has("scale")) options.scale = a.number("scale");
    return {scaled_dot_product_attention(a.t("query"), a.t("key"), a.t("value"), options)};
  };
  // ---- factories and random values
  ops["full"] = [](A& a) -> Outputs {
    return {full(a.dims("size"), a.scalar("fill_value"), a.dtype())};
  };
  ops["arange"] = [](A& a) -> Outputs {
    return {arange(a.number("start"), a.number("end"), a.number("step", 1), a.dtype())};
  };
  ops["eye"] = [](A& a) -> Outputs { return {eye(a.i("n"), a.i("m", a.i("n")), a.dtype())}; };
  ops["linspace"] = [](A& a) -> Outputs {
    return {linspace(a.number("start"), a.number("end"), a.i("steps"), a.dtype())};
  };
  ops["rand"] = [](A& a) -> Outputs { return {rand(a.dims("size"), a.dtype())}; };
  ops["randn"] = [](A& a) -> Outputs { return {randn(a.dims("size"), a.dtype())}; };
  ops["randint"] = [](A& a) -> Outputs {
    return {randint(a.i("low"), a.i("high"), a.dims("size"), a.dtype())};
  };
  ops["randperm"] = [](A& a) -> Outputs { return {randperm(a.i("n"))}; };
  ops["multinomial"] = [](A& a) -> Outputs {
    return {multinomial(a.t("input"), a.i("num_samples"), a.flag("replacement"))};
  };
  ops["dropout"] = [](A& a) -> Outputs {
    const ImitateTorch guard(BernoulliRule::plain);
    return {dropout(a.t("input"), a.number("p"), a.flag("training"))};
  };
  // ---- in place
  const auto arithmetic = [](auto with_tensor, auto with_number) {
    return in_place([=](Tensor& x, A& a) {
      a.is_tensor("other") ? with_tensor(x, a.t("other")) : with_number(x, a.scalar("other"));
    });
  };
  ops["add_"] = arithmetic([](Tensor& x, const Tensor& y) { x += y; },
                           [](Tensor& x, const Scalar& y) { x += y; });
  ops["sub_"] = arithmetic([](Tensor& x, const Tensor& y) { x -= y; },
                           [](Tensor& x, const Scalar& y) { x -= y; });
  ops["mul_"] = arithmetic([](Tensor& x, const Tensor& y) { x *= y; },
                           [](Tensor& x, const Scalar& y) { x *= y; });
  ops["div_"] = arithmetic([](Tensor& x, const Tensor& y) { x /= y; },
                           [](Tensor& x, const Scalar& y) { x /= y; });
  ops["remainder_"] = arithmetic([](Tensor& x, const Tensor& y) { x %= y; },
                                 [](Tensor& x, const Scalar& y) { x %= y; });
  ops["copy_"] = in_place([](Tensor& x, A& a) { x.copy_(a.t("other")); });
  ops["fill_"] = in_place([](Tensor& x, A& a) { x.fill_(a.scalar("value")); });
  ops["masked_fill_"] = in_place([](Tensor& x, A& a) { x.masked_fill_(a.t("mask"), value_of(a)); });
  ops["index_put_"] = in_place(
      [](Tensor& x, A& a) { x.index_put_(a.ts("indices"), a.t("values"), a.flag("accumulate")); });
  for (const auto& [name, f] :
       std::map<std::string, Tensor& (Tensor::*)()>{{"exp_", &Tensor::exp_},
                                                    {"log_", &Tensor::log_},
                                                    {"sqrt_", &Tensor::sqrt_},
                                                    {"neg_", &Tensor::neg_},
                                                    {"abs_", &Tensor::abs_},
                                                    {"tanh_", &Tensor::tanh_},
                                                    {"sigmoid_", &Tensor::sigmoid_},
                                                    {"relu_", &Tensor::relu_},
                                                    {"square_", &Tensor::square_},
                                                    {"floor_", &Tensor::floor_}})
    ops[name] = in_place([f = f](Tensor& x, A&) { (x.*f)(); });
  ops["pow_"] = in_place([](Tensor& x, A& a) {
    a.is_tensor("exponent") ? x.pow_(a.t("exponent")) : x.pow_(a.scalar("exponent"));
  });
  ops["clamp_"] = in_place([](Tensor& x, A& a) {
    const bool tensors = a.is_tensor("min") || a.is_tensor("max");
    tensors ? x.clamp_(a.t("min"), a.t("max")) : x.clamp_(a.maybe("min"), a.maybe("max"));
  });
  ops["uniform_"] = in_place([](Tensor& x, A&) { uniform_(x); });
  ops["normal_"] = in_place([](Tensor& x, A&) { normal_(x); });
  return ops;
}

}  // namespace

const std::map<std::string, Call>& ops() {
  static const std::map<std::string, Call> all = make();
  return all;
}

}  // namespace ink::parity
