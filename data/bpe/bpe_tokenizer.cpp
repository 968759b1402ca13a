#include "data/bpe/bpe_tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "autograd/base/check.h"
#include "autograd/io/foreign.h"
#include "autograd/io/utf8.h"
#include "data/bpe/translation.h"
#include "data/bpe/unicode.h"

namespace ink {
namespace {

using bpe::shown;

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

bool composes(char32_t character) {
  if (character < 0x300) return true;
  if (!bpe::is_assigned(character)) return false;  // utf8proc may be newer
  const auto* after =
      std::upper_bound(std::begin(bpe::kNewerThanNfc), std::end(bpe::kNewerThanNfc), character,
                       [](char32_t c, const bpe::Range& range) { return c < range.first; });
  return after == std::begin(bpe::kNewerThanNfc) || character > after[-1].last;
}

void append_composed(std::string& result, std::string_view text) {
  if (text.empty()) return;
  utf8proc_uint8_t* form = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &form,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  INK_CHECK(length >= 0, "encode: cannot normalize: ", utf8proc_errmsg(length));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(form, std::free);
  result.append(reinterpret_cast<const char*>(form), static_cast<size_t>(length));
}

// In Unicode's composed form (NFC). Bytes that are not UTF-8 stay, and so do characters that
// tokenizers' tables do not have.
std::string composed(std::string_view text) {
  std::string result;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t character = utf8::next(text, at);
    if (character == utf8::kInvalid) at = begin + 1;
    if (character != utf8::kInvalid && composes(character)) continue;
    append_composed(result, text.substr(done, begin - done));
    result += text.substr(begin, at - begin);
    done = at;
  }
  append_composed(result, text.substr(done));
  return result;
}

// The merges by rank, each as its result, left and right; those of one result by left, because
// tiktoken's have one rank.
std::vector<std::array<int32_t, 3>> in_order(const bpe::Merges& merges) {
  std::vector<std::array<int32_t, 3>> all;
  for (const bpe::Merge& each : merges.merges())
    all.push_back({each.result, each.left, each.right});
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end =
        std::find_if(begin, all.end(), [&](auto& each) { return each[0] != (*begin)[0]; });
    std::sort(begin, end);
    begin = end;
  }
  return all;
}

bool is_longer(const AddedToken& a, const AddedToken& b) {
  return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.text < b.text;
}

}  // namespace

BpeTokenizer::BpeTokenizer(bpe::Merges merges, bpe::Splitter splitter,
                           std::vector<AddedToken> added, bool nfc)
    : merges_(std::move(merges)),
      splitter_(std::move(splitter)),
      added_(std::move(added)),
      nfc_(nfc),
      has_parts_(true),
      bytes_(merges_.tokens().begin(), merges_.tokens().end()) {
  std::sort(added_.begin(), added_.end(), is_longer);
  INK_CHECK(std::any_of(bytes_.begin(), bytes_.end(), [](auto bytes) { return !bytes.empty(); }),
            "tokenizer: the vocabulary has no tokens but added ones");
  for (size_t i = 0; i < added_.size(); ++i) {
    const auto& [text, id, special, late] = added_[i];
    INK_CHECK(!text.empty() && id >= 0 && id < bpe::kMostTokens, "tokenizer: the added token ",
              shown(text), " has the id ", id, "; expected a text and an id below ",
              bpe::kMostTokens);
    INK_CHECK(i == 0 || added_[i - 1].text != text, "tokenizer: the added token ", shown(text),
              " comes twice");
    const auto at = static_cast<size_t>(id);
    if (at >= bytes_.size()) bytes_.resize(at + 1);
    INK_CHECK(bytes_[at].empty() || bytes_[at] == text, "tokenizer: the id ", id, " is ",
              shown(bytes_[at]), " and the added token ", shown(text));
    bytes_[at] = text;
    has_parts_ = has_parts_ && splitter_.boundary(text, 1) == text.size() && !(late && nfc_);
    sought_[late].push_back(added_[i]);
    if (late && nfc_) sought_[late].back().text = composed(text);
  }
  for (auto& tokens : sought_) std::sort(tokens.begin(), tokens.end(), is_longer);
}

// ---- Encoding

// Encodes one text, or a part of one.
class BpeTokenizer::Encoder {
 public:
  Encoder(const BpeTokenizer& tokenizer, std::string_view text, bool with_special)
      : tokenizer_(tokenizer), text_(text), with_special_(with_special) {
    for (const bool late : {false, true}) {
      const auto& tokens = tokenizer_.sought_[late];
      if (std::any_of(tokens.begin(), tokens.end(), [&](auto& each) { return is_allowed(each); }))
        for (const AddedToken& token : tokens) first_bytes_[late] += token.text[0];
    }
  }

  // Appends the ids of text[begin, end), where `end` is the text's end or a boundary.
  std::vector<int64_t> encode(size_t begin, size_t end) {
    ids_.reserve((end - begin) / 4 + 1);
    search(begin, end, text_.size(), false);
    return std::move(ids_);
  }

