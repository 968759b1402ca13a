// Scaled dot-product attention of queries q (..., T, d), keys k (..., S, d), values v (..., S, dv).
//   s_ij = scale q_i . k_j + mask_ij,   p_ij = softmax over j of s_ij   (over the j that i may see)
//   out_i = sum_j m_ij p_ij v_j,   m: dropout's mask
//   dv_j = sum_i m_ij p_ij dout_i,   ds_ij = p_ij (m_ij dout_i . v_j - dout_i . out_i) = dmask_ij
//   dq_i = scale sum_j ds_ij k_j,   dk_j = scale sum_i ds_ij q_i
// The kernels (attention/forward.cpp, attention/backward.cpp) never hold more scores than those of
// two tiles; backward computes p again from the saved log-sum-exp: p_ij = exp(s_ij - lse_i). Dao et
// al. 2022, algorithms 1 and 4.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/kernels/attention.h"
#include "autograd/loops/strided_loop.h"
#include "autograd/random/dropout_mask.h"

namespace ink {
namespace {

// x (..., H_kv, S, d) with each head repeated `times` times, one after the other: a view if once.
Tensor repeat_heads(const Tensor& x, int64_t times) {
  if (times == 1) return x;
  const int64_t heads = x.dim() - 3;
  Shape sizes = x.shape();
  sizes.insert(heads + 1, times);
  const Tensor repeated = expand(x.unsqueeze(heads + 1), sizes);
  sizes.erase(heads + 1);
  sizes[heads] *= times;
  return reshape(repeated, sizes);
}

// The options for a problem, with defaults filled in. The mask is bool or has the scores' dtype.
struct Problem {
  AttentionRule rule;
  Tensor mask;
  int64_t group;  // query heads that share a head of keys
  DType dtype;    // of the scores
  bool masked;    // may a query see less than all keys?
};

constexpr double kNever = -std::numeric_limits<double>::infinity();

// True where the options hide a score, broadcasts to (..., T, S); undefined if they hide nothing.
Tensor hidden_by(const Tensor& q, const Tensor& k, const Problem& problem) {
  const Tensor& mask = problem.mask;
  const int64_t queries = q.size(-2), keys = k.size(-2);
  const int64_t diagonal = problem.rule.diagonal, window = problem.rule.window;
  Tensor hidden;
  if (mask.defined()) {
    hidden = mask.is_floating() ? mask == kNever : logical_not(mask);
    if (mask.dim() < 2) hidden = hidden.view({1, mask.numel()});
  }
  if (diagonal >= keys) return hidden;
  const Tensor i = arange(static_cast<double>(queries), {i64, q.device()}),
               j = arange(static_cast<double>(keys), {i64, q.device()}),
               last = (i + diagonal).unsqueeze(1);
  Tensor far = j > last;
  if (window > 0) far = logical_or(far, j <= last - window);
  return hidden.defined() ? logical_or(hidden, far) : far;
}

// The two products of the definition, over the pairs that are not hidden. Each is the other's
// derivative, so what is hidden reaches no value and no gradient of any order, be it NaN.
//   seen_scores:   s_ij = a_i . b_j, or 0 where hidden
//   seen_product:  y_i = sum_j w_ij x_j over the j that are not hidden
//   da = seen_product(ds, b),  db = seen_product(ds^T, a),  dw = seen_scores(dy, x),
//   dx = seen_product(w^T, dy)
Tensor seen_product(const Tensor& w, const Tensor& x, const Tensor& hidden);

Tensor seen_scores(const Tensor& a, const Tensor& b, const Tensor& hidden) {
  if (!hidden.defined()) return matmul(a, transpose(b, -2, -1));
  const auto compute = [&] {
    const NoGrad no_grad;
    return masked_fill(matmul(a, transpose(b, -2, -1)), hidden, 0);
  };
  return record("seen_scores", {a, b}, compute(),
                [a = Saved::input(a), b = Saved::input(b), hidden](const Tensor& ds) -> Grads {
                  return {seen_product(ds, *b, hidden),
                          seen_product(transpose(ds, -2, -1), *a, transpose(hidden, -2, -1))};
                });
}

// The product leaves NaN and infinities of x out. How many of them y_i sees, and with which signs,
// says whether y_i is finite, infinite or NaN.
Tensor value_of_seen_product(const Tensor& weights, const Tensor& x, const Tensor& hidden) {
  const NoGrad no_grad;
  const auto odd = [](const Tensor& y) { return logical_not(isfinite(y)); };
  const DType dtype = weights.dtype();
  const Tensor w = masked_fill(weights, hidden, 0), infinite = odd(x),
               signs = sign(masked_fill(x, logical_not(isinf(x)), 0)),
               terms = matmul(masked_fill(ones_like(w), hidden, 0), infinite.to(dtype)),
               sum = matmul(sign(masked_fill(w, isnan(w), 0)), signs),
               limit = masked_fill(sum * INFINITY, abs(sum) < terms, NAN);
  return matmul(w, masked_fill(x, infinite, 0)) + masked_fill(limit, terms == 0, 0);
}

Tensor seen_product(const Tensor& w, const Tensor& x, const Tensor& hidden) {
  if (!hidden.defined()) return matmul(w, x);
  return record("seen_product", {w, x}, value_of_seen_product(w, x, hidden),
                [w = Saved::input(w), x = Saved::input(x), hidden](const Tensor& dy) -> Grads {
                  return {seen_scores(dy, *x, hidden),
                          seen_product(transpose(*w, -2, -1), dy, transpose(hidden, -2, -1))};
                });
}

// The scale, the mask and the softmax of the formula, then dropout. Those of hidden pairs are 0,
// except in rows that are NaN.
Tensor weights_composed(const Tensor& q, const Tensor& k, const Problem& problem,
                        const Tensor& hidden) {
  const auto& [rule, mask, group, dtype, masked] = problem;
  const bool as_torch = context().imitate_torch.has_value();
  const Tensor keys = repeat_heads(k.to(dtype), group);
  Tensor s = seen_scores(q.to(dtype), keys, as_torch ? Tensor() : hidden) * rule.scale;
  if (mask.defined() && mask.is_floating()) s = s + mask;
  if (hidden.defined()) s = masked_fill(s, hidden, kNever);  // even if it is NaN
  if (!masked || as_torch) return dropout(softmax(s), rule.dropout_p);
  const Tensor none = all(s == kNever, {-1}, true);  // their softmax would be 0 / 0
  return dropout(masked_fill(softmax(masked_fill(s, none, 0)), none, 0), rule.dropout_p);
}

Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v,
                          const Problem& problem) {
  const Tensor hidden = hidden_by(q, k, problem), weights = weights_composed(q, k, problem, hidden),
               values = repeat_heads(v.to(problem.dtype), problem.group);
  return seen_product(weights, values, context().imitate_torch ? Tensor() : hidden).to(q.dtype());
}

// dq, dk, dv and dmask in basic ops, so that they can be differentiated again. inputs: q, k, v,
// mask.
Grads gradients_composed(const std::vector<Tensor>& inputs, const Tensor& dout,
                         const Problem& problem) {
  const ContextGuard guard;
  context().random = problem.rule.random;  // the same dropout again, whoever seeds since then
  context().random.given_by = 0;
  context().imitate_torch.reset();
  const auto definition = [&](const std::vector<Tensor>& xs) {
    Problem with_mask = problem;
    with_mask.mask = xs[3];
    return attention_composed(xs[0], xs[1], xs[2], with_mask);
  };
  return differentiate(definition, inputs, dout);
}

// The dimensions before the last three.
Shape batch_shape(const Tensor& x) {
  Shape batch = x.shape();
  for (int i = 0; i < 3 && !batch.empty(); ++i) batch.erase(batch.size() - 1);
  return batch;
}
int64_t head_count(const Tensor& x) { return x.dim() < 3 ? 1 : x.size(-3); }

// x with `dims` dimensions: those of `batch`, then heads, and its own last two. A view.
Tensor with_batch(const Tensor& x, const Shape& batch, int64_t heads, int64_t dims) {
  Shape shape = batch;
  if (dims > 2) shape.push_back(heads);
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  return x.shape() == shape ? x : expand(x, shape);
}

// Broadcasts the dimensions before the last two, except heads (dimension -3) if k and v have fewer
// of them than q. Pass k as v if there is no v.
void broadcast_batches(const char* op, Tensor& q, Tensor& k, Tensor& v) {
  const auto check = [&](bool fits) {
    INK_CHECK(fits, op, ": expected q (..., T, d), k (..., S, d) and v (..., S, dv), got ",
              q.shape(), ", ", k.shape(), " and ", v.shape());
  };
  check(std::min({q.dim(), k.dim(), v.dim()}) >= 2);
  const auto or_if_one = [](int64_t heads, int64_t others) { return heads == 1 ? others : heads; };
  const int64_t kv_heads = or_if_one(head_count(k), head_count(v)),
                heads = or_if_one(head_count(q), kv_heads), v_heads = head_count(v);
  check(q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2) &&
        or_if_one(v_heads, kv_heads) == kv_heads);
  INK_CHECK(kv_heads == 0 ? heads == 0 : heads % kv_heads == 0, op,
            ": expected the heads of q, dimension -3, to be a multiple of those of k and v, got ",
            heads, " and ", kv_heads);
  const Shape batch =
      broadcast_shapes(op, broadcast_shapes(op, batch_shape(q), batch_shape(k)), batch_shape(v));
  const int64_t dims = std::max({q.dim(), k.dim(), v.dim()});
  q = with_batch(q, batch, heads, dims);
  k = with_batch(k, batch, kv_heads, dims);
  v = with_batch(v, batch, kv_heads, dims);
}

