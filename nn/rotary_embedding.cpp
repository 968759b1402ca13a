#include "nn/rotary_embedding.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ink {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Rounded, also where a compiler would fuse it with a sum.
float product(float a, float b) { return static_cast<float>(static_cast<double>(a) * b); }

// The share of a frequency that is kept, 0 to 1; the rest is divided by the factor. Pairs that turn
// at least high_freq_factor times within the trained length keep all of it.
float kept_by_llama3(float frequency, const RopeScaling& s) {
  const float wavelength = static_cast<float>(kTurn) / frequency;
  const float turns = static_cast<float>(s.original_max_position_embeddings) / wavelength;
  const float past = turns - static_cast<float>(s.low_freq_factor);
  return std::clamp(past / static_cast<float>(s.high_freq_factor - s.low_freq_factor), 0.0f, 1.0f);
}

// The pair, as a real number, that turns so many times within the trained length.
double pair_with(double turns, int64_t dim, double theta, const RopeScaling& s) {
  const double length = static_cast<double>(s.original_max_position_embeddings);
  return static_cast<double>(dim) * std::log(length / (turns * kTurn)) / (2 * std::log(theta));
}

float kept_by_yarn(int64_t pair, int64_t dim, double theta, const RopeScaling& s) {
  const double first = std::max(std::floor(pair_with(s.beta_fast, dim, theta, s)), 0.0);
  double last =
      std::min(std::ceil(pair_with(s.beta_slow, dim, theta, s)), static_cast<double>(dim - 1));
  if (first == last) last += 0.001;
  const float past = static_cast<float>(pair) - static_cast<float>(first);
  return 1 - std::clamp(past / static_cast<float>(last - first), 0.0f, 1.0f);
}

void check(const RopeScaling& s) {
  const bool by_length = s.rope_type == "llama3" || s.rope_type == "yarn";
  INK_CHECK(s.rope_type == "default" || s.rope_type == "linear" || by_length,
            "rope: expected the rope_type default, linear, llama3 or yarn, got ", s.rope_type);
  INK_CHECK(s.factor >= 1, "rope: expected a factor of 1 or more, got ", s.factor);
  INK_CHECK(!by_length || s.original_max_position_embeddings > 0, "rope: ", s.rope_type,
            " needs original_max_position_embeddings, the length in training");
  INK_CHECK(s.rope_type != "llama3" || s.low_freq_factor < s.high_freq_factor,
            "rope: expected low_freq_factor below high_freq_factor, got ", s.low_freq_factor,
            " and ", s.high_freq_factor);
  INK_CHECK(s.rope_type != "yarn" || (s.beta_slow > 0 && s.beta_slow <= s.beta_fast),
            "rope: expected beta_slow above 0, and not above beta_fast, got ", s.beta_slow, " and ",
            s.beta_fast);
}

}  // namespace

std::vector<float> rope_frequencies(int64_t dim, double theta, const RopeScaling& scaling) {
  INK_CHECK(dim > 0 && dim % 2 == 0, "rope: expected an even size of a head, got ", dim);
  INK_CHECK(theta > 1, "rope: expected a theta above 1, got ", theta);
  check(scaling);
  std::vector<float> frequencies;
  const auto factor = static_cast<float>(scaling.factor);
  for (int64_t k = 0; k < dim / 2; ++k) {
    const float exponent = static_cast<float>(2 * k) / static_cast<float>(dim);
    const auto inverse = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    const float f = 1 / inverse;
    float kept = 1;
    if (scaling.rope_type == "linear") kept = 0;
    if (scaling.rope_type == "llama3") kept = kept_by_llama3(f, scaling);
    if (scaling.rope_type == "yarn") kept = kept_by_yarn(k, dim, theta, scaling);
    const float slowed = scaling.rope_type == "yarn" ? product(1 / (factor * inverse), 1 - kept)
                                                     : product(1 - kept, f) / factor;
    frequencies.push_back(slowed + product(kept, f));
  }
  return frequencies;
}

RotaryEmbedding::RotaryEmbedding(int64_t dim, int64_t positions, double theta,
                                 const RopeScaling& scaling, bool neighbours)
    : interleaved(neighbours) {
  const std::vector<float> frequencies = rope_frequencies(dim, theta, scaling);
  double length = 1;
  if (scaling.rope_type == "yarn")
    length = scaling.attention_factor > 0 ? scaling.attention_factor
                                          : 0.1 * std::log(scaling.factor) + 1;
  std::vector<double> cosines, sines;
  for (int64_t t = 0; t < positions; ++t) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(t) * frequency;  // rounded, as the frequency is
      cosines.push_back(std::cos(static_cast<double>(angle)) * length);
      sines.push_back(std::sin(static_cast<double>(angle)) * length);
    }
  }
  cos = tensor(cosines, f32).view({positions, dim / 2});
  sin = tensor(sines, f32).view({positions, dim / 2});
}

}  // namespace ink
