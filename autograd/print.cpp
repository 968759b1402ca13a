// Tensors as text, as PyTorch writes them (the rules are those of torch/_tensor_str.py). Three
// steps: pick the elements that are shown, turn each into a cell, arrange the cells in brackets.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "autograd/engine/graph.h"
#include "autograd/print.h"

namespace ink {

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int64_t i = 0; i < shape.size(); ++i) out << (i ? ", " : "") << std::to_string(shape[i]);
  return out << (shape.size() == 1 ? ",)" : ")");
}

PrintOptions& print_options() {
  static PrintOptions options;
  return options;
}

void set_printoptions(const PrintChanges& changes) {
  PrintOptions next = print_options();
  next.precision = changes.precision.value_or(next.precision);
  next.threshold = changes.threshold.value_or(next.threshold);
  next.edgeitems = changes.edgeitems.value_or(next.edgeitems);
  next.linewidth = changes.linewidth.value_or(next.linewidth);
  if (changes.sci_mode) next.sci_mode = changes.sci_mode;
  INK_CHECK(
      next.precision >= 0 && next.threshold >= 0 && next.edgeitems >= 0 && next.linewidth > 0,
      "set_printoptions: expected precision, threshold, edgeitems >= 0 and linewidth > 0, got ",
      next.precision, ", ", next.threshold, ", ", next.edgeitems, ", ", next.linewidth);
  print_options() = next;
}

void detail::print_shape(std::ostream& out, const Shape& shape) {
  out << "torch.Size([";
  for (int64_t i = 0; i < shape.size(); ++i) out << (i ? ", " : "") << std::to_string(shape[i]);
  out << "])";
}

namespace {

constexpr const char kPrefix[] = "tensor(";
constexpr int kIndent = 7;  // of continuation lines: the prefix's length

// ---- what is shown

bool summarised(const Tensor& x) { return x.numel() > print_options().threshold; }

// The indices that are shown along a dimension of size n: all, or in a summary those at its ends.
std::vector<int64_t> shown(int64_t n, bool summary) {
  const int64_t edge = print_options().edgeitems;
  const bool cut = summary && edge < n - edge;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < (cut ? edge : n); ++i) indices.push_back(i);
  for (int64_t i = cut ? n - edge : n; i < n; ++i) indices.push_back(i);
  return indices;
}

// Appends the elements of x that are shown, in row-major order.
template <class T>
void collect(const Tensor& x, bool summary, std::vector<T>& values) {
  if (!summary || x.numel() <= 2 * print_options().edgeitems) {  // too few to be cut anywhere
    const std::vector<T> all = x.tolist<T>();
    values.insert(values.end(), all.begin(), all.end());
  } else {
    for (int64_t i : shown(x.size(0), summary)) collect(x.select(0, i), summary, values);
  }
}

template <class T>
std::vector<T> shown_values(const Tensor& x) {
  const ContextGuard guard;
  context().observers.clear();  // observers are not to see the ops that printing needs
  std::vector<T> values;
  collect(x.detach(), summarised(x), values);
  return values;
}

// ---- cells

// One text per element that is shown, all but the odd one (-0., inf) of the same width.
struct Cells {
  std::vector<std::string> texts;
  size_t width = 1;
};

enum class Style { whole, fixed, scientific };  // 1.  1.0000  1.0000e+00

std::string number(double value, Style style) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const int precision = style == Style::whole ? 0 : print_options().precision;
  const auto format =
      style == Style::scientific ? std::chars_format::scientific : std::chars_format::fixed;
  // Not a stream: those follow the locale. The longest double has 309 digits before its point.
  std::string text(static_cast<size_t>(320 + precision), '\0');
  text.resize(static_cast<size_t>(
      std::to_chars(text.data(), text.data() + text.size(), value, format, precision).ptr -
      text.data()));
  return style == Style::whole ? text + '.' : text;
}

// Zeros, infinities and nans do not decide how the others are written.
bool counts(double value) { return std::isfinite(value) && value != 0; }

// Whole if all are; scientific if fixed digits would hide small values or be too long.
Style choose_style(const std::vector<double>& values) {
  double smallest = std::numeric_limits<double>::infinity(), largest = 0;
  bool whole = true;
  for (double value : values) {
    if (!counts(value)) continue;
    smallest = std::min(smallest, std::abs(value));
    largest = std::max(largest, std::abs(value));
    whole &= value == std::ceil(value);
  }
  if (largest == 0) return Style::whole;  // even where sci_mode is on
  const bool scientific = largest / smallest > 1000 || largest > 1e8 || smallest < 1e-4;
  if (print_options().sci_mode.value_or(scientific)) return Style::scientific;
  return whole ? Style::whole : Style::fixed;
}

Cells float_cells(const std::vector<double>& values) {
  const Style style = choose_style(values);
  Cells cells;
  for (double value : values) {
    cells.texts.push_back(number(value, style));
    if (counts(value)) cells.width = std::max(cells.width, cells.texts.back().size());
  }
  return cells;
}

Cells integer_cells(const std::vector<int64_t>& values, bool boolean_values) {
  Cells cells;
  for (int64_t value : values) {
    cells.texts.push_back(boolean_values ? value != 0 ? "True" : "False" : std::to_string(value));
    cells.width = std::max(cells.width, cells.texts.back().size());
  }
  return cells;
}

