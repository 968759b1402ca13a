#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace attention_backward_check {

using F = Grads (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&);

// inputs: dy, q, k, v
Answer answer(F f) {
  return [f](const Tensors& in) -> Tensors { return f(in[0], in[1], in[2], in[3]); };
}

Tensor flipped(const Tensor& x) { return x.transpose(-2, -1); }
double scale(const Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(-1))); }
Tensor weights(const Tensor& q, const Tensor& k, bool is_masked = true) {
  const int64_t T = q.size(-2);
  const Tensor scores = matmul(q, flipped(k)) * scale(q);
  return softmax(is_masked ? masked_fill(scores, triu(ones({T, T}), 1) == 1, -inf) : scores, -1);
}
Tensors expected(const Tensors& in) {
  const auto forward = [](const Tensors& x) { return matmul(weights(x[1], x[2]), x[3]); };
  return {difference(forward, in, 1, in[0]), difference(forward, in, 2, in[0]),
          difference(forward, in, 3, in[0])};
}

// ---- mistakes. What they do not concern is right.

Grads from(const Tensor& dS, const Tensor& P, const Tensor& dy, const Tensor& q, const Tensor& k,
           double factor) {
  return {matmul(dS, k) * factor, matmul(flipped(dS), q) * factor, matmul(flipped(P), dy)};
}
Tensor dS_of(const Tensor& P, const Tensor& dy, const Tensor& v) {
  const Tensor dP = matmul(dy, flipped(v));
  return P * (dP - sum(dP * P, {-1}, true));
}
Grads no_scale(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor P = weights(q, k);
  return from(dS_of(P, dy, v), P, dy, q, k, 1);
}
Grads no_mask(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor P = weights(q, k, false);
  return from(dS_of(P, dy, v), P, dy, q, k, scale(q));
}
Grads no_sum(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor P = weights(q, k);
  return from(P * matmul(dy, flipped(v)), P, dy, q, k, scale(q));
}
Grads no_softmax(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  return from(matmul(dy, flipped(v)), weights(q, k), dy, q, k, scale(q));
}
Grads P_not_transposed(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor P = weights(q, k), dS = dS_of(P, dy, v);
  return {matmul(dS, k) * scale(q), matmul(flipped(dS), q) * scale(q), matmul(P, dy)};
}
Grads dS_not_transposed(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor P = weights(q, k), dS = dS_of(P, dy, v);
  return {matmul(dS, k) * scale(q), matmul(dS, q) * scale(q), matmul(flipped(P), dy)};
}
Grads dS_transposed(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor P = weights(q, k), dS = dS_of(P, dy, v);
  return {matmul(flipped(dS), k) * scale(q), matmul(flipped(dS), q) * scale(q),
          matmul(flipped(P), dy)};
}

}  // namespace attention_backward_check

Exercise attention_backward_exercise(attention_backward_check::F backward) {
  using namespace attention_backward_check;
  const auto of = [](const std::string& name, const Shape& s, double size = 1) {
    return Case{name, {noise(1, s), noise(2, s) * size, noise(3, s) * size, noise(4, s)}};
  };
  const Shape shape = {1, 2, 4, 3};
  return {
      "10_attention_backward",
      "lesson 7",
      {"Name what lies in between: S the scores, P = softmax(S), y = P v. Then go from dy "
       "backwards through one op at a time.",
       "dv = P^T dy and dP = dy v^T. dS = P (dP - sum of dP P over the row), as in exercise 5.",
       "dq = dS k / sqrt(d) and dk = dS^T q / sqrt(d). P has zeros where the mask was, so dS "
       "has them, too: no mask is needed."},
      {"autograd/ops/attention/backward.cpp", "void attention_backward(",
       "It never holds P: it computes tiles of it again from q, k and one saved number for each "
       "row, because reading a T by T matrix would take longer."},
      {{"attention_backward",
        {"dq", "dk", "dv"},
        answer(backward),
        expected,
        {of("two heads", shape),
         of("a single position", {1, 1, 1, 3}),
         of("batches", {2, 1, 3, 2}),
         of("large scores", shape, 30),
         {"values wider than keys",
          {noise(1, {1, 2, 4, 5}), noise(2, shape), noise(3, shape), noise(4, {1, 2, 4, 5})}},
         {"heads split by a transpose",
          {noise(1, shape), noise(2, {1, 4, 2, 3}).transpose(1, 2),
           noise(3, {1, 4, 2, 3}).transpose(1, 2), noise(4, {1, 4, 2, 3}).transpose(1, 2)}}},
        {{answer(no_scale),
          "dq and dk lack the factor 1 / sqrt(d), by which the scores were divided."},
         {answer(no_mask),
          "P has no mask: compute it exactly as the forward did, with -inf for later keys."},
         {answer(no_sum), "The gradient of softmax lacks its sum: see exercise 5."},
         {answer(no_softmax), "dP goes on as it is here. Softmax stands between the scores and P."},
         {answer(P_not_transposed),
          "dv takes P as it is. It is P^T: key j collects from all queries."},
         {answer(dS_not_transposed),
          "dk takes dS as it is. It is dS^T: key j collects from all queries."},
         {answer(dS_transposed), "dq takes dS^T. It is dS: query i collects from all keys."}}}}};
}

}  // namespace ink
