// inkling look: a page that shows one forward pass of a trained model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/cli/command_line.h"
#include "train/cli/model_options.h"
#include "train/cli/out_folder.h"
#include "train/report/look.h"
#include "train/report/page.h"
#include "train/report/run_data.h"
#include "train/trainer.h"

namespace ink {
namespace {

// The ids of the text, or of one that the model writes.
std::vector<int64_t> ids_to_show(const LoadedModel& loaded, const std::string& start,
                                 int64_t tokens) {
  if (!start.empty()) return encoded_start(*loaded.tokenizer, start);
  context().random = {.seed = 1337};
  return write_sample(*loaded.model, *loaded.tokenizer, loaded.start,
                      {.max_new_tokens = tokens - 1}, [](const std::string&) {});
}

std::string look_page(const LoadedModel& loaded, std::vector<int64_t> ids) {
  const int64_t most = look_tokens(loaded.model->config), given = std::ssize(ids);
  if (given > most) ids.erase(ids.begin(), ids.end() - most);
  nlohmann::json data = look_data(*loaded.model, *loaded.tokenizer, ids);
  data["title"] = fmt::format("A look into {}, step {}", loaded.folder.string(), loaded.step);
  data["model"] = model_text(loaded.config, *loaded.model);
  data["trained_on"] = loaded.dataset;
  data["given"] = given;
  return page("look", {"base", "heatmap", "attention", "look_steps", "look"}, data);
}

}  // namespace

int look_command(const Arguments& arguments) {
  CommandOptions command("look",
                         "Writes an HTML page that shows one forward pass of a trained model: "
                         "every tensor, what the model says next, and what each head does.");
  ModelOptions model;
  std::string start, out = "look.html";
  model.add_to(command);
  command.add("--start", &start,
              "the text to look at, in which <|endoftext|> is that token, or FILE:path; by default "
              "one that the model writes",
              {.may_be_empty = true});
  command.add("--out", &out, "the page; -: standard output", {.shows_default = true});
  if (!command.parse(arguments)) return kOk;
  const FieldGuard on_device(&Context::default_device, parsed_device(model.device));
  start = given_text(start, "--out", out);
  check_not_of_run("--out", model.out_dir, out);
  check_writable("--out", out);
  const LoadedModel loaded = model.load();
  const std::vector<int64_t> ids = ids_to_show(loaded, start, look_tokens(loaded.model->config));
  write_output("--out", out, look_page(loaded, ids));
  return kOk;
}

}  // namespace ink
