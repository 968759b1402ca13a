// einsum: products and sums over named dimensions, as Einstein wrote them.
#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "autograd/more_ops.h"

namespace ink {
namespace {

// The names of an operand's dimensions. "..." becomes capital letters from the end of the alphabet,
// one for each dimension without a name.
std::string names_of(std::string term, int64_t dims) {
  if (const size_t dots = term.find("..."); dots != std::string::npos) {
    const int64_t left = dims - static_cast<int64_t>(term.size()) + 3;
    INK_CHECK(left >= 0 && left <= 8, "einsum: ", term, " has more names than dimensions, ", dims);
    std::string batch;
    for (int64_t i = left; i > 0; --i) batch += static_cast<char>('0' + i);
    term.replace(dots, 3, batch);
  }
  INK_CHECK(static_cast<int64_t>(term.size()) == dims, "einsum: ", term, " names ", term.size(),
            " dimensions of ", dims);
  return term;
}

// x with one dimension for each name, in the order of `all`; size 1 for names that x lacks.
Tensor arranged(Tensor x, std::string names, const std::string& all) {
  for (size_t i = 0; i < names.size(); ++i) {  // a name that comes twice: the diagonal
    const size_t again = names.find(names[i], i + 1);
    if (again == std::string::npos) continue;
    const int64_t n = x.shape()[static_cast<int64_t>(i)],
                  m = x.shape()[static_cast<int64_t>(again)];
    INK_CHECK(n == m, "einsum: ", names, " repeats ", names[i], ", of sizes ", n, " and ", m);
    x = diagonal(x, 0, static_cast<int64_t>(i), static_cast<int64_t>(again));
    const char name = names[i];
    names.erase(again, 1);
    names.erase(i, 1);
    names += name;
    i = static_cast<size_t>(-1);
  }
  Shape order;
  for (char name : all) {
    if (const size_t at = names.find(name); at != std::string::npos)
      order.push_back(static_cast<int64_t>(at));
  }
  x = permute(x, order);
  for (size_t i = 0; i < all.size(); ++i)
    if (names.find(all[i]) == std::string::npos) x = unsqueeze(x, static_cast<int64_t>(i));
  return x;
}

// The sizes of some of the names, one after the other, as one dimension.
int64_t merged(const Tensor& x, size_t from, size_t to) {
  int64_t size = 1;
  for (size_t d = from; d < to; ++d) size *= x.shape()[static_cast<int64_t>(d)];
  return size;
}

// a and b, with dimensions (batch, only a's, only b's, summed), as one product of matrices.
Tensor contracted(const Tensor& a, const Tensor& b, size_t batch, size_t left, size_t right) {
  const size_t n = static_cast<size_t>(a.dim());
  const Shape shared = broadcast_shapes("einsum", a.shape(), b.shape());
  Shape of_a = a.shape(), of_b = b.shape(), result;
  for (size_t i = 0; i < n; ++i) {
    const int64_t d = static_cast<int64_t>(i);
    const bool summed = i >= batch + left + right;
    if (i < batch || summed) of_a[d] = of_b[d] = shared[d];
    if (!summed) result.push_back(shared[d]);
  }
  const Tensor x = expand(a, of_a), y = expand(b, of_b);
  const int64_t batches = merged(x, 0, batch), inner = merged(x, batch + left + right, n);
  const Tensor p = reshape(x, {batches, merged(x, batch, batch + left), inner});
  const Tensor q = reshape(y, {batches, merged(y, batch + left, batch + left + right), inner});
  return reshape(matmul(p, transpose(q, 1, 2)), result);
}

// x summed over the dimensions whose names `others` lack, which are left out of `names`.
Tensor summed_alone(const Tensor& x, std::string& names, const std::string& others) {
  Shape dims;
  for (size_t i = 0; i < names.size(); ++i)
    if ((others + names.substr(0, i) + names.substr(i + 1)).find(names[i]) == std::string::npos)
      dims.push_back(static_cast<int64_t>(i));
  for (int64_t k = dims.size() - 1; k >= 0; --k) names.erase(static_cast<size_t>(dims[k]), 1);
  return dims.empty() ? x : sum(x, dims);
}

// The product of a and b, with names in any order, summed over all names that `needed` lacks.
std::pair<Tensor, std::string> pair_of(Tensor a, std::string names_a, Tensor b, std::string names_b,
                                       const std::string& needed) {
  a = summed_alone(a, names_a, names_b + needed);
  b = summed_alone(b, names_b, names_a + needed);
  const auto has = [](const std::string& names, char c) {
    return std::count(names.begin(), names.end(), c) > 0;
  };
  std::string batch, left, right, summed;
  for (char c : names_a) {
    if (has(batch + left + summed, c)) continue;
    (has(names_b, c) ? has(needed, c) ? batch : summed : left) += c;
  }
  for (char c : names_b)
    if (!has(names_a, c) && !has(right, c)) right += c;
  const std::string all = batch + left + right + summed;
  INK_CHECK(all.size() <= Shape::kMaxDims, "einsum: ", names_a, " and ", names_b, " name ",
            all.size(), " dimensions; two operands may have at most ", Shape::kMaxDims);
  return {contracted(arranged(a, names_a, all), arranged(b, names_b, all), batch.size(),
                     left.size(), right.size()),
          batch + left + right};
}

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

Equation parsed(std::string text, const std::vector<Tensor>& operands) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  Equation equation;
  std::string term;
  for (char c : text.substr(0, arrow) + ",") {
    INK_CHECK(std::isalpha(static_cast<unsigned char>(c)) || c == ',' || c == '.',
              "einsum: expected letters, commas and ..., got ", text);
    if (c != ',') {
      term += c;
    } else {
      equation.terms.push_back(std::exchange(term, {}));
    }
  }
  INK_CHECK(equation.terms.size() == operands.size(), "einsum: ", text, " is for ",
            equation.terms.size(), " operands, got ", operands.size());
  std::map<char, int> counts;
  int64_t batch = 0;  // the most dimensions that "..." stands for
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined()) detail::fail_undefined("einsum", static_cast<int>(i) + 1);
    equation.terms[i] = names_of(equation.terms[i], operands[i].dim());
    for (char c : equation.terms[i]) {
      ++counts[c];
      if (c < 'A') batch = std::max<int64_t>(batch, c - '0');
    }
  }
  std::string dots;
  for (int64_t i = batch; i > 0; --i) dots += static_cast<char>('0' + i);
  if (arrow == std::string::npos) {  // what comes once, in the order of the alphabet
    equation.result = dots;
    for (const auto& [c, count] : counts)
      if (c >= 'A' && count == 1) equation.result += c;
  } else {
    equation.result = text.substr(arrow + 2);
    if (const size_t at = equation.result.find("..."); at != std::string::npos)
      equation.result.replace(at, 3, dots);
  }
  for (size_t i = 0; i < equation.result.size(); ++i) {
    const char c = equation.result[i];
    INK_CHECK(counts.count(c), "einsum: ", text, " has no dimension '", c, "' among its operands");
    INK_CHECK(equation.result.find(c, i + 1) == std::string::npos, "einsum: the result of ", text,
              " names '", c, "' twice");
  }
  return equation;
}

}  // namespace

Tensor einsum(const std::string& text, const std::vector<Tensor>& operands) {
  INK_CHECK(!operands.empty(), "einsum: expected at least one operand");
  const Equation equation = parsed(text, operands);
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < equation.terms[i].size(); ++d) {
      const int64_t n = operands[i].shape()[static_cast<int64_t>(d)];
      int64_t& known = sizes.emplace(equation.terms[i][d], n).first->second;
      INK_CHECK(n == known || n == 1 || known == 1, "einsum: '", equation.terms[i][d], "' of ",
                text, " is ", known, " and ", n);
      if (known == 1) known = n;
    }
  }
  Tensor y = operands[0];
  std::string names = equation.terms[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string needed = equation.result;
    for (size_t j = i + 1; j < operands.size(); ++j) needed += equation.terms[j];
    std::tie(y, names) = pair_of(y, names, operands[i], equation.terms[i], needed);
  }
  std::string all = equation.result;
  for (char c : names)
    if (all.find(c) == std::string::npos) all += c;
  y = arranged(y, names, all);
  Shape dims;
  for (size_t d = equation.result.size(); d < all.size(); ++d)
    dims.push_back(static_cast<int64_t>(d));
  return dims.empty() ? y : sum(y, dims);
}

}  // namespace ink
