// A trained model without its trainer: loaded, and let to write.
#include <utility>

#include "autograd/io/log.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace ink {

LoadedModel load_model(const std::string& out_dir, const std::string& name,
                       const std::string& weights) {
  const Place place = name.empty() ? place_of(out_dir) : Place{out_dir, name};
  LoadedModel loaded;
  static_cast<SavedRun&>(loaded) = load_run(place.out_dir, place.name, Parts::model);
  if (name.empty() && checkpoint_exists(out_dir, kLastCheckpoint)) {
    const nlohmann::json last = checkpoint_state(out_dir, kLastCheckpoint);
    if (last.contains("validation_set") && last["validation_set"] != loaded.validation_set)
      log_message("load_model: ", loaded.folder.string(), " was chosen on other validation data ",
                  "than those of the last checkpoint; --checkpoint ckpt takes the last");
  }
  {
    const init::Skip skip;
    loaded.model =
        make_model(loaded.config.model, loaded.config.gpt(loaded.tokenizer->vocab_size()),
                   loaded.config.model_settings);
  }
  const bool average = weights == "ema" || (weights.empty() && !loaded.average_state.empty());
  INK_CHECK(!average || !loaded.average_state.empty(), "load_model: ", loaded.folder.string(),
            " has no average of its weights; only a run that was trained with --ema has one");
  with_prefix(loaded.folder.string(), [&] {
    loaded.model->load_state_dict(
        std::exchange(average ? loaded.average_state : loaded.model_state, {}));
  });
  loaded.model_state = loaded.average_state = {};
  loaded.model->eval();
  return loaded;
}

// Where a text begins, for a sample without a start.
static std::vector<int64_t> first_ids(const Tokenizer& tokenizer) {
  if (tokenizer.end_of_text() >= 0) return {tokenizer.end_of_text()};
  try {
    if (const auto ids = tokenizer.encode("\n"); !ids.empty()) return ids;
  } catch (const std::exception&) {  // it has no line end
  }
  return {0};
}

std::vector<int64_t> write_sample(const LanguageModel& model, const Tokenizer& tokenizer,
                                  const std::string& start, const GenerateOptions& options,
                                  const std::function<void(const std::string&)>& write) {
  std::vector<int64_t> ids = tokenizer.encode_with_special(start);
  if (ids.empty()) ids = first_ids(tokenizer);
  write(start.empty() ? tokenizer.decode(ids) : start);
  GenerateOptions streamed = options;
  streamed.vocab_size = tokenizer.vocab_size();
  streamed.on_token = [&](const std::vector<int64_t>& next) { write(tokenizer.decode(next)); };
  const auto parameters = model.parameters();
  Tensor first = ids_tensor(ids, 1);
  if (!parameters.empty()) first = first.to(parameters[0].device());
  return model.generate(first, streamed).tolist<int64_t>();
}

}  // namespace ink
