// Which sizes to train on a text in so many minutes on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/config.h"

namespace ink {

/// What the rule knows of a text.
struct TextFacts {
  double bytes = 0;  // of all of it
  /// Bits per byte of a model that knows how frequent each of 512 tokens is, and no context.
  double bits_without_context = 0;
  /// Bytes a token has on average with a vocabulary of so many, learned from the text.
  std::function<double(int64_t vocab_size)> bytes_per_token;
};

/// Reads up to two million bytes of the texts. Throws if they are too few to learn from.
TextFacts look_at(const std::vector<std::filesystem::path>& files);

/// One of the sizes that are tried, as `train` would be given it.
struct Suggestion {
  TrainConfig config;
  int64_t vocab_size = 0, parameters = 0;
  double seconds = 0;     // of a step
  double passes = 0;      // over the part of the text to train on
  double bits = 0;        // per byte of validation text, expected
  bool by_heart = false;  // there is time for more steps, which would only learn it by heart
};

/// How many tokens: about the square root of the text's bytes, a power of two and at least 512. At
/// most 32 n_layer n_embd, so that the last product does not take most of a step.
int64_t suggested_vocabulary(double bytes, int64_t n_layer, int64_t n_embd);

/// What a model with so many parameters in its blocks has after so many bytes of text, some of them
/// again and again: a rule of thumb.
double expected_bits(const TextFacts& text, double parameters, double bytes_seen);

/// A size of the table; the number of steps and what follows from it are left open.
Suggestion sizes(const TextFacts& text, size_t row);
size_t rows_of_sizes();
/// Has it so many parameters that it would learn the text by heart instead of its language?
bool learns_by_heart(const Suggestion& size, const TextFacts& text);

/// Gives a size its steps and what to expect, by the seconds that a step was measured to take.
void set_steps(Suggestion& size, const TextFacts& text, double minutes);

/// The arguments of `train`.
std::string train_arguments(const Suggestion& size);

}  // namespace ink
