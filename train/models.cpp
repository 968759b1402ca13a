#include "train/models.h"

#include <map>
#include <utility>

#include "train/config.h"
#include "train/memory.h"

namespace ink {
namespace {

std::map<std::string, MakeModel>& models() {
  static std::map<std::string, MakeModel> table = {
      {"gpt", [](const GPTConfig& sizes) { return std::make_unique<GPT>(sizes); }}};
  return table;
}

}  // namespace

void add_model(const std::string& name, MakeModel make) {
  INK_CHECK(!name.empty() && make, "add_model: expected a name and what makes the model");
  const bool added = models().emplace(name, std::move(make)).second;
  INK_CHECK(added, "add_model: there is a model called ", name, " already");
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : models()) names.push_back(entry.first);
  return names;
}

std::unique_ptr<GPT> make_model(const std::string& name, const GPTConfig& sizes) {
  check_limits("model", {.choices = model_names()}, name);
  check_memory("this model", 4 * least_parameters(sizes));
  return models().at(name)(sizes);
}

}  // namespace ink
