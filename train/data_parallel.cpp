#include "train/data_parallel.h"

#include <algorithm>

#include "autograd/memory/device_backend.h"

namespace ink {

int64_t batch_parts(const TrainConfig& config, int64_t model_parameters) {
  constexpr int64_t kSmallModel = 1 << 22;  // parameters
  const int64_t wanted = config.batch_parts > 0 ? config.batch_parts
                         : model_parameters <= kSmallModel
                             ? host_threads(parse_device(config.device))
                             : 1;
  return std::min(wanted, config.batch_size);
}

}  // namespace ink