void check_options(const char* op, const Shape& scores, const AttentionOptions& options) {
  const double p = options.dropout_p;
  INK_CHECK(p >= 0 && p <= 1, op, ": expected dropout_p in [0, 1], got ", p);
  INK_CHECK(options.window >= 0, op, ": expected a window of 0 or more, got ", options.window);
  INK_CHECK(options.window == 0 || options.is_causal || options.causal_lower_right, op,
            ": expected is_causal or causal_lower_right with a window");
  const Tensor& mask = options.attn_mask;
  if (!mask.defined()) return;
  INK_CHECK(mask.is_floating() || mask.dtype() == DType::boolean, op,
            ": expected a bool or floating attn_mask, got ", mask.dtype());
  bool fits = mask.dim() <= scores.size();
  for (int64_t d = 1; fits && d <= mask.dim(); ++d)
    fits = mask.size(-d) == 1 || mask.size(-d) == scores[scores.size() - d];
  INK_CHECK(fits, op, ": expected an attn_mask that broadcasts to ", scores, ", got ",
            mask.shape());
}

// Checks the inputs and broadcasts q, k and v.
Problem checked(const char* op, Tensor& q, Tensor& k, Tensor& v, const AttentionOptions& options) {
  broadcast_batches(op, q, k, v);
  INK_CHECK(q.is_floating() && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op,
            ": expected one floating dtype, got ", q.dtype(), ", ", k.dtype(), " and ", v.dtype());
  Shape scores = q.shape();
  scores.back() = k.size(-2);
  check_options(op, scores, options);
  const int64_t queries = q.size(-2), keys = k.size(-2);
  const double d = static_cast<double>(std::max<int64_t>(q.size(-1), 1));
  Problem problem{{options.scale.value_or(1 / std::sqrt(d)), keys, options.dropout_p, {}},
                  options.attn_mask,
                  head_count(q) / std::max<int64_t>(head_count(k), 1),
                  q.dtype() == f64 ? f64 : f32,
                  options.attn_mask.defined() || options.is_causal || options.causal_lower_right};
  int64_t& diagonal = problem.rule.diagonal;
  if (options.is_causal) diagonal = std::min<int64_t>(diagonal, 0);
  if (options.causal_lower_right) diagonal = std::min(diagonal, keys - queries);
  if (options.window < queries + diagonal) problem.rule.window = options.window;
  if (problem.mask.defined() && problem.mask.is_floating())
    problem.mask = problem.mask.to(problem.dtype);
  return problem;
}

