#include "train/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/gemm/gemm.h"
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
    // A number before the last part is of a Sequential's layer; one before others, of a block.
    const bool of_block =
        parts.size() > 2 && std::any_of(parts.begin(), parts.end() - 2, is_number);
    if (embeddings.count(&value.impl()) ||
        (of_vocabulary && std::none_of(parts.begin(), parts.end(), is_number)))
      tables.insert(name);
    last = of_vocabulary && !of_block ? name : "";
  }
  if (!last.empty()) tables.insert(last);
  return tables;
}

// ---- orthogonal

// A copy, also where x has that dtype.
static Tensor copied(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x.clone() : x.to(dtype);
}

// c = a b, or c += a b, where the results (n, size, size) are symmetric. A CPU computes the blocks
// up to the diagonal and mirrors them.
static void symmetric_product(Tensor& c, const Tensor& a, const Tensor& b, bool accumulate) {
  constexpr int64_t kRows = 96;
  const int64_t size = c.size(1), step = c.device().is_cpu() ? kRows : size;
  for (int64_t i = 0; i < size; i += step) {
    const int64_t rows = std::min(step, size - i), end = i + rows;
    Tensor below = c.narrow(1, i, rows), block = below.narrow(2, 0, end);
    kernel::gemm(block, a.narrow(1, i, rows), b.narrow(2, 0, end), accumulate);
    if (i > 0) c.narrow(1, 0, i).narrow(2, i, rows).copy_(transpose(below.narrow(2, 0, i), 1, 2));
  }
}

// Writes y, of which `rounded` is a copy in the dtype of products. The steps work on y / scale, so
// that sums have a term with a factor of 1, which products are added to: y += (b / a A + c / a A^2)
// y, whose scale is a times as large. A, the polynomial (of the A that was rounded) and y, as an
// operand, are rounded once each.
//
// Matrices whose squares overflow are first made smaller, because the answer is that of any size.
// On a GPU they give 0, as in PyTorch: to tell them there would make the CPU wait.
static void newton_schulz(Tensor& y, Tensor rounded, const std::array<double, 3>& coefficients,
                          int steps, double eps) {
  const auto [a, b, c] = coefficients;
  const double root = c == 0 ? 1 : std::sqrt(std::abs(c) / a), sign = c < 0 ? -1 : 1;
  const bool tall = y.size(1) > y.size(2);  // the smaller A: y^T y
  const int64_t n = std::min(y.size(1), y.size(2));
  const DType narrow = rounded.dtype();
  const bool on_cpu = y.device().is_cpu();
  const double limit = y.dtype() == f64 ? 0x1p1000 : 0x1p120;
  const double less = y.dtype() == f64 ? 0x1p-400 : 0x1p-48;
  Tensor scale, large, polynomial = empty({y.size(0), n, n}, y.options());
  const auto multiply = [&] {
    const Tensor t = transpose(rounded, 1, 2);
    symmetric_product(polynomial, tall ? t : rounded, tall ? rounded : t, false);
  };
  const auto norm2 = [&] { return sum(diagonal(polynomial, 0, 1, 2), {1}, true); };
  for (int step = 0; step < steps; ++step) {
    multiply();
    if (step == 0) {
      large = ~(norm2() < limit);
      for (int more = 2; on_cpu && more > 0 && any(large).item<bool>(); --more) {
        const Tensor factor = where(large, less, ones_like(norm2())).unsqueeze(2);
        y.mul_(factor);
        rounded.mul_(factor);
        multiply();
        large = ~(norm2() < limit);
      }
      scale = pow(clamp_min(norm2(), eps * eps), -0.5).unsqueeze(2);
    }
    polynomial.mul_(square(scale) * root);
    const Tensor of_a = copied(polynomial, narrow);  // A, times the root of |c / a|
    if (y.dtype() != narrow) polynomial.copy_(of_a);
    polynomial.mul_(sign * b / a / root);
    if (c != 0) symmetric_product(polynomial, of_a, of_a, true);
    if (sign < 0) polynomial.neg_();
    const Tensor factor = polynomial.to(narrow);
    kernel::gemm(y, tall ? rounded : factor, tall ? factor : rounded, true);
    if (step + 1 < steps) rounded = copied(y, narrow);
    scale = scale * a;
  }
  y.mul_(scale);
  if (!on_cpu || any(large).item<bool>()) y.masked_fill_(large.unsqueeze(2), 0);
}

