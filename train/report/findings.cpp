#include "train/report/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "autograd/io/foreign.h"
#include "train/report/numbers.h"

namespace ink {
namespace {

using Json = nlohmann::ordered_json;

// Healthy runs of the default model: weights grow to 5 times their size, 43 % of a GELU saturates.
// At ten times the learning rate: 12 times, 82 %. (The updates often do not tell, because they are
// measured against the weights, which have grown.)
// Median over weights: the norm, over the first one, at a width of kUsualWidth. Narrower models
// begin further below their final size, 1 / sqrt(width).
constexpr double kGrown = 8, kUsualWidth = 128;
// Median over weights: a step's update at the highest learning rate, over the norm. Healthy ones
// are below 0.05, after the first hundred steps.
constexpr double kThrown = 0.1, kSettled = 100;
constexpr double kStill = 1e-6;     // change of a direction: rounding alone
constexpr double kSlower = 0.15;    // the same, over similar parts; healthy heads are above 0.5
constexpr double kFaint = 1e-3;     // a gradient per element, over the median of all parts
constexpr double kSaturated = 0.6;  // share of outputs; relu has 0.5 at the start
constexpr double kMoreSaturated = 0.4, kTimesOthers = 2.5;  // share, and over similar layers
constexpr double kLarge = 5;    // a norm, over similar parts; healthy ones are below 2
constexpr double kGone = 0.01;  // a norm, over its first one
constexpr double kWide = 30;    // a deviation, over similar layers
constexpr double kRising = 1.03, kRisingOnce = 1.1;  // a loss, over its lowest; of one evaluation
// A validation loss, over the training's: it is much more, or, where it rises, at least somewhat.
constexpr double kOfTraining = 2, kAboveTraining = 0.3, kSomewhat = 1.1;
constexpr double kFlatLoss = 0.97;    // a loss, over what it was: it has not fallen
constexpr double kSlow = 0.1;         // share of the steps
constexpr double kFarFromBest = 1.5;  // a loss at the end, over the best possible
constexpr size_t kNamed = 3;          // names in one finding

// A list of numbers; null is NaN.
std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& value : list) values.push_back(value.is_number() ? value.get<double>() : NAN);
  return values;
}
std::vector<double> numbers(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) ? numbers(object.at(name))
                                                     : std::vector<double>();
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  if (values.empty()) return NAN;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// "h.0.attn head 2" -> "h.#.attn head #"
std::string kind(std::string name) {
  for (char& c : name)
    if (c >= '0' && c <= '9') c = '#';
  const auto both_digits = [](char a, char b) { return a == '#' && b == '#'; };
  name.erase(std::unique(name.begin(), name.end(), both_digits), name.end());
  return name;
}

// Which parts or layers are similar: their names differ in numbers only.
class Similar {
 public:
  explicit Similar(const std::vector<std::string>& names) : groups_(names.size()) {
    std::map<std::string, std::shared_ptr<std::vector<size_t>>> by_kind;
    for (size_t i = 0; i < names.size(); ++i) {
      auto& group = by_kind[kind(names[i])];
      if (!group) group = std::make_shared<std::vector<size_t>>();
      group->push_back(i);
      groups_[i] = group;
    }
  }
  /// The median over those similar to number i, without itself; NaN if there are none.
  double median_of_others(const std::vector<double>& values, size_t i) const {
    std::vector<double> others;
    for (const size_t j : *groups_[i])
      if (j != i) others.push_back(values[j]);
    return median(others);
  }

 private:
  std::vector<std::shared_ptr<std::vector<size_t>>> groups_;  // by number
};

// "a, b, c and 4 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  return text;
}

// null: not known.
Json setting_of(const Json& run, const char* name) {
  const Json config = run.value("config", Json());
  return config.is_object() ? config.value(name, Json()) : Json();
}
double setting(const Json& run, const char* name) {
  const Json value = setting_of(run, name);
  return value.is_number() ? value.get<double>() : NAN;
}

// The evaluations that can be compared with the last one. since: a step from which on the run has
// had their data; lines of the log up to it may be of others.
struct Evaluations {
  std::vector<double> losses, steps;
  double since = -1;

