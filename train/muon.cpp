#include "train/muon.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "autograd/basic_ops.h"
#include "autograd/kernels/gemm.h"
#include "autograd/kernels/optimizer.h"
#include "nn/embedding.h"

namespace ink {

// ---- which parameters are matrices

// "h.0.attn.c_attn.weight" -> h, 0, attn, c_attn, weight
static std::vector<std::string> parts_of_name(const std::string& name) {
  std::vector<std::string> parts{""};
  for (const char c : name) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::vector<int64_t> matrix_parts(const std::string& name, const Shape& shape) {
  if (shape.size() != 2 || shape.numel() == 0) return {};
  const int64_t rows = shape[0], cols = shape[1];
  for (const std::string& part : parts_of_name(name)) {
    const auto is = [&](std::initializer_list<const char*> names) {
      return std::find(names.begin(), names.end(), part) != names.end();
    };
    if (is({"wte", "wpe", "head"}) || part.find("embed") != std::string::npos ||
        part.ends_with("_head"))
      return {};
    if (is({"c_attn", "in_proj", "in_proj_weight", "qkv", "qkv_proj", "wqkv", "Wqkv",
            "query_key_value"}) &&
        rows > cols && (rows - cols) % 2 == 0)
      return {cols, (rows - cols) / 2, (rows - cols) / 2};
    if (is({"gate_up", "gate_up_proj"}) && rows % 2 == 0) return {rows / 2, rows / 2};
  }
  return {rows};
}

std::set<std::string> table_names(const Module& model, int64_t vocab_size) {
  std::set<const TensorImpl*> embeddings;
  const_cast<Module&>(model).apply([&](Module& module) {  // changes nothing
    const auto* embedding = dynamic_cast<const Embedding*>(&module);
    if (embedding && embedding->weight.defined()) embeddings.insert(&embedding->weight.impl());
  });
  std::set<std::string> tables;
  std::string last;
  const auto is_number = [](const std::string& part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const auto& [name, value] : model.named_parameters()) {
    if (value.dim() != 2) continue;
    const bool of_vocabulary = value.size(0) == vocab_size || value.size(1) == vocab_size;
    const auto parts = parts_of_name(name);
    if (embeddings.count(&value.impl()) ||
        (of_vocabulary && std::none_of(parts.begin(), parts.end(), is_number)))
      tables.insert(name);
    last = of_vocabulary ? name : "";
  }
  if (!last.empty()) tables.insert(last);
  return tables;
}

// ---- orthogonal

// The steps work on y = x / scale, so that both sums have terms with a factor of 1, which products
// are added to: y + (b / a A + c / a A^2) y, whose scale is a times as large. Products in bf16 are
// summed in f32, so A, the polynomial (of the A that was rounded) and y are rounded once each.
Tensor orthogonal(const Tensor& x, const std::array<double, 3>& coefficients, int steps,
                  double eps) {
  const auto [a, b, c] = coefficients;
  const double root = c == 0 ? 1 : std::sqrt(std::abs(c) / a), sign = c < 0 ? -1 : 1;
  const bool tall = x.size(1) > x.size(2);  // the smaller A: x^T x
  const DType sums = x.dtype() == bf16 ? f32 : x.dtype();
  const int64_t n = std::min(x.size(1), x.size(2));
  Tensor y = x, scale;
  for (int step = 0; step < steps; ++step) {
    const Tensor t = transpose(y, 1, 2);
    Tensor polynomial = empty({x.size(0), n, n}, {sums, x.device()});
    kernel::gemm(polynomial, tall ? t : y, tall ? y : t, false);
    if (step == 0) {  // its trace is the square of the norm
      const Tensor norm2 = sum(diagonal(polynomial, 0, 1, 2), {1}, true);
      scale = pow(clamp_min(norm2, eps * eps), -0.5).unsqueeze(2);
    }
    polynomial.mul_(square(scale) * root);
    const Tensor of_a = polynomial.to(x.dtype());  // times the root of |c / a|
    polynomial = of_a * full({1, 1, 1}, sign * b / a / root, {sums, x.device()});
    if (c != 0) kernel::gemm(polynomial, of_a, of_a, true);
    if (sign < 0) polynomial.neg_();
    const Tensor factor = polynomial.to(x.dtype());
    Tensor next = y.clone();
    kernel::gemm(next, tall ? y : factor, tall ? factor : y, true);
    y = next;
    scale = scale * a;
  }
  return y * scale;
}

// ---- Muon

struct Muon::Rule {
  MatrixParts parts;
  std::set<std::string> tables;

  void add(const std::vector<ParameterGroup>& groups) {
    for (const ParameterGroup& group : groups)
      tables.insert(group.tables.begin(), group.tables.end());
  }
  std::vector<int64_t> operator()(const std::string& name, const Tensor& value) const {
    if (tables.count(name)) return {};
    const std::vector<int64_t> rows = parts(name, value.shape());
    int64_t all = 0;
    for (const int64_t n : rows) all += n;
    INK_CHECK(rows.empty() || (value.dim() == 2 && all == value.size(0)), "Muon: ", name, ", ",
              value.shape(), ", is no pile of matrices with ", all, " rows in all");
    return rows;
  }
};

Muon::Muon(const std::vector<ParameterGroup>& groups, const MuonOptions& options)
    : Muon(groups, options, std::make_shared<Rule>(Rule{options.parts, {}})) {}

Muon::Muon(const std::vector<ParameterGroup>& groups, const MuonOptions& options,
           const std::shared_ptr<Rule>& rule)
    : AdamW("Muon", groups,
            {options.lr, options.beta1, options.beta2, options.adamw_eps, options.weight_decay,
             options.grad_clip},
            (rule->add(groups), [rule](const std::string& name,
                                       const Tensor& p) { return (*rule)(name, p).empty(); })),
      options_(options),
      rule_(rule),
      momentum_buffer_(add_moments(
          "momentum_buffer",
          [rule](const std::string& name, const Tensor& p) { return !(*rule)(name, p).empty(); })) {
  INK_CHECK(options.momentum >= 0 && options.momentum < 1,
            "Muon: expected a momentum in [0, 1), got ", options.momentum);
  INK_CHECK(options.ns_coefficients[0] > 0,
            "Muon: expected the first of ns_coefficients to be above 0, got ",
            options.ns_coefficients[0]);
  INK_CHECK(options.eps > 0, "Muon: expected eps to be above 0, got ", options.eps);
  INK_CHECK(options.ns_steps >= 1 && options.ns_steps < 100,
            "Muon: expected ns_steps to be 1 to 99, got ", options.ns_steps);
  find_pieces();
}

void Muon::add_group(const ParameterGroup& group) {
  rule_->add({group});
  AdamW::add_group(group);
  find_pieces();
}

void Muon::find_pieces() {
  pieces_.clear();
  std::vector<double> scales, decays;
  for (size_t i = 0; i < parameters().size(); ++i) {
    const auto& [name, value] = parameters()[i];
    int64_t first = 0;
    for (const int64_t rows : (*rule_)(name, value)) {
      pieces_.push_back({i, first, rows, value.size(1), value.dtype()});
      first += rows;
      scales.push_back(settings()[i].lr_scale);
      decays.push_back(settings()[i].decay);
    }
  }
  const Device device = parameters()[0].second.device();
  const int64_t n = std::ssize(pieces_);
  one_ = ones({}, {f64, device});
  counts_ = zeros({n}, {i64, device});
  minus_ = full({n}, -1.0, {f64, device});
  none_ = zeros({n}, {f64, device});
  scales_ = from_vector(scales).to(device);
  decays_ = from_vector(decays).to(device);
}

static double adjusted(AdjustLr how, double rows, double cols) {
  if (how == AdjustLr::original) return std::sqrt(std::max(1.0, rows / cols));
  if (how == AdjustLr::spectral_unclamped) return std::sqrt(rows / cols);
  return 0.2 * std::sqrt(std::max(rows, cols));
}

// Batches are as large as a cache, so that what one product writes is there for the next.
void Muon::update(ParameterLists& parameters, const OptimizerStep& step) {
  const Tensor finite(step.finite), counts(parameters.counts);
  if (finite.device().is_cpu() && !finite.item<bool>()) return;
  ParameterLists others = parameters;
  std::map<std::tuple<int64_t, int64_t, DType>, std::vector<size_t>> by_shape;
  for (size_t k = 0; k < pieces_.size(); ++k) {
    const Piece& piece = pieces_[k];
    if (!parameters.grads[piece.parameter].defined()) continue;
    others.grads[piece.parameter] = {};
    by_shape[{piece.rows, piece.cols, piece.dtype}].push_back(k);
    if (piece.first == 0)
      counts.select(0, static_cast<int64_t>(piece.parameter)).add_(finite.to(i64));
  }
  AdamW::update(others, step);
  const Tensor clip = Tensor(step.clip) * (1 - options_.momentum);
  const int64_t most = finite.device().is_cpu() ? 1 << 20 : 1 << 24;  // elements
  for (const auto& [shape, all] : by_shape) {
    const int64_t size = std::get<0>(shape) * std::get<1>(shape),
                  batch = std::max<int64_t>(most / size, 1);
    for (int64_t i = 0; i < std::ssize(all); i += batch) {
      const auto begin = all.begin() + i, end = all.begin() + std::min(i + batch, std::ssize(all));
      update_pieces(parameters, step, clip, {begin, end});
    }
  }
}

// SGD's kernel does the elementwise work twice. With a rate of -1, from zero, it writes u, also
// rounded; then the update takes the place of the gradient. If the step is not finite it writes
// nothing.
void Muon::update_pieces(const ParameterLists& all, const OptimizerStep& step, const Tensor& clip,
                         const std::vector<size_t>& pieces) {
  const size_t n = pieces_.size();
  const Piece& one = pieces_[pieces[0]];
  const Device device = one_.device();
  const Shape shape{std::ssize(pieces), one.rows, one.cols};
  Tensor u = zeros(shape, {one.dtype, device}), x;
  const bool rounds = one.dtype == f32 && options_.ns_dtype == bf16;
  if (rounds) x = empty(shape, {bf16, device});
  const Arrays undefined(n);
  ParameterLists lists{undefined, undefined, undefined, counts_, minus_, none_};
  Arrays buffers = undefined, no_buffers;
  for (size_t k = 0; k < pieces.size(); ++k) {
    const size_t at = pieces[k];
    const Piece& piece = pieces_[at];
    const auto i = static_cast<int64_t>(k);
    lists.values[at] = u.select(0, i);
    lists.grads[at] = piece.of(all.grads[piece.parameter]);
    if (rounds) lists.rounded[at] = x.select(0, i);
    buffers[at] = piece.of(momentum_buffer_[piece.parameter]);
  }
  const auto step_of = [&](const Array& lr, const Tensor& scale) {
    return OptimizerStep{lr, step.grad_norm, scale, step.finite, step.skipped};
  };
  kernel::sgd(lists, buffers, step_of(one_, clip), options_.momentum, options_.nesterov);
  if (!rounds) x = u.to(options_.ns_dtype);
  const Tensor o =
      orthogonal(x, options_.ns_coefficients, options_.ns_steps, options_.eps).to(one.dtype);
  for (size_t k = 0; k < pieces.size(); ++k) {
    const size_t at = pieces[k], p = pieces_[at].parameter;
    lists.values[at] = pieces_[at].of(all.values[p]);
    lists.grads[at] = o.select(0, static_cast<int64_t>(k)).contiguous();
    lists.rounded[at] = all.rounded[p].defined() ? pieces_[at].of(all.rounded[p]) : Array();
  }
  lists.lr_scale = scales_;
  lists.decay = decays_;
  const double factor =
      adjusted(options_.adjust_lr, static_cast<double>(one.rows), static_cast<double>(one.cols));
  kernel::sgd(lists, no_buffers, step_of(step.lr, full({}, factor, {f64, device})), 0, false);
}

}  // namespace ink
