#include "train/data_parallel.h"

#include <algorithm>

#include "autograd/base/parallel.h"
#include "autograd/basic_ops.h"
#include "autograd/engine/grad_store.h"
#include "autograd/engine/graph.h"
#include "autograd/memory/device_backend.h"

namespace ink {
namespace {

// A parameter's gradients of all parts, added in order; undefined if it has none.
Tensor sum_of_parts(const Tensor& parameter, std::vector<GradStore>& stores) {
  Tensor sum;
  for (GradStore& store : stores) {
    Tensor part = store.take(parameter);
    if (part.defined()) detail::add_gradient(sum, std::move(part), false, false);
  }
  return sum;
}

}  // namespace

int64_t batch_parts(const TrainConfig& config, int64_t model_parameters) {
  constexpr int64_t kSmallModel = 1 << 22;  // parameters
  const int64_t wanted = config.batch_parts > 0 ? config.batch_parts
                         : model_parameters <= kSmallModel
                             ? host_threads(parse_device(config.device))
                             : 1;
  return std::min(wanted, config.batch_size);
}

Tensor backward_in_parts(const std::vector<Tensor>& parameters, int64_t rows, int64_t parts,
                         double scale, const PartLoss& loss) {
  INK_CHECK(parts >= 1 && parts <= rows, "backward_in_parts: expected 1 to ", rows,
            " parts of as many rows, got ", parts);
  if (parts == 1) {
    const Tensor mean = loss(0, rows);
    backward({scale == 1 ? mean : mean * scale});
    return mean.detach();
  }
  std::vector<GradStore> stores(static_cast<size_t>(parts));
  std::vector<Tensor> losses(static_cast<size_t>(parts));
  const Context caller = context();
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const ContextGuard guard(caller);
      const int64_t first = rows * part / parts, count = rows * (part + 1) / parts - first;
      context().random.first_row += static_cast<uint64_t>(first);
      const double weight = static_cast<double>(count) / static_cast<double>(rows);
      const Tensor mean = loss(first, count);
      backward(mean * (scale * weight), stores[static_cast<size_t>(part)]);
      losses[static_cast<size_t>(part)] = mean.detach() * weight;
    }
  });
  const NoGrad no_grad;
  Grads sums(parameters.size());
  parallel_for(std::ssize(parameters), 1, [&](int64_t begin, int64_t end) {
    const ContextGuard guard(caller);
    const NoGrad no_graph;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      sums[i] = sum_of_parts(parameters[i], stores);
  });
  // Here, one after the other: users' hooks may see them.
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].defined()) parameters[i].slot()->accumulate(std::move(sums[i]), false);
  }
  Tensor total = losses[0];
  for (size_t part = 1; part < losses.size(); ++part) total = total + losses[part];
  return total;
}

}  // namespace ink
