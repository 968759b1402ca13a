// Random numbers: PyTorch's CPU generator, and the fills that draw from it as PyTorch does.
//
// With the same seed and the same calls in the same order, every fill below writes the bits that
// PyTorch (2.15, x86 with AVX2) writes into a contiguous CPU tensor of n elements. (Doubles that go
// through log, sin or cos also need the same libm.) Fills lock the generator that they draw from; a
// generator's own members do not, so threads may share one through fills only. n = 0 draws nothing.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/base/context.h"

namespace ink {

/// mt19937 (Matsumoto and Nishimura 1998), with the spare normal that PyTorch keeps beside it.
class Generator {
 public:
  static constexpr uint64_t kDefaultSeed = 67280421310721;  // PyTorch's default

  explicit Generator(uint64_t seed = kDefaultSeed) { manual_seed(seed); }

  /// Starts over. mt19937 sees the seed modulo 2^32; the spare normal is dropped.
  void manual_seed(uint64_t seed);
  uint64_t initial_seed() const { return seed_; }

  /// The next output: all 32 bits of it, ...
  uint32_t random() {
    if (unread_ == 0) refill();
    return output_[static_cast<size_t>(kSize - unread_--)];
  }
  /// ... two of them, the first one high, ...
  uint64_t random64();
  /// ... the low 24 bits as a float in [0, 1), ...
  float uniform24() { return static_cast<float>(random() & 0xFFFFFF) * 0x1p-24f; }
  /// ... the low 53 bits of two as a double in [0, 1), ...
  double uniform53() { return static_cast<double>(random64() & ((1ull << 53) - 1)) * 0x1p-53; }
  /// ... or a standard normal: Box and Muller make two at a time; the second is kept as a spare.
  double normal();

  /// The next outputs that are contiguous, 1 to n of them (n >= 1); valid until the next draw.
  std::span<const uint32_t> take(int64_t n);
  /// Passes over n outputs as if they had been drawn.
  void skip(uint64_t n);

  /// The whole state, in the 5056 bytes of torch.get_rng_state().
  std::vector<uint8_t> get_state() const;
  /// Takes a state from get_state() or from PyTorch. Throws if it is neither.
  void set_state(std::span<const uint8_t> bytes);

  std::mutex& mutex() { return mutex_; }

 private:
  static constexpr int kSize = 624;

  void twist();   // the recurrence: the next 624 words of state
  void temper();  // output_ from state_
  void refill();  // both, and all of output_ unread

  uint64_t seed_ = 0;
  std::array<uint32_t, kSize> state_;
  std::array<uint32_t, kSize> output_;
  int64_t unread_ = 0;  // how many at the end of output_ are still to come
  std::optional<double> spare_normal_;
  std::mutex mutex_;
};

/// The generator that everything draws from unless told otherwise: the context's, or else the one
/// of the process.
Generator& default_generator();
/// Seeds the default generator. The random positions (base/context.h) from which dropout and
/// sampling draw start over: the calling thread's at that seed, and those of threads that have set
/// none at others that follow from it, so that no two threads have the same mask. Threads get them
/// in the order in which they first use the library after this call. A thread that is to draw the
/// same numbers in whatever order threads run sets its own: manual_seed(s + i), or
/// context().random = {.seed = s, .micro_batch = i}, which leaves the generator alone.
void manual_seed(uint64_t seed);

/// The state of the default generator.
std::vector<uint8_t> generator_state();
/// While it lives, default_generator() draws on this thread what followed such a state. The
/// generator itself stays as it is.
class DrawAgain {
 public:
  [[nodiscard]] explicit DrawAgain(std::span<const uint8_t> state) { generator_.set_state(state); }

 private:
  Generator generator_;
  const FieldGuard<Generator*> draws_{&Context::generator, &generator_};
};

namespace detail {
/// f, but that every call draws from default_generator() what the first one drew.
template <class F>
auto repeats(F f) {
  return [f, start = generator_state(), first = true](const auto&... arguments) mutable {
    std::optional<DrawAgain> again;
    if (!std::exchange(first, false)) again.emplace(start);
    return f(arguments...);
  };
}
}  // namespace detail

/// Uniform in [from, to). Throws unless from <= to.
void uniform_(float* out, int64_t n, double from, double to, Generator& g);
void uniform_(double* out, int64_t n, double from, double to, Generator& g);

/// Normal. Throws unless std >= 0. From 16 elements up, PyTorch transforms blocks of 16 uniforms;
/// if the last block is not whole, it draws the last 16 elements anew. Below 16 it draws one by
/// one, and a spare may be left over for the next fill.
template <class T>  // float or double
void normal_(T* out, int64_t n, double mean, double std, Generator& g);

/// Integers in [low, high). Throws unless low < high, and unless the type holds every integer in
/// that range (24 bits for a float, 53 for a double).
template <class T>  // int64_t, float or double
void randint_(T* out, int64_t n, int64_t low, int64_t high, Generator& g);

/// A random order of 0 .. n-1.
void randperm_(int64_t* out, int64_t n, Generator& g);

/// How a build of PyTorch draws the mask of dropout on a CPU. plain: two outputs of the generator
/// for each element, as PyTorch 2.15 does on any processor. mkl: one output for each call, which
/// seeds MKL's own MCG31m1 for all elements, as older builds with MKL do on an Intel processor.
/// rule() of tests/golden/imitate_fixtures.py tells which one a PyTorch follows.
enum class BernoulliRule : uint8_t { plain, mkl };

/// While it lives, ops follow PyTorch where they otherwise differ, so that two runs can be compared
/// digit by digit. Dropout draws its mask from default_generator(), as that build of PyTorch does
/// on a CPU. An attention row that may attend to nothing is NaN. sum and mean of f32 and f64 round
/// as PyTorch's CPU kernels do in one thread (ops/torch_sum.cpp).
struct ImitateTorch : FieldGuard<std::optional<BernoulliRule>> {
  [[nodiscard]] explicit ImitateTorch(BernoulliRule dropout)
      : FieldGuard(&Context::imitate_torch, dropout) {}
};

/// 1 with probability p, else 0. Throws unless p is in [0, 1].
void bernoulli_(float* out, int64_t n, double p, Generator& g,
                BernoulliRule rule = BernoulliRule::plain);
/// The same with a probability for each element; PyTorch uses 24 bits for floats, 53 for doubles.
void bernoulli_(float* out, int64_t n, const float* p, Generator& g);
void bernoulli_(float* out, int64_t n, const double* p, Generator& g);

/// Exponential with rate lambda, density lambda exp(-lambda x). Throws unless lambda > 0.
template <class T>  // float or double
void exponential_(T* out, int64_t n, double lambda, Generator& g);

/// `samples` indices into each row's categories: weights (rows, categories) -> (rows, samples).
/// Weights are non-negative and need not sum to one. Throws on a negative, infinite or NaN weight,
/// a row of zeros, or, without replacement, more samples than a row has weights above zero.
template <class T>  // float, double
void multinomial_(int64_t* out, const T* weights, int64_t rows, int64_t categories, int64_t samples,
                  bool replacement, Generator& g);

}  // namespace ink