// An uninitialised tensor with the sizes of x except the last. Its dimensions have x's order in
// memory. So heads that were split off a row stay side by side, and can be joined without a copy.
Tensor empty_in_order_of(const Tensor& x, int64_t last) {
  Shape sizes = x.shape(), order;
  sizes.back() = last;
  for (const int64_t d : by_stride(x))
    if (d != x.dim() - 1) order.push_back(d);
  order.push_back(x.dim() - 1);
  return Tensor(empty_in_order(sizes, order, x.dtype(), x.device()));
}

// The distance of q, k and v in memory if they fill one buffer together, as the heads of a packed
// (B, T, 3 C) do; otherwise 0.
int64_t packed_step(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t step = k.layout().offset - q.layout().offset;
  const bool alike = q.storage() == k.storage() && q.storage() == v.storage() &&
                     q.shape() == k.shape() && q.shape() == v.shape() &&
                     q.strides() == k.strides() && q.strides() == v.strides();
  if (!alike || step <= 0 || v.layout().offset - k.layout().offset != step) return 0;
  std::vector<std::pair<int64_t, int64_t>> dims{{step, 3}};  // stride, size
  for (int64_t d = 0; d < q.dim(); ++d) {
    if (q.shape()[d] != 1) dims.emplace_back(q.strides()[d], q.shape()[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return 0;
    expected *= size;
  }
  return step;
}

// Memory for dq, dk and dv: one buffer if q, k and v came from one, so that the buffer is the
// gradient of the split.
Grads empty_gradients(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t step = packed_step(q, k, v);
  if (step == 0)
    return {empty_in_order_of(q, q.size(-1)), empty_in_order_of(k, k.size(-1)),
            empty_in_order_of(v, v.size(-1))};
  const Array buffer = Array::empty({3 * q.numel()}, q.dtype(), q.device());
  Grads grads;
  for (int64_t i = 0; i < 3; ++i)
    grads.emplace_back(buffer.seen_as({q.shape(), q.strides(), i * step}));
  return grads;
}

// The name of the last of the ops of which PyTorch 2.15 makes attention.
const char* torch_name(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionOptions& options) {
  const auto dims = [&](int64_t n) { return q.dim() == n && k.dim() == n && v.dim() == n; };
  if (dims(3)) return "squeeze.1";
  const auto dense = [](const Tensor& x) { return x.strides()[x.dim() - 1] == 1; };
  const auto alike = [&](int64_t d) { return q.size(d) == k.size(d) && q.size(d) == v.size(d); };
  const Tensor& mask = options.attn_mask;
  const bool whole_mask = !mask.defined() || mask.dim() == 2 || mask.dim() == 4;
  if (dims(4) && alike(0) && alike(3) && k.size(1) == v.size(1) && q.size(1) >= k.size(1) &&
      options.dropout_p == 0 && whole_mask && !mask.requires_grad() && dense(q) && dense(k) &&
      dense(v))
    return "scaled_dot_product_flash_attention_for_cpu";
  if (q.dtype() == bf16) return "to_copy";
  if (q.dim() > 2 || k.dim() > 2) return "unsafe_view";
  if (v.dim() == 2) return "mm";
  return q.size(0) == 1 || v.size(-1) == 1 ? "transpose" : "clone";
}

}  // namespace

Tensor attention_weights(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  check_defined("attention_weights", query, key);
  Tensor q = query, k = key, none = key;
  const Problem problem = checked("attention_weights", q, k, none, options);
  return weights_composed(q, k, problem, hidden_by(q, k, problem)).to(q.dtype());
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  check_defined("scaled_dot_product_attention", query, key, value);
  Tensor q = query, k = key, v = value;
  Problem problem = checked("scaled_dot_product_attention", q, k, v, options);
  const char* shown = torch_name(query, key, value, options);
  if (composed() || context().imitate_torch)
    return shown_as(shown, attention_composed(q, k, v, problem));
  const Tensor mask = std::exchange(problem.mask, {});
  problem.rule.random = context().random;
  if (problem.rule.dropout_p > 0) {
    check_part("scaled_dot_product_attention", q.shape(), context().random);
    ++context().random.call;
  }
  Tensor out = empty_in_order_of(q, v.size(-1));
  Shape rows = q.shape();
  rows.erase(q.dim() - 1);
  Tensor lse = empty(rows, {problem.dtype, q.device()});
  kernel::attention(out, lse, {q, k, v, mask, problem.rule});
  const auto vjp = [q = Saved::input(q), k = Saved::input(k), v = Saved::input(v),
                    out = Saved::output(out), lse, mask = Saved::input(mask),
                    problem](const Tensor& dout, VjpContext& g) -> Grads {
    if (grad_enabled()) return gradients_composed({*q, *k, *v, *mask}, dout, problem);
    Grads grads = empty_gradients(*q, *k, *v);
    grads.push_back(g.needs(3) ? empty_like(*mask) : Tensor());
    kernel::attention_backward({grads[0], grads[1], grads[2], grads[3]}, dout, *out, lse,
                               {*q, *k, *v, *mask, problem.rule});
    return grads;
  };
  const bool triangle = !mask.defined() && (options.is_causal || options.causal_lower_right);
  const char* name = triangle ? "causal_attention" : "scaled_dot_product_attention";
  return shown_as(shown, record(name, {q, k, v, mask}, out, vjp));
}

}  // namespace ink
