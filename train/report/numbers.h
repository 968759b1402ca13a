// Numbers and names as reports write them, like base.js of the pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ink {

/// With `digits` that count and no zeros at the end: 0.0025, 12,345, 1.25e6, 5e-5. power: as a
/// power of ten in any case.
std::string short_number(double x, int digits = 4, bool power = false);

/// "1,234.5" of "1234.5".
std::string with_separators(std::string text);

/// A loss or norm with so many decimals, and from a million on as a power of ten, too: 2.3026,
/// 4.6117e+18. NaN has no sign.
std::string fixed_number(double x, int decimals = 4);

/// Texts for the ticks of an axis: in one form, with as many digits as it takes to tell them apart.
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

/// How far a loss is above the best possible one: "12.3 %", or, if that is many times as large,
/// "3.2 nats". `decimals` are of the percentage.
std::string above_best(double loss, double best, int decimals);

/// "1 layer", "2 layers".
std::string counted(int64_t count, const std::string& what);

/// Of a task: "97.3 % of answers right", and 100 only where all are.
std::string answers_text(double share);

/// How many columns of a terminal a text takes: those of East Asia and emoji take two each, and
/// escape codes and combining marks none. A byte that is no UTF-8 counts as one.
size_t columns_of(std::string_view text);

/// A text of at most `length` bytes, its middle left out.
std::string middle_cut(const std::string& text, size_t length);

}  // namespace ink
