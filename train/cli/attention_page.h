// Attention to look at: one HTML page with the weights of every layer and head.
#pragma once

#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// A self-contained page (no network, light and dark) that shows who looks at whom. Its heat maps
/// can be hovered, enlarged and stepped through with the arrow keys, and the tokens are shaded by
/// the weights of the head that is looked at.
///   tokens   T texts (UTF-8), as they are to be read
///   weights  one tensor a layer, (n_head, T, T) and floating: row i says how much token i takes
///            from each token; GPT::attention_weights gives them
/// With is_causal, what lies after the diagonal is shown as masked and is not stored. Weights are
/// kept to 1 / 65535. Throws on shapes that do not fit and on weights outside [0, 1].
std::string attention_page(const std::string& title, const std::vector<std::string>& tokens,
                           const std::vector<Tensor>& weights, bool is_causal = true);

}  // namespace ink