  explicit Evaluations(const Json& validation) {
    const std::vector<double> all = numbers(validation, "val_loss"),
                              at = numbers(validation, "step");
    std::vector<double> sets = numbers(validation, "val_set"),
                        sampled = numbers(validation, "sampled_loss");
    sets.resize(all.size(), NAN), sampled.resize(all.size(), NAN);
    for (size_t i = 0; i < std::min(all.size(), at.size()); ++i) {
      const bool same = sets[i] == sets.back() || (std::isnan(sets[i]) && std::isnan(sets.back()));
      const double loss = std::isfinite(sampled[i]) ? sampled[i] : all[i];
      if (same && std::isfinite(loss)) losses.push_back(loss), steps.push_back(at[i]);
      if (!same) losses.clear(), steps.clear(), since = at[i];
    }
  }
  size_t lowest() const {
    return static_cast<size_t>(std::min_element(losses.begin(), losses.end()) - losses.begin());
  }
};

// A step up to which lines of the log are of other data or batches than the last one.
double other_training_until(const Json& metrics) {
  const std::vector<double> sets = numbers(metrics, "train_set"), steps = numbers(metrics, "step");
  double until = -1;
  for (size_t i = 0; i < std::min(sets.size(), steps.size()); ++i)
    if (std::abs(sets[i] - sets.back()) > 0) until = steps[i];  // of an older version: not known
  return until;
}

// What lines of the log say after the step `since`.
std::vector<double> numbers_since(const Json& metrics, const char* name, double since) {
  std::vector<double> values = numbers(metrics, name), steps = numbers(metrics, "step");
  const auto first = std::find_if(steps.begin(), steps.end(), [&](double s) { return s > since; });
  values.erase(values.begin(),
               values.begin() + std::min(first - steps.begin(), std::ssize(values)));
  return values;
}

// How often the training text was gone through since a step; NaN if its size is not known.
double epochs_since(const Json& run, double since, double step) {
  const Json tokens = run.value("train_tokens", Json());
  if (!tokens.is_number() || tokens <= 0) return NAN;
  return (step - std::max(since, 0.0)) * setting(run, "batch_size") *
         setting(run, "gradient_accumulation_steps") * setting(run, "block_size") /
         tokens.get<double>();
}

// The training loss after the step `since` up to another: the median of the last three lines.
double training_loss(const Json& metrics, double since, double step) {
  const std::vector<double> losses = numbers_since(metrics, "train_loss", since),
                            steps = numbers_since(metrics, "step", since);
  std::vector<double> last;
  for (size_t i = std::min(losses.size(), steps.size()); i-- > 0 && last.size() < 3;)
    if (steps[i] <= step && std::isfinite(losses[i])) last.push_back(losses[i]);
  return median(last);
}

// What lies between the training loss and the validation loss.
struct Gap {
  double now = NAN, then = NAN;  // the training loss, and what it was at the lowest validation loss
  double loss = NAN, low = NAN, low_step = 0;  // the validation loss, and the lowest one
  bool rises = false, far = false;    // the one fell while the other rose; the other is much more
  bool seen = false, is_new = false;  // was the text gone through once; was it certainly not?
  double dropout = NAN;

  explicit Gap(const Json& run) : dropout(setting(run, "dropout")) {
    const Json metrics = run.value("metrics", Json());
    const Evaluations all(run.value("validation", Json()));
    if (all.losses.empty()) return;
    const double since = std::max(all.since, other_training_until(metrics));
    const size_t lowest = all.lowest();
    low = all.losses[lowest], low_step = all.steps[lowest], loss = all.losses.back();
    now = training_loss(metrics, since, all.steps.back());
    then = training_loss(metrics, since, low_step);
    seen = !(epochs_since(run, since, all.steps.back()) < 1);
    // Weights of another run, and the steps before a change of the data, may have seen it. Of one
    // that an older version resumed, the start is not known.
    const Json start = setting_of(run, "init_from");
    is_new = !seen && since < 0 && (start.is_null() || start == "scratch");
    const std::vector<double> training = numbers_since(metrics, "train_loss", since);
    const auto first =
        std::find_if(training.begin(), training.end(), [](double x) { return std::isfinite(x); });
    const bool learns = first != training.end() && now < kFlatLoss * *first;  // else it diverges
    const bool once = lowest + 2 >= all.losses.size();  // only one is above the lowest: noise?
    const bool lags = setting(run, "ema") > 0;  // the training loss is not of the averaged weights
    rises = learns && loss > (once ? kRisingOnce : kRising) * low && loss > kSomewhat * now &&
            now < kFlatLoss * then;
    far = learns && !lags && loss > kOfTraining * now + kAboveTraining;
  }

