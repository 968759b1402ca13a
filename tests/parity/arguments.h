// The arguments of a parity case (parity/parity.py), by PyTorch's names.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"

namespace ink::parity {

using Json = nlohmann::ordered_json;

class Arguments {
 public:
  const std::string op;

  Arguments(std::string op_name, const Json& given, const std::map<std::string, Tensor>& stored)
      : op(std::move(op_name)), given_(given), stored_(stored) {
    for (const auto& [name, value] : given_.items()) collect(value);
  }

  bool has(const char* name) const { return given_.contains(name) && !given_[name].is_null(); }
  bool is_tensor(const char* name) const { return has(name) && given_[name].contains("t"); }
  bool is_list(const char* name) const { return has(name) && given_[name].is_array(); }

  /// Undefined if it is not given.
  Tensor t(const char* name) { return has(name) ? made(given_[name]) : Tensor(); }
  std::vector<Tensor> ts(const char* name) {
    std::vector<Tensor> list;
    for (const Json& one : given_[name]) list.push_back(made(one));
    return list;
  }
  double number(const char* name, double otherwise = 0) const {
    return has(name) ? number_of(given_[name]) : otherwise;
  }
  /// A number as it was written: an integer, or one with a point.
  Scalar scalar(const char* name) const {
    const Json& value = given_[name];
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number_integer()) return value.get<int64_t>();
    return number(name);
  }
  std::optional<Scalar> maybe(const char* name) const {
    return has(name) ? std::optional(scalar(name)) : std::nullopt;
  }
  int64_t i(const char* name, int64_t otherwise = 0) const {
    return has(name) ? given_[name].get<int64_t>() : otherwise;
  }
  std::optional<int64_t> maybe_i(const char* name) const {
    return has(name) ? std::optional(i(name)) : std::nullopt;
  }
  bool flag(const char* name, bool otherwise = false) const {
    return has(name) ? given_[name].get<bool>() : otherwise;
  }
  std::string text(const char* name, const char* otherwise) const {
    return has(name) ? given_[name].get<std::string>() : otherwise;
  }
  /// A list of sizes or dimensions; a number alone is a list of one.
  Shape dims(const char* name) const {
    Shape list;
    if (!has(name)) return list;
    if (!given_[name].is_array()) return {i(name)};
    for (const Json& one : given_[name]) list.push_back(one.get<int64_t>());
    return list;
  }
  Options dtype() const {
    static const std::map<std::string, DType> names = {
        {"float64", f64}, {"float32", f32}, {"bfloat16", bf16}, {"int64", i64}, {"bool", boolean}};
    return has("dtype") ? Options(names.at(given_["dtype"])) : Options();
  }
  const Json& operator[](const char* name) const { return given_[name]; }

  /// The tensors that require grad, in the order of the arguments.
  std::vector<Tensor> leaves() const {
    std::vector<Tensor> list;
    for (const auto& [key, x] : tensors_)
      if (x.requires_grad()) list.push_back(x);
    return list;
  }

  Tensor made(const Json& value) {
    for (const auto& [key, x] : tensors_)
      if (key == value.at("t").get<std::string>()) return x;
    throw std::logic_error("no such tensor");
  }

  static double number_of(const Json& value) {
    if (!value.is_object()) return value.get<double>();
    return std::strtod(value["number"].get<std::string>().c_str(), nullptr);
  }

 private:
  void collect(const Json& value) {
    if (value.is_array()) {
      for (const Json& one : value) collect(one);
    } else if (value.is_object() && value.contains("t")) {
      tensors_.emplace_back(value["t"], as_described(value));
    }
  }

  Tensor as_described(const Json& value) const {
    const Tensor flat = stored_.at(value["t"].get<std::string>()).clone();
    Shape shape, strides;
    for (const Json& size : value["shape"]) shape.push_back(size.get<int64_t>());
    for (const Json& step : value["strides"]) strides.push_back(step.get<int64_t>());
    if (value["strides"].is_null()) strides = contiguous_strides(shape);
    Tensor x = flat.alias({shape, strides, value["offset"].get<int64_t>()});
    return value["grad"].get<bool>() ? x.requires_grad_() : x;
  }

  const Json& given_;
  const std::map<std::string, Tensor>& stored_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

}  // namespace ink::parity