 private:
  // Finds the added tokens of text[begin, end): first those that are not late. `last`: where the
  // text around it ends.
  void search(size_t begin, size_t end, size_t last, bool late) {
    const auto between = [&](size_t from, size_t to, size_t until) {
      if (from < to) late ? cut(from, to, until) : compose(from, to, until);
    };
    size_t at = begin;
    for (size_t from = begin; from <= end;) {
      const auto [start, token] = next_added(from, end, last, late);
      if (token == nullptr) break;
      from = start + token->text.size();
      if (!is_allowed(*token)) continue;  // ordinary text
      between(at, start, start);
      at = from;
      if (start == end) return;  // it belongs to the next part
      ids_.push_back(token->id);
    }
    between(at, end, last);
  }

  bool is_allowed(const AddedToken& token) const { return with_special_ || !token.special; }

  // The first that begins in text[from, end].
  std::pair<size_t, const AddedToken*> next_added(size_t from, size_t end, size_t last,
                                                  bool late) const {
    const std::string_view here = text_.substr(0, last), places = here.substr(0, end + 1);
    for (size_t at = from; (at = places.find_first_of(first_bytes_[late], at)) != here.npos; ++at) {
      for (const AddedToken& token : tokenizer_.sought_[late])
        if (here.substr(at, token.text.size()) == token.text) return {at, &token};
    }
    return {here.size(), nullptr};
  }

  // The late tokens are searched for in the composed text.
  void compose(size_t begin, size_t end, size_t last) {
    const std::string_view text = with_next(begin, end, last);
    if (!tokenizer_.nfc_ || is_ascii(text)) return search(begin, end, last, true);
    const std::string form = composed(text);
    const std::string_view whole = std::exchange(text_, form);
    composed_at_ = begin;
    search(0, form.size() - (end < last ? 1 : 0), form.size(), true);
    composed_at_ = 0;
    text_ = whole;
  }

  // The letter after a part's end is read along, because the pattern looks one character ahead.
  std::string_view with_next(size_t begin, size_t end, size_t last) const {
    return text_.substr(begin, std::min(end + 1, last) - begin);
  }

  void cut(size_t begin, size_t end, size_t last) {
    const std::string_view text = with_next(begin, end, last);
    const char* const stop = text_.data() + end;
    tokenizer_.splitter_.for_each_piece(text, [&](std::string_view piece) {
      if (piece.data() >= stop) return;
      const size_t lacking = encode_piece(piece);
      if (lacking == std::string_view::npos) return;
      char byte[8];
      std::snprintf(byte, sizeof byte, "0x%02x", static_cast<unsigned char>(piece[lacking]));
      detail::fail({"encode: the vocabulary has no token for the byte ",
                    static_cast<const char*>(byte), " at byte ",
                    composed_at_ + static_cast<size_t>(piece.data() - text_.data()) + lacking});
    });
  }

  size_t encode_piece(std::string_view piece) { return tokenizer_.merges_.encode(piece, ids_); }

  const BpeTokenizer& tokenizer_;
  std::string_view text_;
  bool with_special_;
  size_t composed_at_ = 0;      // where in the text what is composed begins
  std::string first_bytes_[2];  // of what is sought, if any of it is allowed
  std::vector<int64_t> ids_;
};

std::vector<int64_t> BpeTokenizer::encode(std::string_view text) const {
  return Encoder(*this, text, false).encode(0, text.size());
}
std::vector<int64_t> BpeTokenizer::encode_with_special(std::string_view text) const {
  return Encoder(*this, text, true).encode(0, text.size());
}

std::vector<int64_t> BpeTokenizer::encode_part(std::string_view text, size_t begin,
                                               size_t end) const {
  const auto boundary = [&](size_t at, size_t limit) {
    return at == 0 || has_parts_ ? splitter_.boundary(text, at, limit) : text.size();
  };
  // Only a part in which a piece begins looks beyond its end: together they look at a text once.
  const size_t first = boundary(begin, end);
  if (first >= end) return {};
  return Encoder(*this, text, false).encode(first, boundary(end, text.size()));
}

std::string BpeTokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    INK_CHECK(id >= 0 && id < vocab_size(), "decode: id ", id, " is outside the vocabulary of ",
              vocab_size());
    const std::string_view bytes = bytes_[static_cast<size_t>(id)];
    text += bytes.empty() ? "\xef\xbf\xbd" : bytes;
  }
  return text;
}

int64_t BpeTokenizer::end_of_text() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const int64_t id = added_token(name); id >= 0) return id;
  return -1;
}

int64_t BpeTokenizer::added_token(std::string_view text) const {
  const auto found = std::find_if(added_.begin(), added_.end(),
                                  [&](const AddedToken& each) { return each.text == text; });
  return found == added_.end() ? -1 : found->id;
}

bool BpeTokenizer::same_ids(const BpeTokenizer& other) const {
  const auto& [less, more] = std::minmax(
      bytes_, other.bytes_, [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (size_t id = 0; id < more.size(); ++id) {
    const std::string_view mine = more[id], its = id < less.size() ? less[id] : "";
    const bool one_has_it = (its.empty() && mine.size() > 1) || (mine.empty() && its.size() > 1);
    if (mine != its && !one_has_it) return false;
  }
  return in_order(merges_) == in_order(other.merges_);
}

}  // namespace ink
