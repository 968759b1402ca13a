// Kernels of optimizers: the norm of all gradients, and one update of every parameter. Each is one
// pass over the memory and one parallel region for any number of tensors.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "autograd/base/parallel.h"
#include "autograd/loops/optimizer.h"

namespace ink::cpu {
namespace {

// The elements of several tensors, one tensor after the other, as one range [0, size).
class Joined {
 public:
  explicit Joined(const Arrays& tensors) : ends_(tensors.size()) {
    for (size_t i = 0; i < tensors.size(); ++i)
      ends_[i] = size_ += tensors[i].defined() ? tensors[i].numel() : 0;
  }
  int64_t size() const { return size_; }

  // Calls f(i, at, n) for each piece of [begin, end): n elements from `at` on, in tensor i.
  template <class F>
  void for_pieces(int64_t begin, int64_t end, F&& f) const {
    auto i =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; begin < end; ++i) {
      const int64_t start = i == 0 ? 0 : ends_[i - 1], n = std::min(end, ends_[i]) - begin;
      if (n > 0) f(i, begin - start, n);
      begin += n;
    }
  }

 private:
  int64_t size_ = 0;
  std::vector<int64_t> ends_;
};

// The sum of (scale x)^2. Doubles hold the square of any float, so that only doubles are scaled
// before they are squared. 32 sums at a time keep the adders busy.
template <class T>
double squares(const T* x, int64_t n, double scale = 1) {
  const auto at = [=](int64_t i) {
    const auto value = static_cast<double>(static_cast<compute_t<T>>(x[i]));
    return std::is_same_v<T, double> ? scale * value : value;
  };
  constexpr int64_t kLanes = 32, kAhead = 2048 / sizeof(T);
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    __builtin_prefetch(x + i + kAhead);  // the processor's prefetcher stops at the end of a page
    __builtin_prefetch(x + i + kAhead + kLanes / 2);
    for (int64_t k = 0; k < kLanes; ++k) sums[k] += at(i + k) * at(i + k);
  }
  double total = 0;
  for (; i < n; ++i) total += at(i) * at(i);
  for (double sum : sums) total += sum;
  return std::is_same_v<T, double> ? total : total * scale * scale;
}

// The same bits for any number of threads: blocks have a fixed size and are added up in order.
double sum_of_squares(const Arrays& tensors, double scale) {
  constexpr int64_t kBlock = kNormBlock;
  const Joined all(tensors);
  std::vector<double> sums(static_cast<size_t>((all.size() + kBlock - 1) / kBlock));
  parallel_for(std::ssize(sums), kGrain / kBlock, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      double& sum = sums[static_cast<size_t>(block)];
      all.for_pieces(block * kBlock, std::min((block + 1) * kBlock, all.size()),
                     [&](size_t i, int64_t at, int64_t n) {
                       for_float("gradient_norm", tensors[i].dtype(), [&]<class T>(T) {
                         sum += squares(tensors[i].data<T>() + at, n, scale);
                       });
                     });
    }
  });
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

// The Euclidean norm. Doubles whose squares overflow are summed again, scaled.
struct Norm {
  double value;
  bool finite;  // are the elements? The norm of finite ones may overflow
  explicit Norm(const Arrays& tensors) {
    double scale = 1, sum = sum_of_squares(tensors, scale);
    if (std::isinf(sum)) sum = sum_of_squares(tensors, scale = 0x1p-600);
    value = std::sqrt(sum) / scale;
    finite = std::isfinite(sum);
  }
};

// Counts the update, then calls f(i, rate, decay, at, n) in parallel for pieces of all parameters
// that have a gradient, with the learning rate and the decay of parameter i. Pieces are so short
// that they are still in a cache when they are rounded.
template <class F>
void for_updates(ParameterLists& p, const OptimizerStep& step, F&& f) {
  constexpr int64_t kPiece = 32768;
  const double lr = *step.lr.data<double>();
  const double *scales = p.lr_scale.data<double>(), *decays = p.decay.data<double>();
  int64_t* count = p.counts.mutable_data<int64_t>();
  for (size_t i = 0; i < p.grads.size(); ++i) count[i] += p.grads[i].defined();
  const Joined all(p.grads);
  parallel_for(all.size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t from = begin; from < end; from += kPiece)
      all.for_pieces(from, std::min(from + kPiece, end), [&](size_t i, int64_t at, int64_t n) {
        f(i, lr * scales[i], decays[i], at, n);
      });
  });
}

// Writes the bf16 copy of values that were just updated, if there is one.
template <class T>
void write_copy(Array& copy, const T* values, int64_t at, int64_t n) {
  if (!copy.defined()) return;
  bfloat16* to = copy.mutable_data<bfloat16>() + at;
  for (int64_t k = 0; k < n; ++k) to[k] = static_cast<bfloat16>(static_cast<float>(values[k]));
}

}  // namespace

