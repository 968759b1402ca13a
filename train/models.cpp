#include "train/models.h"

#include <utility>

#include "data/registry.h"
#include "train/config.h"
#include "train/memory.h"

namespace ink {

static Registry<MakeModel>& models() {
  static Registry<MakeModel> table("model", {{"gpt", [](const GPTConfig& sizes) {
                                                check_memory("this model",
                                                             4 * least_parameters(sizes));
                                                return std::make_unique<GPT>(sizes);
                                              }}});
  return table;
}

void add_model(const std::string& name, MakeModel make) {
  INK_CHECK(make, "add_model: ", name, ": expected what makes the model, got none");
  models().add(name, std::move(make));
}

std::vector<std::string> model_names() { return models().names(); }

std::unique_ptr<LanguageModel> make_model(const std::string& name, const GPTConfig& sizes) {
  check_limits("model", {.choices = model_names()}, name);
  std::unique_ptr<LanguageModel> model = (*models().find(name))(sizes);
  INK_CHECK(model, "make_model: what add_model was given for ", name, " made none");
  INK_CHECK(
      model->config.vocab_size >= sizes.vocab_size && model->config.block_size >= sizes.block_size,
      "make_model: ", name, " was asked for block_size ", sizes.block_size, " and vocab_size ",
      sizes.vocab_size, ", and its config has ", model->config.block_size, " and ",
      model->config.vocab_size);
  return model;
}

}  // namespace ink