  // What was not seen yet cannot be known by heart.
  bool is_by_heart() const { return seen && (rises || far); }

  std::string text() const {
    const double more = dropout > 0 ? std::min(dropout + 0.1, 0.5) : 0.2;
    const std::string advice =
        fmt::format("more text helps most; or try {}a smaller model{}",
                    dropout >= 0.5 ? "" : fmt::format("--dropout {:.1f}, ", more),
                    rises ? fmt::format(", or --max_iters {:.0f}", low_step) : "");
    if (!rises)
      return fmt::format(
          "the model learns its training text by heart: the training loss is {}, and the "
          "validation loss {}; {}",
          short_number(now), short_number(loss), advice);
    return fmt::format(
        "the model learns its training text by heart: since step {:.0f} the training loss fell "
        "from {} to {}, and the validation loss rose from {} to {}; {}",
        low_step, short_number(then), short_number(now), short_number(low), short_number(loss),
        advice);
  }
};

class Findings {
 public:
  explicit Findings(const Json& run) : run_(run) {
    if (const Json error = run.value("error", Json()); error.is_string() && error != "")
      add("fault", "loss", error.get<std::string>());
    loss();
    if (!run.contains("probes")) return;
    const Json& probes = run.at("probes");
    if (probes.contains("parameters")) parameters(probes.at("parameters"));
    if (probes.contains("activations")) activations(probes.at("activations"));
  }

  Json list() const {
    Json all = Json::array();
    for (const char* level : {"fault", "hint", "good"})
      for (const Json& finding : found_)
        if (finding.at("level") == level) all.push_back(finding);
    return all;
  }

 private:
  // measure, name: what the section shows of it, such as the row of a parameter.
  void add(const char* level, const char* section, const std::string& text,
           const char* measure = nullptr, const std::string& name = "") {
    found_.push_back({{"level", level}, {"text", text}, {"section", section}});
    if (measure) found_.back()["measure"] = measure;
    if (!name.empty()) found_.back()["name"] = name;
  }

  // ---- loss
  void loss() {
    const Json metrics = run_.value("metrics", Json()),
               validation = run_.value("validation", Json());
    const std::vector<double> skipped = numbers(metrics, "skipped");
    const double most = skipped.empty() ? 0 : *std::max_element(skipped.begin(), skipped.end());
    if (most > 0)
      add("fault", "speed",
          fmt::format("{:.0f} {} skipped, because a loss or gradient was not finite; try a lower "
                      "learning rate",
                      most, most == 1 ? "step was" : "steps were"));
    speed(metrics);
    const Evaluations evaluations(validation);
    const double since = std::max(evaluations.since, other_training_until(metrics));
    training(numbers_since(metrics, "step", since), numbers_since(metrics, "train_loss", since),
             numbers_since(metrics, "best_possible", since));
    validated(evaluations, numbers(validation, "val_loss"), numbers(validation, "best_possible"));
  }