Cells make_cells(const Tensor& x) {
  Cells cells = x.is_floating()
                    ? float_cells(shown_values<double>(x))
                    : integer_cells(shown_values<int64_t>(x), x.dtype() == DType::boolean);
  for (std::string& text : cells.texts) {
    if (text.size() < cells.width) text.insert(0, cells.width - text.size(), ' ');
  }
  return cells;
}

// ---- brackets

class Arranger {
 public:
  explicit Arranger(const Tensor& x)
      : cells_(make_cells(x)), shape_(x.shape()), summary_(summarised(x)) {}

  std::string text() { return shape_.empty() ? cells_.texts[0] : block(0); }

 private:
  // The next piece of the tensor, from dimension `dim` on, with its brackets.
  std::string block(int64_t dim) {
    const bool innermost = dim == shape_.size() - 1;
    const auto indent = static_cast<size_t>(kIndent + dim + 1);  // one for each open bracket
    std::vector<std::string> parts;
    int64_t expected = 0;
    for (int64_t i : shown(shape_[dim], summary_)) {
      if (i != expected) parts.push_back(innermost ? " ..." : "...");
      expected = i + 1;
      parts.push_back(innermost ? cells_.texts[next_++] : block(dim + 1));
    }
    if (parts.empty()) parts.push_back("...");  // edgeitems = 0

    const auto rows = static_cast<size_t>(shape_.size() - 1 - dim);  // blank lines part matrices
    std::string new_line = ",";
    new_line.append(std::max<size_t>(rows, 1), '\n').append(indent, ' ');
    const size_t per_line = innermost ? cells_per_line(indent - 1) : 1;
    std::string text = "[";
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) text += i % per_line == 0 ? new_line : ", ";
      text += parts[i];
    }
    return text + "]";
  }

  size_t cells_per_line(size_t indent) const {
    const auto room = static_cast<size_t>(print_options().linewidth);
    return room <= indent ? 1 : std::max<size_t>(1, (room - indent) / (cells_.width + 2));
  }

  Cells cells_;
  Shape shape_;
  bool summary_;
  size_t next_ = 0;  // the first cell not placed yet
};

// ---- suffixes

// PyTorch 2.15's name of a node, where it is not our op's name (see also shown_as).
const char* torch_name(const std::string& op) {
  static const std::map<std::string, const char*> names = {{"dropout", "mul"},
                                                           {"layer_norm", "native_layer_norm"},
                                                           {"cross_entropy", "nll_loss"},
                                                           {"rsub", "rsub.1"},
                                                           {"fill_", "fill.2"},
                                                           {"to", "to_copy"},
                                                           {"log1p", "log1_p"}};
  const auto found = names.find(op);
  return found == names.end() ? nullptr : found->second;
}

// linear_cross_entropy -> LinearCrossEntropyBackward0, sum.1 -> SumBackward1. After a '.', anything
// but a number is left out.
std::string grad_fn_name(const Node& node) {
  const char* other = node.shown ? node.shown : torch_name(node.name);
  const std::string op = other ? other : node.name;
  if (op == "copy_slices") return "CopySlices";
  if (op == "copy_") return "CopyBackwards";
  const size_t dot = std::min(op.find('.'), op.size());
  std::string name;
  bool capital = true;
  for (char c : op.substr(0, dot)) {
    if (c != '_') name += capital && 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    capital = c == '_';
  }
  const bool numbered = dot + 1 < op.size() && '0' <= op[dot + 1] && op[dot + 1] <= '9';
  return name + "Backward" + (numbered ? op.substr(dot + 1) : "0");
}

// What the values do not show: device, dtype, grad_fn and so on.
std::vector<std::string> suffixes(const Tensor& x) {
  std::vector<std::string> list;
  const bool empty = x.numel() == 0;
  if (!x.device().is_cpu()) list.push_back(detail::joined({"device='", x.device(), "'"}));
  if (empty ? x.dim() != 1 : print_options().edgeitems == 0) {
    list.push_back(detail::joined({"size=", x.shape()}));
  }
  const bool told_by_values = !empty && (x.dtype() == DType::i64 || x.dtype() == DType::boolean);
  if (x.dtype() != context().default_dtype && !told_by_values) {
    list.push_back(detail::joined({"dtype=torch.", x.dtype()}));
  }
  if (x.requires_grad()) {
    list.push_back(x.is_leaf() ? "requires_grad=True"
                               : "grad_fn=<" + grad_fn_name(*x.slot()->node) + ">");
  }
  return list;
}

}  // namespace

std::string Tensor::to_string() const {
  if (!defined()) return "tensor(undefined)";
  std::string text = kPrefix + (numel() == 0 ? "[]" : Arranger(*this).text());
  const size_t line_start = text.rfind('\n') + 1;  // 0 where there is no line break
  // PyTorch counts two columns more than the line has, so a suffix wraps two columns earlier.
  size_t column = text.size() - line_start + 2;
  for (const std::string& suffix : suffixes(*this)) {
    const bool wraps = column + suffix.size() + 2 > static_cast<size_t>(print_options().linewidth);
    text += (wraps ? ",\n" + std::string(kIndent, ' ') : ", ") + suffix;
    column = (wraps ? kIndent : column + 2) + suffix.size();
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.to_string();
}

}  // namespace ink
