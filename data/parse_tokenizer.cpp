// A tokenizer of any kind, from the text or the file that it was saved in.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "data/bpe/bpe_tokenizer.h"
#include "data/file.h"
#include "data/meta_pkl.h"
#include "data/registry.h"
#include "data/tokenizer.h"

namespace ink {
namespace {

using nlohmann::json;

std::unique_ptr<Tokenizer> parse_char_tokenizer(std::string_view text) {
  const json object = parse_json(text);
  const auto field = object.find("characters");
  INK_CHECK(field != object.end() && field->is_string(),
            "tokenizer: expected \"characters\", a string of the vocabulary, got ",
            field == object.end() ? "none" : field->type_name());
  // The parser has checked that strings are valid UTF-8.
  return CharTokenizer::of_saved(field->get_ref<const std::string&>());
}

std::unique_ptr<Tokenizer> parse_id_tokenizer(std::string_view text) {
  const json object = parse_json(text);
  const int64_t size = Fields("tokenizer", object).count("vocab_size", int64_t{1} << 32);
  INK_CHECK(size > 0, "tokenizer: expected a vocab_size of at least 1, got 0");
  return std::make_unique<IdTokenizer>(size);
}

struct Kind {
  MakeTokenizer parse, learn;
};
Registry<Kind>& kinds() {
  static Registry<Kind> kinds(
      "tokenizer",
      {{"byte", {[](std::string_view) { return std::make_unique<ByteTokenizer>(); }, {}}},
       {"char", {parse_char_tokenizer, {}}},
       {"ids", {parse_id_tokenizer, {}}}});
  return kinds;
}

}  // namespace

void add_tokenizer(const std::string& name, MakeTokenizer parse, MakeTokenizer learn) {
  INK_CHECK(parse, "add_tokenizer: ", name, ": expected what makes one of its JSON, got none");
  kinds().add(name, {std::move(parse), std::move(learn)});
}

std::vector<std::string> tokenizer_names() { return kinds().names(); }

MakeTokenizer tokenizer_learner(const std::string& name) {
  const Kind* kind = kinds().find(name);
  return kind ? kind->learn : nullptr;
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view text) {
  const json object = with_prefix("tokenizer", [&] { return parse_json(text); });
  if (object.is_object() && object.contains("model")) return bpe::parse_tokenizer(text);
  const bool has_kind = object.is_object() && object.contains("tokenizer");
  const json kind = has_kind ? object["tokenizer"] : json();
  if (kind.is_string())
    if (const Kind* found = kinds().find(kind.get<std::string>())) {
      const std::string name = "tokenizer " + kind.get<std::string>();
      std::unique_ptr<Tokenizer> made;
      try {
        made = found->parse(text);
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {  // of a program's own
        detail::fail({name, ": ", error.what()});
      }
      INK_CHECK(made, name, ": what add_tokenizer was given to read it made none");
      return made;
    }
  detail::fail(
      {"tokenizer: expected \"tokenizer\" to be \"char\", \"byte\" or \"ids\", or \"model\" as "
       "in a tokenizer.json, got ",
       kind.is_null() ? "none" : quoted(kind),
       kind.is_string() ? "; a program adds its own by add_tokenizer" : ""});
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  for (const char* name : {"ckpt", "best", "ckpt.prev"})  // of a run
    if (exists(path / name / "config.json")) return load_tokenizer(path / name / "config.json");
  if (exists(path / "state.json")) return load_tokenizer(path / "config.json");  // a checkpoint
  if (is_directory(path) || bpe::is_file_of_others(path)) return bpe::load_tokenizer(path);
  if (path.extension() == ".pkl") return std::make_unique<CharTokenizer>(characters_of_meta(path));
  const std::string text = read_text(path);
  if (path.filename() == "config.json")
    return with_prefix(path.string(), [&] {
      const json config = parse_json(text);
      INK_CHECK(config.is_object() && config.contains("vocabulary"),
                "expected the config.json of a run, with its \"vocabulary\", got another; name the "
                "folder that it is in, or a tokenizer.json");
      return parse_tokenizer(config["vocabulary"].dump());
    });
  const char* other = text.starts_with("minbpe v") ? "a model of minbpe"
                      : path.extension() == ".bin" ? "a file of another kind, such as llama2.c's"
                                                   : nullptr;
  INK_CHECK(other == nullptr, path.string(), ": expected a tokenizer.json, got ", other,
            "; name the tokenizer.json of the same model, or learn one: inkling tokenizer train");
  return with_prefix(path.string(), [&] { return parse_tokenizer(text); });
}

}  // namespace ink
