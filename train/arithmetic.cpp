#include "train/arithmetic.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/context.h"
#include "autograd/base/text.h"
#include "autograd/gemm/units.h"
#include "autograd/inspect/machine.h"
#include "autograd/io/foreign.h"
#include "autograd/kernels/version.h"
#include "autograd/memory/device_backend.h"

namespace ink {
namespace {

// "amx, avx512 for small ones": the units for a dtype's products; OpenBLAS with its kernels, which
// it chooses by the processor.
std::string products_of(DType dtype) {
  const auto name = [](const GemmUnit* unit) {
    if (unit != nullptr && unit != openblas_unit()) return std::string(unit->name);
    return "default (" + openblas_version() + ")";
  };
  const std::string best = name(gemm_unit(dtype)), small = name(gemm_unit(dtype, true));
  return best == small ? best : best + ", " + small + " for small ones";
}

size_t place_of(DType dtype) {
  const auto& all = Arithmetic::kDtypes;
  return static_cast<size_t>(std::find(all.begin(), all.end(), dtype) - all.begin());
}

}  // namespace

Arithmetic Arithmetic::here(Device device, int64_t threads, int64_t batch_parts,
                            int64_t part_threads) {
  Arithmetic here;
  here.device = device.is_cpu() ? "cpu" : describe(device);
  for (size_t i = 0; i < kDtypes.size(); ++i) here.products[i] = products_of(kDtypes[i]);
  here.built_for = ink::built_for();
  here.kernels = kKernelVersion;
  here.threads = threads;
  here.batch_parts = batch_parts;
  here.part_threads = part_threads;
  return here;
}

Arithmetic Arithmetic::from_json(const Fields& fields) {
  constexpr int64_t kMost = 1 << 20;
  Arithmetic saved;
  saved.device = fields.text("device");
  const Fields products = fields.object("products");
  for (size_t i = 0; i < kDtypes.size(); ++i)
    saved.products[i] = products.text(name_of(kDtypes[i]));
  saved.built_for = fields.text("built_for");
  saved.kernels = fields.count("kernels", kMost);
  saved.threads = fields.count("threads", kMost);
  saved.batch_parts = fields.count("batch_parts", kMost);
  if (fields.has("part_threads")) saved.part_threads = fields.count("part_threads", kMost);
  return saved;
}

nlohmann::json Arithmetic::to_json() const {
  nlohmann::json names;
  for (size_t i = 0; i < kDtypes.size(); ++i) names[name_of(kDtypes[i])] = products[i];
  nlohmann::json json = {{"device", device},   {"products", names},  {"built_for", built_for},
                         {"kernels", kernels}, {"threads", threads}, {"batch_parts", batch_parts}};
  if (part_threads > 1) json["part_threads"] = part_threads;
  return json;
}

std::string Arithmetic::text() const {
  TextStream out;
  out << "kernels of version " << kernels << " on " << device;
  if (device != "cpu") return out.str();
  out << "; products by ";
  for (size_t i = 0; i < kDtypes.size(); ++i)
    out << (i == 0 ? "" : ", ") << products[i] << " for " << kDtypes[i];
  out << "; row kernels for " << built_for << "; threads " << threads << ", batch_parts "
      << batch_parts;
  return out.str();
}

const GemmUnit* Arithmetic::first_unit(DType dtype) const {
  const GemmUnit* found = nullptr;
  for (const GemmUnit* unit : gemm_units()) {
    const FieldGuard first(&Context::first_unit, unit);
    if (products_of(dtype) != products[place_of(dtype)]) continue;
    if (found == nullptr) found = unit;
    bool all = true;
    for (size_t i = 0; i < kDtypes.size(); ++i) all &= products_of(kDtypes[i]) == products[i];
    if (all) return unit;
  }
  return found;
}

std::string changed_bits(const Arithmetic& before, const Arithmetic& now,
                         const std::vector<DType>& dtypes) {
  std::string text;
  const auto note = [&](const std::string& what, const auto& is, const auto& was) {
    if (is != was)
      text += detail::joined({text.empty() ? "" : ", ", what, is, " (before: ", was, ")"});
  };
  note("device ", now.device, printable(before.device, 60));
  note("kernels of version ", now.kernels, before.kernels);
  if (now.device != "cpu" || before.device != "cpu") return text;
  for (const DType dtype : dtypes) {
    const size_t place = place_of(dtype);
    note(name_of(dtype) + std::string(" products by "), now.products[place],
         printable(before.products[place], 60));
  }
  note("row kernels for ", now.built_for, printable(before.built_for, 60));
  note("threads ", now.threads, before.threads);
  note("batch_parts ", now.batch_parts, before.batch_parts);
  note("threads for a part ", now.part_threads, before.part_threads);
  return text;
}

}  // namespace ink
