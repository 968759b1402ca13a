// The language `fables`: its probabilities are the true ones, and it asks for what a GPT has.
#include "data/fables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "autograd/base/check.h"

namespace ink {
namespace {

constexpr int64_t kLength = 257;

// Few enough stories to write all of them down, with all that a grammar can do: weights, leads that
// share a beginning, a choice between recalls and a text that share one, choices within choices.
const char* const kSmall = R"(
story: [girl=girls] met [boy=boys].[gift] [end]\n
gift: 3 He had [two] nuts.
    | 1 Hens [sang].
two: two | ten | twenty
sang: 2 sang | sat
end: 2 [girl] ran.
   | 1 [boy] ran.
   | 5 Max ran.
girls: 2 Mila | 1 Mina | 1 Ada
boys: Milo | 3 Otto
)";

using Stories = std::map<std::string, double>;

// Every story of kSmall with its probability, by nested loops that know nothing of the library.
Stories all_small_stories() {
  struct Word {
    const char* text;
    double p;
  };
  Stories stories;
  for (const Word girl : {Word{"Mila", 0.5}, {"Mina", 0.25}, {"Ada", 0.25}}) {
    for (const Word boy : {Word{"Milo", 0.25}, {"Otto", 0.75}}) {
      for (const Word gift : {Word{"He had two nuts.", 0.25},
                              {"He had ten nuts.", 0.25},
                              {"He had twenty nuts.", 0.25},
                              {"Hens sang.", 0.25 * 2 / 3},
                              {"Hens sat.", 0.25 / 3}}) {
        for (const Word runner : {Word{girl.text, 0.25}, {boy.text, 0.125}, {"Max", 0.625}}) {
          const std::string text = std::string(girl.text) + " met " + boy.text + "." + gift.text +
                                   " " + runner.text + " ran.\n";
          stories[text] += girl.p * boy.p * gift.p * runner.p;
        }
      }
    }
  }
  return stories;
}

double probability_of_prefix(const Stories& stories, const std::string& prefix) {
  double sum = 0;
  for (const auto& [text, p] : stories) {
    if (text.compare(0, prefix.size(), prefix) == 0) sum += p;
  }
  return sum;
}

double mean_best_possible(const Fables& fables, uint64_t seed, int samples) {
  double sum = 0;
  for (int i = 0; i < samples; ++i) {
    const FableSample sample = fables.sample(seed, i, kLength);
    sum += std::accumulate(sample.best_possible.begin() + 1, sample.best_possible.end(), 0.0);
  }
  return sum / (samples * (kLength - 1.0));
}

std::vector<std::string> split_stories(const std::string& text) {
  std::vector<std::string> stories;
  size_t begin = 0;
  for (size_t end; (end = text.find("\n\n", begin)) != text.npos; begin = end + 2) {
    stories.push_back(text.substr(begin, end - begin));
  }
  return stories;
}

// As a word of its own.
int occurrences(const std::string& text, const std::string& word) {
  const auto letter = [&](size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at]));
  };
  int count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    count += !(at > 0 && letter(at - 1)) && !letter(at + word.size());
  }
  return count;
}

std::string error_of(const std::string& grammar) {
  try {
    Fables{grammar};
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Fables, BruteForceAgreesOnASmallLanguage) {
  const Fables fables{kSmall};
  const Stories stories = all_small_stories();
  double total = 0;
  for (const auto& [text, p] : stories) total += p;
  EXPECT_NEAR(total, 1.0, 1e-12);
  // All 3 * 2 * 5 * 3 stories are different, which is what count() counts.
  EXPECT_EQ(stories.size(), 90u);
  EXPECT_EQ(fables.count(), 90);

  for (const auto& [text, p] : stories) {
    double product = 1;
    for (size_t n = 0; n < text.size(); ++n) {
      const std::string prefix = text.substr(0, n);
      const std::vector<double> next = fables.next_distribution(prefix);
      for (size_t c = 0; c < next.size(); ++c) {
        const double expected = probability_of_prefix(stories, prefix + fables.alphabet()[c]) /
                                probability_of_prefix(stories, prefix);
        ASSERT_NEAR(next[c], expected, 1e-12)
            << "'" << prefix << "' then '" << fables.alphabet()[c] << "'";
      }
      product *= next[fables.alphabet().find(text[n])];
    }
    ASSERT_NEAR(product, p, 1e-12) << text;
    // A story's end leads back to a story's start.
    ASSERT_EQ(fables.next_distribution(text), fables.next_distribution(""));
  }
}

TEST(Fables, SmallLanguageIsSampledAsItsProbabilitiesSay) {
  const Fables fables{kSmall};
  const Stories stories = all_small_stories();
  Stories seen;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const std::string text = fables.sample(5, i, 64).text;
    seen[text.substr(0, text.find('\n') + 1)] += 1;
  }
  double chi2 = 0;
  for (const auto& [text, p] : stories)
    chi2 += (seen[text] - n * p) * (seen[text] - n * p) / (n * p);
  EXPECT_EQ(seen.size(), stories.size());
  EXPECT_LT(chi2, 150);  // 89 degrees of freedom: beyond 150 once in 20,000 such tests
}

TEST(Fables, ProbabilitiesSumToOneAndAreTheSamplers) {
  const Fables fables;
  for (uint64_t index = 0; index < 6; ++index) {
    const FableSample sample = fables.sample(7, index, 600);
    for (size_t i = 0; i < sample.text.size(); ++i) {
      const std::vector<double> next = fables.next_distribution(sample.text.substr(0, i));
      ASSERT_NEAR(std::accumulate(next.begin(), next.end(), 0.0), 1.0, 1e-12);
      const double p = next[fables.alphabet().find(sample.text[i])];
      ASSERT_NEAR(sample.best_possible[i], -std::log(p), 1e-5) << sample.text.substr(0, i + 1);
    }
  }
}