double sum_of_squares(const float* x, int64_t n) { return squares(x, n); }

void gradient_norm(OptimizerStep step, const Arrays& grads, const Array& loss, double max_norm) {
  const Norm of_grads(grads);
  const double norm = of_grads.value;
  const bool finite = of_grads.finite && (!loss.defined() || Norm({loss}).finite);
  int64_t* skipped = step.skipped.mutable_data<int64_t>();
  skipped[0] += finite ? 0 : 1;
  skipped[1] = finite ? 0 : skipped[1] + 1;
  *step.grad_norm.mutable_data<double>() = norm;
  *step.clip.mutable_data<double>() = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  *step.finite.mutable_data<bool>() = finite;
  if (!finite || !loss.defined() || !step.loss_sum.defined()) return;
  for_float("gradient_norm", loss.dtype(), [&]<class T>(T) {
    double sum = 0;
    for (int64_t i = 0; i < loss.numel(); ++i)
      sum += static_cast<double>(static_cast<compute_t<T>>(loss.data<T>()[i]));
    *step.loss_sum.mutable_data<float>() += static_cast<float>(sum);
  });
}

void adamw(ParameterLists& p, Arrays& m, Arrays& v, const OptimizerStep& step, double beta1,
           double beta2, double eps) {
  if (!*step.finite.data<bool>()) return;
  const double clip = *step.clip.data<double>();
  const auto update = [&](size_t i, double lr, double weight_decay, int64_t at, int64_t n) {
    const auto t = static_cast<double>(p.counts.data<int64_t>()[i]);
    const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
    for_float("adamw", p.values[i].dtype(), [&]<class T>(T) {
      using C = compute_t<T>;
      const auto scale = static_cast<C>(clip), keep = static_cast<C>(1 - lr * weight_decay);
      const auto new1 = static_cast<C>(1 - beta1), old2 = static_cast<C>(beta2),
                 new2 = static_cast<C>(1 - beta2), epsilon = static_cast<C>(eps);
      const auto size = static_cast<C>(lr / correction1),
                 root2 = static_cast<C>(1 / std::sqrt(correction2));
      const T* g = p.grads[i].data<T>() + at;
      T* value = p.values[i].mutable_data<T>() + at;
      T *first = m[i].mutable_data<T>() + at, *second = v[i].mutable_data<T>() + at;
#pragma omp simd
      for (int64_t k = 0; k < n; ++k) {
        const C gradient = static_cast<C>(g[k]) * scale, m_old = static_cast<C>(first[k]);
        const C m_new = m_old + new1 * (gradient - m_old);
        const C v_new = old2 * static_cast<C>(second[k]) + new2 * gradient * gradient;
        value[k] = static_cast<T>(static_cast<C>(value[k]) * keep -
                                  size * m_new / (std::sqrt(v_new) * root2 + epsilon));
        first[k] = static_cast<T>(m_new);
        second[k] = static_cast<T>(v_new);
      }
      write_copy(p.rounded[i], value, at, n);
    });
  };
  for_updates(p, step, update);
}

void sgd(ParameterLists& p, Arrays& buffers, const OptimizerStep& step, double momentum,
         bool nesterov) {
  if (!*step.finite.data<bool>()) return;
  const double clip = *step.clip.data<double>();
  const auto update = [&](size_t i, double lr, double weight_decay, int64_t at, int64_t n) {
    for_float("sgd", p.values[i].dtype(), [&]<class T>(T) {
      using C = compute_t<T>;
      const auto scale = static_cast<C>(clip), shrink = static_cast<C>(weight_decay),
                 rate = static_cast<C>(lr), mu = static_cast<C>(momentum);
      const T* g = p.grads[i].data<T>() + at;
      T* value = p.values[i].mutable_data<T>() + at;
      T* buffer = buffers.empty() ? nullptr : buffers[i].mutable_data<T>() + at;
#pragma omp simd
      for (int64_t k = 0; k < n; ++k) {
        C change = static_cast<C>(g[k]) * scale + shrink * static_cast<C>(value[k]);
        if (buffer != nullptr) {
          const C moving = mu * static_cast<C>(buffer[k]) + change;
          buffer[k] = static_cast<T>(moving);
          change = nesterov ? change + mu * moving : moving;
        }
        value[k] = static_cast<T>(static_cast<C>(value[k]) - rate * change);
      }
      write_copy(p.rounded[i], value, at, n);
    });
  };
  for_updates(p, step, update);
}

}  // namespace ink::cpu
