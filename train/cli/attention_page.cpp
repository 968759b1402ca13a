#include "train/cli/attention_page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/basic_ops.h"
#include "train/report/page.h"

namespace ink {
namespace {

// One layer's weights, (n_head, T, T), as 16-bit numbers, the low byte first.
void append_layer(std::string& bytes, const Tensor& weights, bool is_causal) {
  const int64_t T = weights.size(-1);
  const std::vector<double> values = weights.detach().tolist();
  for (int64_t row = 0; row < weights.size(0) * T; ++row) {
    const int64_t seen = is_causal ? row % T + 1 : T;
    for (int64_t j = 0; j < seen; ++j) {
      const double w = values[static_cast<size_t>(row * T + j)];
      INK_CHECK(w >= 0 && w <= 1 + 1e-5, "attention_page: expected weights in [0, 1], got ", w);
      const auto stored = static_cast<uint32_t>(std::lround(std::min(w, 1.0) * 65535));
      bytes += static_cast<char>(stored & 255);
      bytes += static_cast<char>(stored >> 8);
    }
  }
}

}  // namespace

std::string attention_page(const std::string& title, const std::vector<std::string>& tokens,
                           const std::vector<Tensor>& weights, bool is_causal) {
  const auto T = static_cast<int64_t>(tokens.size());
  INK_CHECK(T > 0 && !weights.empty(), "attention_page: expected tokens and layers, got ", T,
            " tokens and ", weights.size(), " layers");
  std::string bytes;
  for (const Tensor& layer : weights) {
    const Shape expected{weights[0].size(0), T, T};
    INK_CHECK(layer.is_floating() && layer.shape() == expected,
              "attention_page: expected weights of shape ", expected, ", got ", layer.shape(), " ",
              layer.dtype());
    append_layer(bytes, layer, is_causal);
  }
  const nlohmann::ordered_json data = {{"title", title},           {"tokens", tokens},
                                       {"layers", weights.size()}, {"heads", weights[0].size(0)},
                                       {"causal", is_causal},      {"weights", base64(bytes)}};
  return page("attention", {"base", "attention"}, data);
}

}  // namespace ink
