#include <cmath>

#include "train/lessons/exercises/checks/checks.h"
#include "train/optimizer.h"

namespace ink {
namespace adamw_check {

using F = Tensors (*)(const Tensors&, const Tensor&, int64_t, const AdamSettings&);

AdamSettings settings_of(const Tensor& x) {
  const std::vector<double> s = x.tolist();
  return {s[0], s[1], s[2], s[3], s[4]};
}

// inputs: p, gradients (steps, n), settings. outputs: p, m, v after all steps
Answer steps_of(
    const std::function<Tensors(const Tensors&, const Tensor&, int64_t, const AdamSettings&)>& f) {
  return [f](const Tensors& in) -> Tensors {
    Tensors state = {in[0], zeros_like(in[0]), zeros_like(in[0])};
    for (int64_t i = 0; i < in[1].size(0); ++i)
      state = f(state, in[1].select(0, i), i + 1, settings_of(in[2]));
    return state;
  };
}

// The library's optimizer.
Tensors expected(const Tensors& in) {
  const AdamSettings s = settings_of(in[2]);
  Tensor p = in[0].clone();
  p.requires_grad_();
  AdamW optimizer(NamedTensors{{"p", p}}, {.lr = s.lr,
                                           .beta1 = s.beta1,
                                           .beta2 = s.beta2,
                                           .eps = s.eps,
                                           .weight_decay = s.weight_decay});
  for (int64_t i = 0; i < in[1].size(0); ++i) {
    p.set_grad(in[1].select(0, i).clone());
    optimizer.step();
  }
  Tensors result = {p.detach().clone(), {}, {}};
  for (const auto& [name, x] : optimizer.state()) {
    if (name == "exp_avg.p") result[1] = x.clone();
    if (name == "exp_avg_sq.p") result[2] = x.clone();
  }
  return result;
}

// ---- mistakes

struct How {
  bool corrects = true, decays = true, decays_by_lr = true, decay_in_g = false, eps_inside = false;
  bool from_0 = false, plain_square = true;
};
Answer mistaken(const How& how) {
  return steps_of([how](const Tensors& p_m_v, const Tensor& gradient, int64_t t,
                        const AdamSettings& s) -> Tensors {
    const Tensor g = how.decay_in_g ? gradient + p_m_v[0] * s.weight_decay : gradient;
    const Tensor m = p_m_v[1] * s.beta1 + g * (1 - s.beta1);
    const Tensor v = p_m_v[2] * s.beta2 + (how.plain_square ? square(g) : abs(g)) * (1 - s.beta2);
    const double steps = static_cast<double>(how.from_0 ? t + 1 : t);
    const Tensor mean = how.corrects ? m / (1 - std::pow(s.beta1, steps)) : m;
    const Tensor spread = how.corrects ? v / (1 - std::pow(s.beta2, steps)) : v;
    const Tensor divisor = how.eps_inside ? sqrt(spread + s.eps) : sqrt(spread) + s.eps;
    const double decay = how.decays && !how.decay_in_g ? s.weight_decay : 0;
    return {p_m_v[0] * (1 - (how.decays_by_lr ? s.lr : 1) * decay) - s.lr * mean / divisor, m, v};
  });
}

Case of(const std::string& name, int64_t steps, double size, double decay, double eps = 1e-8) {
  return {name,
          {noise(1, {4}), noise(2, {steps, 4}) * size, tensor({0.1, 0.9, 0.99, eps, decay}, f64)}};
}

}  // namespace adamw_check

Exercise adamw_exercise(adamw_check::F adamw_step) {
  using namespace adamw_check;
  return {
      "12_adamw",
      "lesson 5",
      {"Each line of the formulas is one line of code. In which order must they stand?",
       "Compute m and v first, then both divided by 1 - pow(beta, t), then p.",
       "m and v are returned without the correction, which only p sees: {p, m, v} with mean = m "
       "/ (1 - std::pow(s.beta1, t)) inside of p."},
      {"autograd/loops/optimizer.cpp", "void adamw(",
       "It does weight decay, clipping, both means and the step in one pass, because a step "
       "reads and writes far more memory than it computes."},
      {{"adamw_step",
        {"p", "m", "v"},
        steps_of(adamw_step),
        expected,
        {of("one step", 1, 1, 0.1), of("two steps", 2, 1, 0.1), of("ten steps", 10, 1, 0.1),
         of("without decay", 3, 1, 0), of("a gradient of zero", 3, 0, 0.1),
         of("small gradients, and eps = 0.001", 3, 1e-3, 0, 1e-3)},
        {{mistaken({.corrects = false}),
          "The correction of m and v by 1 - beta^t is missing: first steps have the wrong size."},
         {mistaken({.decays = false}), "The weight decay is missing."},
         {mistaken({.decays_by_lr = false}), "The decay is lr weight_decay. Here lr is missing."},
         {mistaken({.decay_in_g = true}),
          "The decay is added to g: that is Adam with L2. In AdamW it acts on p itself."},
         {mistaken({.eps_inside = true}), "eps is added to the square root, not under it."},
         {mistaken({.from_0 = true}), "t counts from 1 already: this takes t + 1."},
         {mistaken({.plain_square = false}), "v is the mean of g^2. Here it is that of |g|."}}}}};
}

}  // namespace ink
