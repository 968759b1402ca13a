// From text to ids and back: byte-pair encoding
//
// A model reads numbers. A tokenizer turns a text into them and back. Afterwards you can say what a
// vocabulary of byte pairs is, how it is learned, and what goes wrong where two programs cut a text
// in different ways.
#include "data/bpe/train.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

using Ids = std::vector<int64_t>;

struct Lesson10 : Notebook {
  const std::string text = "the cat saw the other cat and the hat";

  static std::string list(const Ids& ids) {
    std::string shown;
    for (const int64_t id : ids) shown += (shown.empty() ? "" : " ") + std::to_string(id);
    return shown;
  }

  // ---- 1. Characters and bytes

  void step_1() {
    // A character of Unicode is one to four bytes in UTF-8. A vocabulary of characters is as large
    // as the text is rich, and lacks what another text has. One of bytes has 256 ids and lacks
    // nothing, but its texts are long.
    const std::string word = "na\xc3\xafve";
    const CharTokenizer characters(distinct_characters(word));
    const ByteTokenizer bytes;
    print("characters:", list(characters.encode(word)));
    print("bytes:     ", list(bytes.encode(word)));
    print(message_of([&] { characters.encode("native"); }));
  }

  // ---- 2. The most frequent pair becomes a token

  using Pair = std::pair<int64_t, int64_t>;

  static std::map<Pair, int> counted(const Ids& ids) {
    std::map<Pair, int> counts;
    for (size_t i = 0; i + 1 < ids.size(); ++i) ++counts[{ids[i], ids[i + 1]}];
    return counts;
  }
  static Ids merged(const Ids& ids, const Pair& pair, int64_t result) {
    Ids all;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool here = i + 1 < ids.size() && Pair(ids[i], ids[i + 1]) == pair;
      all.push_back(here ? result : ids[i]);
      if (here) ++i;
    }
    return all;
  }

  void step_2() {
    // Byte-pair encoding lies between: it begins with bytes, and gives the pair that is met most
    // often an id of its own, again and again. Each such merge makes the text shorter.
    Ids ids = ByteTokenizer().encode(text);
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    print(ids.size(), "bytes");
    for (int merge = 0; merge < 6; ++merge) {
      // The first of the map among equals: that of the smallest ids.
      Pair best;
      int count = 0;
      for (const auto& [pair, times] : counted(ids))
        if (times > count) best = pair, count = times;
      tokens.push_back(tokens[static_cast<size_t>(best.first)] +
                       tokens[static_cast<size_t>(best.second)]);
      ids = merged(ids, best, std::ssize(tokens) - 1);
      print("'" + tokens.back() + "'", "was met", count, "times; now", ids.size(), "tokens");
    }
  }

  // ---- 3. First the text is cut

  static std::string pieces(const std::string& pattern, const std::string& of) {
    std::string shown;
    const bpe::Splitter splitter(bpe::named_cuts(pattern));
    splitter.for_each_piece(
        of, [&](std::string_view piece) { shown += "[" + std::string(piece) + "]"; });
    return shown;
  }

  void step_3() {
    // "the c" should not become a token, nor "cat.", beside "cat" and "cat,". So a regular
    // expression cuts the text into pieces, and pairs are merged within each. A space belongs to
    // the word after it.
    const std::string line = "I've 12345 cats,  and  they've me.";
    print(pieces("gpt2", line));

    // Each family of models has a pattern of its own. GPT-4's takes three digits at most.
    print(pieces("cl100k", line));
    print(pieces("smollm2", line));

    // A vocabulary works with the pattern that it was learned with. With another, or with one that
    // counts white space a little otherwise, the ids of a text are others. Nothing fails: the model
    // is a little worse, for ever.
  }

  // ---- 4. The library's tokenizer

  void step_4() {
    // `train` does what step 2 does, within pieces and for large texts. Its ids begin with a token
    // that ends a document, then come the 256 bytes.
    bpe::Pieces counts;
    bpe::TrainOptions options;
    bpe::count_pieces(counts, text, bpe::Splitter(bpe::named_cuts(options.pattern)));
    options.vocab_size = 257 + 6;
    const auto tokenizer = bpe::train(counts, options);
    for (int64_t id = 257; id < tokenizer->vocab_size(); ++id)
      print("id", id, "is '" + tokenizer->decode(Ids{id}) + "'");

    // To encode a piece, the earliest merge of all its pairs is done first, as it was when the
    // vocabulary was learned; of equal ones the leftmost.
    const Ids ids = tokenizer->encode("the hat that sat");
    print(list(ids));
    for (const int64_t id : ids) print("'" + tokenizer->decode(Ids{id}) + "'");
  }

  // ---- 5. Back again

  void step_5() {
    // Decoding joins the bytes of the ids, so every text comes back, whatever is in it. An id may
    // be a part of a character: a program that prints as it goes keeps such bytes until the rest
    // is there.
    bpe::TrainOptions options;
    options.vocab_size = 257;
    const auto tokenizer = bpe::train(bpe::Pieces{}, options);
    const std::string fox = "\xf0\x9f\xa6\x8a";
    const Ids ids = tokenizer->encode(fox);
    print(ids.size(), "ids; the first alone is", token_text(*tokenizer, ids[0]));
    print("all together are the fox again:", tokenizer->decode(ids) == fox);

    // The text of a special token is a token only where the program asks for it. In a document it
    // is a text like any other: else a page about GPT could end itself.
    const std::string page = "it ends with <|endoftext|>";
    print("as text:", tokenizer->encode(page).size(),
          "ids; as a token:", tokenizer->encode_with_special(page).size());

    // Losses per token cannot be compared where tokens differ. Bits per byte can: the loss, divided
    // by log 2, times tokens, divided by bytes. To try: `inkling tokenizer show` on a text of
    // yours, with vocabularies of several sizes; then `inkling train --tokenizer bpe:512`.
  }
};

}  // namespace

Lesson lesson_10() {
  using N = Lesson10;
  return lesson<N>("10_text", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