  // Speeds of the same batches on the same machine are compared.
  void speed(const Json& metrics) {
    const std::vector<double> rates = numbers(metrics, "tokens_per_s"),
                              steps = numbers(metrics, "step");
    std::vector<double> sets = numbers(metrics, "speed_set"),
                        batches = numbers(metrics, "train_set");  // older lines have it alone
    sets.resize(rates.size(), NAN), batches.resize(rates.size(), NAN);
    for (size_t i = 0; i < sets.size(); ++i)
      if (std::isnan(sets[i])) sets[i] = -batches[i];
    const Json taken = run_.value("elapsed_s", Json());
    const bool is_long = !taken.is_number() || taken.get<double>() >= 10;
    if (rates.size() < 20 || rates.size() != steps.size() || !is_long) return;
    std::map<std::string, std::vector<double>> by_set;
    const auto rates_like = [&](size_t i) -> auto& { return by_set[fmt::format("{}", sets[i])]; };
    for (size_t i = 0; i < rates.size(); ++i)
      if (std::isfinite(rates[i])) rates_like(i).push_back(rates[i]);
    for (auto& [set, all] : by_set) std::sort(all.begin(), all.end());
    double slow = 0;
    for (size_t i = 0; i < rates.size(); ++i) {
      const std::vector<double>& all = rates_like(i);
      if (!all.empty() && rates[i] < all[all.size() * 9 / 10] / 2)
        slow += steps[i] - (i > 0 ? steps[i - 1] : 0);
    }
    if (slow > kSlow * steps.back())
      add("hint", "speed",
          fmt::format("{:.0f} % of the steps went at less than half of the best speed: other "
                      "programs may have used the machine",
                      100 * slow / steps.back()));
  }

  // Tenths of the steps are compared, because single ones are noisy.
  void training(const std::vector<double>& steps, std::vector<double> losses,
                std::vector<double> best) {
    if (losses.size() < 20 || steps.size() != losses.size()) return;
    best.resize(losses.size(), 0.0);
    for (size_t i = 0; i < losses.size(); ++i)  // some batches are harder than others
      if (std::isfinite(best[i])) losses[i] -= best[i];
    std::vector<double> tenths, ends;  // of those that have a loss: its median, the last step
    size_t third = 0;                  // the number of that which ends at about a third
    for (size_t tenth = 0, i = 0; tenth < 10; ++tenth) {
      const double span = steps.back() - steps.front();
      std::vector<double> its;
      for (; i < losses.size() && (tenth == 9 || 10 * (steps[i] - steps.front()) <
                                                     static_cast<double>(tenth + 1) * span);
           ++i)
        its.push_back(losses[i]);
      if (!std::isfinite(median(its))) continue;
      tenths.push_back(median(its)), ends.push_back(steps[i - 1]);
      if (tenth <= 2) third = tenths.size() - 1;
    }
    if (tenths.empty()) return;
    const auto lowest = std::min_element(tenths.begin(), tenths.end());
    if (tenths.back() > 1.2 * *lowest && tenths.back() - *lowest > 0.05)
      add("fault", "loss",
          fmt::format("the training loss rises again after step {:.0f}; the learning rate may be "
                      "too high",
                      ends[static_cast<size_t>(lowest - tenths.begin())]));
    const bool is_far = !(best.back() > 0) || tenths.back() > 0.2 * best.back();
    if (is_far && *lowest > kFlatLoss * tenths[third])
      add("hint", "loss",
          fmt::format("the training loss has hardly fallen since step {:.0f}", ends[third]));
  }

  void validated(const Evaluations& all, const std::vector<double>& losses,
                 const std::vector<double>& best) {
    if (losses.empty()) return;
    const Gap gap(run_);
    const size_t lowest = all.lowest();
    if (gap.is_by_heart()) {
      add("fault", "loss", gap.text());
    } else if (gap.far && gap.is_new) {
      add("hint", "loss",
          fmt::format("the training loss is {}, and the validation loss {}, before the training "
                      "text was gone through once: the validation text is of another kind; "
                      "--val_data names one",
                      short_number(gap.now), short_number(gap.loss)));
    } else if (all.losses.size() >= 3 && all.losses.back() > kRising * all.losses[lowest]) {
      add("hint", "loss",
          fmt::format("the validation loss was lowest after step {:.0f} ({}) and is {} now",
                      all.steps[lowest], fixed_number(all.losses[lowest]),
                      fixed_number(all.losses.back())));
    }
    const bool ended = run_.value("state", Json()) == "finished";
    const double step = all.steps.back();
    if (ended && step > 0 && !best.empty() && losses.back() > kFarFromBest * best.back())
      add("hint", "loss",
          fmt::format(
              "after {} the validation loss is {} above the best possible",
              step == run_.value("step", 0.0) ? "all steps" : fmt::format("step {:.0f}", step),
              above_best(losses.back(), best.back(), 0)));
    if (!best.empty() && std::isfinite(best.back()) && losses.back() < 1.05 * best.back())
      add("good", "loss",
          fmt::format("the validation loss is within {} of the best possible",
                      above_best(losses.back(), best.back(), 1)));
  }

