// tiktoken's files: a token in base64 and its rank, a line each.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/bpe/bpe_tokenizer.h"

namespace ink::bpe {

/// The tokenizer of such a file's text. What the text does not say (how texts are cut, special
/// tokens, whether texts are composed first) follows from the file's name and the number of tokens.
/// Throws on a name that is not known, and on more tokens than a vocabulary of that name has.
std::unique_ptr<BpeTokenizer> read_tiktoken(const std::filesystem::path& file,
                                            const std::string& text);

}  // namespace ink::bpe
