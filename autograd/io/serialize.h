// save and load: named tensors in a safetensors file, which Python reads and writes, too.
//
//   save("model.safetensors", model.state_dict());
//   model.load_state_dict(load("model.safetensors"));
//
// The file: the header's length (u64), the header (JSON: for each name its dtype, shape and place),
// the elements; all little-endian. https://github.com/huggingface/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor.h"

namespace ink {

/// Tensors with names, in a meaningful order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Text about a file: keys and values.
using Metadata = std::map<std::string, std::string>;

/// Writes tensors of any layout and device. The file appears whole or not at all.
void save(const std::filesystem::path& file, const NamedTensors& tensors,
          const Metadata& metadata = {});

/// Reads all tensors into CPU memory, in the header's order, and the metadata if it is wanted.
/// Dtypes F32, F64, BF16, I64 and BOOL; F16 becomes f32, and I32 and U8 become i64. Anything but a
/// whole and sound file of these is an error that says what is wrong with it.
NamedTensors load(const std::filesystem::path& file, Metadata* metadata = nullptr);

}  // namespace ink
