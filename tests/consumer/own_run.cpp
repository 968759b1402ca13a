// Models, a tokenizer and an optimizer of a user's own (own_parts.h): trained, saved, resumed to
// the same bits, loaded, and let to write.
#include <inkling/data/tokenizer.h>
#include <inkling/nn/gpt.h>
#include <inkling/nn/rms_norm.h>
#include <inkling/train/optimizer.h>
#include <inkling/train/trainer.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "own_parts.h"

// What the model of two runs writes, if they have the same bits.
std::string text_of_both(const std::string& out_dir, const std::string& other) {
  const ink::LoadedModel a = ink::load_model(out_dir), b = ink::load_model(other);
  const auto mine = a.model->state_dict(), its = b.model->state_dict();
  for (size_t i = 0; i < mine.size(); ++i)
    if (!ink::equal(mine[i].second, its[i].second)) return "";
  std::string text;
  ink::write_sample(*a.model, *a.tokenizer, "", {.max_new_tokens = 12},
                    [&](const std::string& piece) { text += piece; });
  return text;
}

bool trains(ink::TrainConfig config, const std::string& name, const std::filesystem::path& folder) {
  config.model = name;
  config.out_dir = folder / (name + "_straight");
  const auto run = [&](int64_t steps) {
    ink::Trainer trainer(config);
    while (trainer.steps_done() < steps) trainer.step();
    trainer.save("ckpt");
  };
  run(20);
  const std::string straight = config.out_dir;
  config.out_dir = folder / name;
  run(10);
  config.init_from = "resume";
  run(20);
  const std::string text = text_of_both(straight, config.out_dir);
  std::cout << name << ":" << text << "\n";
  return !text.empty();
}

int main() {
  own::add_all();
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "inkling-own-run";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream book(folder / "book.txt");
  for (int i = 0; i < 400; ++i) book << (i % 7 ? " the" : " once") << (i % 3 ? " cat" : " dog");
  book.close();
  ink::TrainConfig config;
  config.data = {folder / "book.txt"};
  config.tokenizer = "word";
  config.optimizer = "signum";
  config.schedule_name = "root";
  config.learning_rate = 1e-3;
  config.n_embd = 32;
  config.block_size = 16;
  bool right = true;
  for (const char* name : {"rms", "mixture", "recurrent"})
    right = trains(config, name, folder) && right;
  std::filesystem::remove_all(folder);
  return right ? 0 : 1;
}
