// Folders of checkpoints. The parts of an input replace those of a whole one:
//
//   %% config     config.json
//   %% state      what state.json says of the run; checksums are made to fit
//   %% file       the whole of state.json, whose own checksum is made to fit
//   %% raw        the whole of state.json as it is
//   %% model      the header of model.safetensors, to which elements are added
//   %% metrics    metrics.jsonl
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "autograd/io/log.h"
#include "data/file.h"
#include "data/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_files.h"
#include "train/checkpoint.h"
#include "train/cli/console.h"
#include "train/optimizer.h"
#include "train/saved_run.h"

namespace ink::fuzz {
namespace {

using Json = nlohmann::json;

std::string checksum_of(std::string_view text) {
  char hex[17];
  const uint64_t crc = crc64(std::as_bytes(std::span(text.data(), text.size())));
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(crc));
  return hex;
}

AdamW optimizer_of(const GPT& model) {
  return AdamW(decay_matrices(model.named_parameters(), 0.1), AdamWOptions());
}

// A whole checkpoint of a tiny model.
Checkpoint whole_checkpoint() {
  TrainConfig config;
  config.n_layer = config.n_head = 1;
  config.n_embd = config.block_size = 2;
  const CharTokenizer tokenizer({'a', 'b'});
  const GPT model(config.gpt(tokenizer.vocab_size()));
  Checkpoint whole{.config = to_json(config), .model = model.state_dict()};
  whole.config["vocabulary"] = Json::parse(tokenizer.to_json());
  whole.config["start"] = "a";
  whole.state = {{"dataset", "text"}, {"step", 3}, {"validated_step", 2}, {"best_val_loss", 0.5}};
  whole.optimizer = optimizer_of(model).state();
  return whole;
}

// The folder of a run, whose files are written anew for each input.
class Run {
 public:
  Run() {
    save_checkpoint(folder_.path(), "ckpt", whole_checkpoint());
    for (const char* name : {"config.json", "model.safetensors", "optimizer.safetensors"})
      files_[name] = read_file(folder_ / "ckpt" / name);
    state_ = Json::parse(read_file(folder_ / "ckpt/state.json"));
  }

  const std::filesystem::path& path() const { return folder_.path(); }

  void write(const std::map<std::string, std::string>& sections) {
    auto files = files_;
    if (sections.count("config") > 0) files["config.json"] = sections.at("config");
    if (sections.count("model") > 0)
      files["model.safetensors"] = with_elements(sections.at("model"));
    Json state = state_;
    for (const auto& [name, bytes] : files) {
      write_file(folder_ / "ckpt" / name, bytes);
      state["files"][name] = {{"bytes", bytes.size()}, {"crc64", checksum_of(bytes)}};
    }
    write_file(folder_ / "ckpt/state.json", state_text(sections, std::move(state)));
  }

 private:
  static std::string with_elements(std::string header) {
    if (!header.empty() && header.back() == '\n') header.pop_back();
    uint64_t elements = 0;
    const Json json = Json::parse(header, nullptr, false);
    if (json.is_object())
      for (const Json& entry : json)
        if (entry.is_object() && entry.contains("data_offsets") &&
            entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2 &&
            entry["data_offsets"][1].is_number_unsigned())
          elements = std::max(elements, entry["data_offsets"][1].get<uint64_t>());
    const uint64_t length = header.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    return file + header + std::string(std::min(elements, uint64_t{1} << 16), '\0');
  }

  static std::string state_text(const std::map<std::string, std::string>& sections, Json state) {
    if (sections.count("raw") > 0) return sections.at("raw");
    if (sections.count("file") > 0) {
      state = Json::parse(sections.at("file"), nullptr, false);
      if (!state.is_object()) return sections.at("file");
    } else if (sections.count("state") > 0) {
      state["state"] = Json::parse(sections.at("state"), nullptr, false);
      if (state["state"].is_discarded()) return sections.at("state");
    }
    state.erase("checksum");
    state["checksum"] = checksum_of(state.dump());
    return state.dump(2);
  }

  TempFolder folder_;
  std::map<std::string, std::string> files_;
  Json state_;
};

// What was read can be saved, and is the same when it is read again.
void check_comes_back(const Run& run) {
  static const TempFolder other;
  const LoadedCheckpoint loaded = load_checkpoint(run.path(), "ckpt");
  save_checkpoint(other.path(), "ckpt", loaded);
  const LoadedCheckpoint again = load_checkpoint(other.path(), "ckpt");
  expect(loaded.config == again.config && loaded.state == again.state, "others come back");
}

void check_run(const Run& folder, std::string_view input) {
  SavedRun run;
  if (error_of(
          input, [&] { run = load_run(folder.path(), "ckpt"); }, Lines::many))
    return;
  TrainConfig config;
  from_json(to_json(run.config), config);
  expect(to_json(config) == to_json(run.config), "another config comes back");
  expect(run.step >= 0 && run.step <= kMostSteps, "a step that cannot be");
  expect(!run.tokenizer->encode(run.start).empty(), "nothing to start from");
  // These take fifty times as long as all before: some of the inputs.
  if (hash_of(input) % 16 == 0) check_comes_back(folder);
  if (hash_of(input) % 16 > 1) return;
  const auto model = std::make_unique<GPT>(run.config.gpt(run.tokenizer->vocab_size()));
  error_of(
      input, [&] { model->load_state_dict(run.model_state); }, Lines::many);
  error_of(
      input, [&] { optimizer_of(*model).load_state(run.optimizer_state); }, Lines::many);
}

void check_metrics(const std::string& text, std::string_view input) {
  static const TempFolder folder;
  const auto file = folder / kMetricsFile;
  constexpr int64_t kLast = 500;
  write_file(file, text);
  if (error_of(input, [&] { const Metrics metrics(file, kLast); })) return;
  const std::string kept = std::filesystem::file_size(file) > 0 ? read_file(file) : "";
  { const Metrics metrics(file, kLast); }
  expect(kept.empty() || read_file(file) == kept, "lines that were kept go");
  size_t from = 0;  // in `text`
  for (size_t at = 0, end; at < kept.size(); at = end + 1) {
    end = kept.find('\n', at);
    expect(end != std::string::npos, "a line without its end");
    const std::string line = kept.substr(at, end - at);
    from = text.find(line, from);
    expect(from != std::string::npos, "a line that was not there");
    from += line.size();
    const Json object = Json::parse(line, nullptr, false);
    expect(object.is_object() && object.contains("step") && object["step"].is_number_unsigned() &&
               object["step"].get<uint64_t>() <= kLast,
           "kept as a step of this run: " + line);
  }
}

}  // namespace

void check_input(std::string_view input) {
  static std::string_view told_of;
  told_of = input;
  static Run run;
  set_log_callback([](const std::string& text) { check_text(text, told_of, Lines::many); });
  const auto sections = sections_of(input);
  if (sections.count("metrics") > 0) check_metrics(sections.at("metrics"), input);
  if (sections.size() > sections.count("metrics")) {
    run.write(sections);
    check_run(run, input);
  }
}

}  // namespace ink::fuzz
