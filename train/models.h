// The models that a run can train, by name: GPT, and those that a program adds.
//
//   int main(int argc, char** argv) {
//     ink::add_model<AlibiGPT>("alibi");            // before anything else
//     return ink::run_command_line(argc, argv);     // train --model alibi, then sample, eval, ...
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/gpt.h"

namespace ink {

/// Makes a model of these sizes.
using MakeModel = std::function<std::unique_ptr<LanguageModel>(const GPTConfig&)>;

/// From now on TrainConfig::model, and so --model, may be `name`, and a checkpoint of such a run
/// can be read. Call it before other threads run. Throws if there is a model of that name.
void add_model(const std::string& name, MakeModel make);
/// ... made as a Model(sizes).
template <class Model>
void add_model(const std::string& name) {
  add_model(name, detail::make_with_fields<Model, GPTConfig>);
}

/// "gpt", which is GPT itself, and those that were added.
std::vector<std::string> model_names();

/// A model of that name. Throws where there is none, and lists those there are.
std::unique_ptr<LanguageModel> make_model(const std::string& name, const GPTConfig& sizes);

}  // namespace ink