TEST(Fables, SamplesAreFunctionsOfTheirArguments) {
  const Fables fables, again;
  const FableSample sample = fables.sample(1, 2, 1000);
  EXPECT_EQ(sample.text, again.sample(1, 2, 1000).text);
  EXPECT_EQ(sample.best_possible, again.sample(1, 2, 1000).best_possible);
  // Cut at length, not told anew.
  EXPECT_EQ(sample.text.substr(0, 300), fables.sample(1, 2, 300).text);
  std::set<std::string> different;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t index = 0; index < 20; ++index)
      different.insert(fables.sample(seed, index, 300).text);
  }
  EXPECT_EQ(different.size(), 400u);
  EXPECT_EQ(fables.sample(1, 2, 0).text, "");
  EXPECT_EQ(fables.sample(1, 2, 1).best_possible.size(), 1u);
}

TEST(Fables, WritesOnlyItsAlphabet) {
  const Fables fables;
  const std::string& alphabet = fables.alphabet();
  EXPECT_TRUE(std::is_sorted(alphabet.begin(), alphabet.end()));
  std::set<char> seen;
  for (const char c : fables.sample(3, 0, 300000).text) seen.insert(c);
  EXPECT_EQ(std::string(seen.begin(), seen.end()), alphabet);
  for (const char c : alphabet) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
}

TEST(Fables, IsNoTemplate) {
  const Fables fables;
  std::set<std::string> names;
  for (const char* rule : {"girls", "boys"}) {
    for (const std::string& name : fables.texts(rule)) names.insert(name);
  }
  EXPECT_GE(names.size(), 30u);
  EXPECT_GE(fables.count(), 1e12);
  const double best_possible = mean_best_possible(fables, 11, 500);
  EXPECT_GE(best_possible, 0.32);
  EXPECT_LE(best_possible, 0.9);
}

TEST(Fables, WhatTheStartSaysReturnsByName) {
  const Fables fables;
  double recalled = 0;
  const std::vector<std::string> stories = split_stories(fables.sample(4, 0, 100000).text);
  for (const std::string& story : stories) {
    for (const char* rule : {"girls", "boys", "things", "places"}) {
      int returns = 0;
      for (const std::string& word : fables.texts(rule)) {
        const int count = occurrences(story, word);
        returns += count >= 2 ? count - 1 : 0;
      }
      EXPECT_GE(returns, 1) << rule << " in: " << story;
      recalled += returns;
    }
    EXPECT_LE(story.size(), 2 * kLength);
  }
  EXPECT_GE(recalled / stories.size(), 5.0);
}

TEST(Fables, ImpossiblePrefixesAreNamed) {
  const Fables fables{kSmall};
  EXPECT_THROW(fables.next_distribution("Zoe"), Error);
  EXPECT_THROW(fables.next_distribution("Mila met Otto.He had six"), Error);
  EXPECT_THROW(fables.next_distribution("Mila met Otto.He had two nuts. Mina ran"), Error);
  try {
    fables.next_distribution("Mila met Zoe");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "fables: no story goes on like this after character 9: 'Zoe'");
  }
  EXPECT_THROW(fables.sample(0, 0, -1), Error);
  EXPECT_THROW(fables.texts("nobody"), Error);
}

TEST(Fables, RefusesWhatItCannotTellApart) {
  EXPECT_EQ(error_of("story: be | bee"), "fables: rule story is ambiguous: 'be' begins 'bee'");
  EXPECT_EQ(error_of("story: be | be"), "fables: rule story is ambiguous: 'be' begins 'be'");
  EXPECT_EQ(error_of("story: [x=a] [b]\na: Max | Jo\nb: [x] | Maxim"),
            "fables: rule b is ambiguous: 'Max' begins 'Maxim'");
  EXPECT_EQ(error_of("story: [a] | x\na: b | c"),
            "fables: rule story has a choice that begins with rule a; begin it with a text or "
            "something remembered");
  EXPECT_EQ(error_of("story: [x]"),
            "fables: rule story uses [x], which is neither a rule nor always remembered before");
  EXPECT_EQ(error_of("story: [a] [x]\na: 1 [b] | y [x=b]\nb: q | r"),
            "fables: rule story uses [x], which is neither a rule nor always remembered before");
  EXPECT_EQ(error_of("story: a[b]\nb: c[story]"), "fables: rule story leads to itself");
  EXPECT_EQ(error_of("story: a | | b"), "fables: rule story has an empty alternative");
  EXPECT_EQ(error_of("story: 0 a | b"), "fables: rule story has a weight of 0");
  EXPECT_EQ(error_of("story: a\nb: c"), "fables: rule b is never used");
  EXPECT_EQ(error_of("story: a\nstory: b"), "fables: rule story is defined twice");
  EXPECT_EQ(error_of("story"), "fables: expected 'rule: ...', got 'story'");
  EXPECT_EQ(error_of("story: [a"), "fables: expected a ']' after '[a'");
  EXPECT_EQ(error_of(""), "fables: the grammar has no rules");
}

// A batch must cost next to nothing beside a training step of tens of milliseconds.
TEST(Fables, IsFast) {
  const Fables fables;
  const int samples = 2000;
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < samples; ++i)
      ASSERT_EQ(fables.sample(attempt, i, kLength).text.size(), kLength);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  const double megabytes_per_second = samples * kLength / best / 1e6;
  RecordProperty("megabytes_per_second", static_cast<int>(megabytes_per_second));
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_GE(megabytes_per_second, 10);
#endif
}

}  // namespace
}  // namespace ink