  // ---- parameters
  void parameters(const Json& parts) {
    const auto names = parts.at("name").get<std::vector<std::string>>();
    const Similar similar(names);
    const auto norms = table(parts.at("weight_norm")), turned = table(parts.at("turned")),
               grads = per_element(parts);
    std::vector<std::string> still, faint, gone;
    for (size_t i = 0; i < names.size(); ++i) {
      if (count(parts, i) < 8) continue;  // one number has no direction
      if (norms.back()[i] < kGone * norms.front()[i]) {
        gone.push_back(names[i]);
        continue;
      }
      if (is_large(names[i], similar, norms, i)) continue;
      if (is_still(turned, similar, i)) {
        still.push_back(names[i]);
      } else if (is_faint(grads, i)) {
        faint.push_back(names[i]);
      }
    }
    if (!gone.empty())
      add("fault", "parameters",
          "these weights have shrunk to nothing: " + listed(gone) +
              "; try a lower learning rate or weight decay",
          "weight_norm", gone[0]);
    if (!still.empty())
      add("fault", "parameters",
          "these weights do not learn, while similar ones do: " + listed(still), "turned",
          still[0]);
    if (!faint.empty())
      add("fault", "parameters", "hardly any gradient reaches these weights: " + listed(faint),
          "grad_norm", faint[0]);
    growth(parts, names, norms);
  }