Tensor orthogonal(const Tensor& x, const std::array<double, 3>& coefficients, int steps, double eps,
                  DType products) {
  Tensor y = copied(x, products == bf16 ? f32 : products);
  newton_schulz(y, copied(x, products), coefficients, steps, eps);
  return y;
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

// Those of one shape stand side by side.
void Muon::find_pieces() {
  pieces_.clear();
  for (size_t i = 0; i < parameters().size(); ++i) {
    const auto& [name, value] = parameters()[i];
    int64_t first = 0;
    for (const int64_t rows : (*rule_)(name, value)) {
      pieces_.push_back({i, first, rows, value.size(1), value.dtype()});
      first += rows;
    }
  }
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.shape() > b.shape(); });
  std::vector<double> scales, decays;
  for (const Piece& piece : pieces_) {
    scales.push_back(settings()[piece.parameter].lr_scale);
    decays.push_back(settings()[piece.parameter].decay);
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

// On a CPU each thread has matrices of its own, which stay in its cache from product to product. A
// GPU, or threads for which there are too few, share batches of one shape.
void Muon::update(ParameterLists& parameters, const OptimizerStep& step) {
  const Tensor finite(step.finite), counts(parameters.counts);
  const bool on_cpu = finite.device().is_cpu();
  if (on_cpu && !finite.item<bool>()) return;
  ParameterLists others = parameters;
  int64_t work = 0;
  std::vector<size_t> found;
  for (size_t k = 0; k < pieces_.size(); ++k) {
    const Piece& piece = pieces_[k];
    if (!parameters.grads[piece.parameter].defined()) continue;
    others.grads[piece.parameter] = {};
    found.push_back(k);
    work += piece.work();
    if (piece.first == 0)
      counts.select(0, static_cast<int64_t>(piece.parameter)).add_(finite.to(i64));
  }
  AdamW::update(others, step);
  const Tensor clip = Tensor(step.clip) * (1 - options_.momentum);
  const bool alone = on_cpu && std::ssize(found) >= max_threads();
  constexpr int64_t kMost = 1 << 24;  // elements of a batch
  std::vector<Batch> batches;
  for (const size_t k : found) {
    const Piece& piece = pieces_[k];
    const auto most = std::max<int64_t>(1, alone ? 1 : kMost / (piece.rows * piece.cols));
    if (Batch* last = batches.empty() ? nullptr : &batches.back();
        last && last->end == k && pieces_[last->begin].shape() == piece.shape() &&
        static_cast<int64_t>(k - last->begin) < most)
      last->end = k + 1;
    else
      batches.push_back({k, k + 1});
  }
  if (!alone) {
    for (const Batch& batch : batches) update_batch(parameters, step, clip, batch);
    return;
  }
  // The largest first, each to the thread that has the least to do.
  std::vector<std::pair<int64_t, std::vector<Batch>>> shares(static_cast<size_t>(max_threads()));
  std::stable_sort(batches.begin(), batches.end(), [&](const Batch& a, const Batch& b) {
    return pieces_[a.begin].work() > pieces_[b.begin].work();
  });
  for (const Batch& batch : batches) {
    auto& share = *std::min_element(shares.begin(), shares.end(),
                                    [](auto& a, auto& b) { return a.first < b.first; });
    share.first += pieces_[batch.begin].work();
    share.second.push_back(batch);
  }
  const Context caller = context();
  const int64_t grain = work < kWorthAThread ? std::ssize(shares) : 1;
  parallel_for(std::ssize(shares), grain, [&](int64_t begin, int64_t end) {
    const ContextGuard guard(caller);
    for (int64_t i = begin; i < end; ++i)
      for (const Batch& batch : shares[static_cast<size_t>(i)].second)
        update_batch(parameters, step, clip, batch);
  });
}

// SGD's kernel does the elementwise work twice. With a rate of -1, from zero, it writes u, also
// rounded; then the update takes the place of the gradient. If the step is not finite it writes
// nothing.
void Muon::update_batch(const ParameterLists& all, const OptimizerStep& step, const Tensor& clip,
                        const Batch& batch) {
  const Piece& one = pieces_[batch.begin];
  const Device device = one_.device();
  const auto n = static_cast<int64_t>(batch.end - batch.begin);
  const auto part = [&](const Tensor& x) -> Array {
    return x.narrow(0, static_cast<int64_t>(batch.begin), n);
  };
  const Shape shape{n, one.rows, one.cols};
  const DType narrow = options_.ns_dtype, wide = narrow == bf16 ? f32 : narrow;
  Tensor u = zeros(shape, {one.dtype, device}), x;
  const bool rounds = one.dtype == f32 && narrow == bf16;
  if (rounds) x = empty(shape, {bf16, device});
  ParameterLists lists{{}, {}, {}, part(counts_), part(minus_), part(none_)};
  Arrays buffers, no_buffers;
  for (int64_t i = 0; i < n; ++i) {
    const Piece& piece = pieces_[batch.begin + static_cast<size_t>(i)];
    lists.values.push_back(u.select(0, i));
    lists.grads.push_back(piece.of(all.grads[piece.parameter]));
    lists.rounded.push_back(rounds ? Array(x.select(0, i)) : Array());
    buffers.push_back(piece.of(momentum_buffer_[piece.parameter]));
  }
  const auto step_of = [&](const Array& lr, const Tensor& scale) {
    return OptimizerStep{lr, step.grad_norm, scale, step.finite, step.skipped};
  };
  kernel::sgd(lists, buffers, step_of(one_, clip), options_.momentum, options_.nesterov);
  if (!rounds) x = copied(u, narrow);
  Tensor o = u.to(wide);
  newton_schulz(o, x, options_.ns_coefficients, options_.ns_steps, options_.eps);
  o = o.to(one.dtype);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const Piece& piece = pieces_[batch.begin + at];
    const Array& copy = all.rounded[piece.parameter];
    lists.values[at] = piece.of(all.values[piece.parameter]);
    lists.grads[at] = o.select(0, i);
    lists.rounded[at] = copy.defined() ? Array(piece.of(copy)) : Array();
  }
  lists.lr_scale = part(scales_);
  lists.decay = part(decays_);
  const double factor =
      adjusted(options_.adjust_lr, static_cast<double>(one.rows), static_cast<double>(one.cols));
  kernel::sgd(lists, no_buffers, step_of(step.lr, full({}, factor, {f64, device})), 0, false);
}

}  // namespace ink
