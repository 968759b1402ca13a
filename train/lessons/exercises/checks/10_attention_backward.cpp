#include <cmath>

#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace attention_backward_check {

using F = Grads (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&);

// inputs: dy, q, k, v
Tensor flipped(const Tensor& x) { return x.transpose(-2, -1); }
double scale(const Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(-1))); }
Tensor weights(const Tensor& q, const Tensor& k, bool is_masked = true) {
  const int64_t T = q.size(-2);
  const Tensor scores = matmul(q, flipped(k)) * scale(q);
  return softmax(is_masked ? masked_fill(scores, triu(ones({T, T}), 1) == 1, -inf) : scores, -1);
}
Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v) {
  return matmul(weights(q, k), v);
}

// What a mistake does not concern is right.
struct How {
  bool scales = true, masks = true, sums = true, softmax = true;
  bool flips_dq = false, flips_dk = true, flips_dv = true;
};
Answer by(const How& how) {
  return answer(
      [how](const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v) -> Grads {
        const auto turned = [](bool flips, const Tensor& x) { return flips ? flipped(x) : x; };
        const Tensor P = weights(q, k, how.masks), dP = matmul(dy, flipped(v));
        const Tensor centred = how.sums ? dP - sum(dP * P, {-1}, true) : dP;
        const Tensor dS = how.softmax ? P * centred : dP;
        const double factor = how.scales ? scale(q) : 1;
        return {matmul(turned(how.flips_dq, dS), k) * factor,
                matmul(turned(how.flips_dk, dS), q) * factor, matmul(turned(how.flips_dv, P), dy)};
      });
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
        gradients(answer(forward, 1), 3),
        {of("two heads", shape),
         of("a single position", {1, 1, 1, 3}),
         of("batches", {2, 1, 3, 2}),
         of("large scores", shape, 30),
         {"values wider than keys",
          {noise(1, {1, 2, 4, 5}), noise(2, shape), noise(3, shape), noise(4, {1, 2, 4, 5})}},
         {"heads split by a transpose",
          {noise(1, shape), noise(2, {1, 4, 2, 3}).transpose(1, 2),
           noise(3, {1, 4, 2, 3}).transpose(1, 2), noise(4, {1, 4, 2, 3}).transpose(1, 2)}}},
        {{by({.scales = false}),
          "dq and dk lack the factor 1 / sqrt(d), by which the scores were divided."},
         {by({.masks = false}),
          "P has no mask: compute it exactly as the forward did, with -inf for later keys."},
         {by({.sums = false}), "The gradient of softmax lacks its sum: see exercise 5."},
         {by({.softmax = false}),
          "dP goes on as it is here. Softmax stands between the scores and P."},
         {by({.flips_dv = false}),
          "dv takes P as it is. It is P^T: key j collects from all queries."},
         {by({.flips_dk = false}),
          "dk takes dS as it is. It is dS^T: key j collects from all queries."},
         {by({.flips_dq = true}), "dq takes dS^T. It is dS: query i collects from all keys."}}}}};
}

}  // namespace ink