  // Lists of numbers by probe.
  static std::vector<std::vector<double>> table(const Json& probes) {
    std::vector<std::vector<double>> rows;
    for (const Json& probe : probes) rows.push_back(numbers(probe));
    return rows;
  }
  static double count(const Json& parts, size_t i) {
    const Json& counts = parts.contains("count") ? parts.at("count") : parts.at("name");
    return counts.is_array() && counts[i].is_number() ? std::max(counts[i].get<double>(), 1.0) : 1;
  }
  // Gradients by probe, over the median of all parts.
  static std::vector<std::vector<double>> per_element(const Json& parts) {
    auto rows = table(parts.at("grad_norm"));
    for (std::vector<double>& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) row[i] /= std::sqrt(count(parts, i));
      const double typical = median(row);
      for (double& value : row) value /= typical;
    }
    return rows;
  }

  // Is a part many times as large as similar ones? If so, that is said of it.
  bool is_large(const std::string& name, const Similar& similar,
                const std::vector<std::vector<double>>& norms, size_t part) {
    const double first = norms.front()[part], last = norms.back()[part],
                 others = similar.median_of_others(norms.back(), part);
    if (name.ends_with("bias") || !(others > 0) || !(last > kLarge * others)) return false;
    const bool was = first > kLarge * similar.median_of_others(norms.front(), part);
    if (!was && first > 0.5 * last) return false;  // the others have shrunk
    add("fault", "parameters",
        fmt::format("{}: its norm is {:.3g}, where similar weights have {:.3g}{}", name, last,
                    others, was ? "; it was drawn too large at the start" : ""),
        "weight_norm", name);
    return true;
  }

  // Did a part keep its direction, in all probes but the first, which has no other before it? Then
  // only rounding or weight decay moved it, or similar parts turned much further.
  static bool is_still(const std::vector<std::vector<double>>& turned, const Similar& similar,
                       size_t part) {
    std::vector<double> shares;  // by probe
    bool moves = turned.size() < 2;
    for (size_t probe = 1; probe < turned.size(); ++probe) {
      const std::vector<double>& all = turned[probe];
      shares.push_back(all[part] / similar.median_of_others(all, part));
      if (!moves) moves = !(all[part] < kStill) || !(median(all) > 100 * kStill);
    }
    return !moves || median(shares) < kSlower;
  }

  static bool is_faint(const std::vector<std::vector<double>>& grads, size_t part) {
    return std::all_of(grads.begin(), grads.end(),
                       [&](const auto& probe) { return probe[part] < kFaint; });
  }

  // The highest learning rate over that at a step.
  double rate_factor(double step) const {
    const Json metrics = run_.value("metrics", Json());
    const std::vector<double> rates = numbers(metrics, "lr"), steps = numbers(metrics, "step");
    double highest = NAN, there = NAN;
    for (size_t i = 0; i < std::min(rates.size(), steps.size()); ++i) {
      highest = std::fmax(highest, rates[i]);
      if (steps[i] <= step || std::isnan(there)) there = rates[i];
    }
    return there > 0 ? highest / there : 1;
  }

  // How many times their first norm do weights have now, and how far would a step at the highest
  // learning rate move them? (Not biases, which begin at 0, and weights of norms, which begin at
  // 1.)
  void growth(const Json& parts, const std::vector<std::string>& names,
              const std::vector<std::vector<double>>& norms) {
    const auto updates = table(parts.value("update_ratio", Json::array()));
    const std::vector<double> steps = numbers(run_.at("probes"), "step");
    std::vector<double> times, moves;
    for (size_t i = 0; i < names.size(); ++i) {
      const double first = norms.front()[i];
      if (names[i].ends_with("bias") || !(first > 0) || first > 0.5 * std::sqrt(count(parts, i)))
        continue;
      times.push_back(norms.back()[i] / first);
      if (!updates.empty()) moves.push_back(updates.back()[i]);
    }
    const bool settled = !steps.empty() && steps.back() > kSettled;
    const double grown = median(times), width = setting(run_, "n_embd"),
                 moved = settled ? median(moves) * rate_factor(steps.back()) : NAN;
    const bool large = grown > kGrown * (width < kUsualWidth ? std::sqrt(kUsualWidth / width) : 1);
    if (!large && !(moved > kThrown)) return;
    const double lr = setting(run_, "learning_rate");
    const std::string advice =
        lr > 0 ? fmt::format(" (it is {}; try {})", short_number(lr),
                             short_number(*parse_number(fmt::format("{:.0e}", lr / 3))))
               : "";
    const std::string what = large ? fmt::format("are at least {} times as large as at the start",
                                                 short_number(grown, 2))
                                   : fmt::format(
                                         "change by at least {:.0f} % of their size in a step at "
                                         "the highest learning rate",
                                         100 * moved);
    add("fault", "parameters",
        fmt::format("half of all weight tensors {}: the learning rate is too high{}, or the weight "
                    "decay too {}",
                    what, advice, large ? "low" : "high"),
        large ? "weight_norm" : "update_ratio");
  }

  // ---- activations
  void activations(const Json& rows) {
    const auto names = rows.at("name").get<std::vector<std::string>>();
    const Similar similar(names);
    const std::vector<double> saturated = numbers(rows.at("saturated").back()),
                              deviations = numbers(rows.at("std").back());
    for (size_t i = 0; i < names.size(); ++i) {
      const double others = similar.median_of_others(saturated, i);
      if (saturated[i] > kSaturated ||
          (saturated[i] > kMoreSaturated && saturated[i] > kTimesOthers * others))
        add("fault", "activations",
            fmt::format(
                "{}: {:.0f} % of its outputs are saturated{}; no gradient passes there", names[i],
                100 * saturated[i],
                others >= 0 ? fmt::format(", {:.0f} % in similar layers", 100 * others) : ""),
            "saturated", names[i]);
      const double typical = similar.median_of_others(deviations, i);
      if (typical > 1e-3 && deviations[i] > kWide * typical)
        add("hint", "activations",
            fmt::format("{}: its deviation is {:.3g}, where similar layers have {:.3g}", names[i],
                        deviations[i], typical),
            "std", names[i]);
    }
  }

  const Json& run_;
  std::vector<Json> found_;
};

}  // namespace

std::string overfitting(const Json& run) {
  const Gap gap(run);
  return gap.is_by_heart() ? gap.text() : "";
}

Json findings_of(const Json& run) { return Findings(run).list(); }

}  // namespace ink
