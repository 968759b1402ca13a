// Products of warpgroups. A warp computes its own 16 rows when it waits for them. What a product
// reads is copied when it starts and compared when it ends, so the time between at which a card
// reads does not matter.
#include "cuda/emulator/wgmma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "cuda/emulator/mma.h"

namespace emulator {
namespace {

constexpr unsigned kLanes = 32, kRows = 16, kInner = 16, kWarps = 4;  // kWarps: of a warpgroup
constexpr float kPoison = std::bit_cast<float>(0x7fc0d00d);           // a NaN

struct Matrices {
  uint64_t a, b;
  unsigned columns;
  bool by_columns, keep;
  bool operator==(const Matrices&) const = default;
};
struct Operands {
  float* d;
  const uint32_t* a;  // null: in shared memory
  Matrices matrices;
};
struct Product {
  std::array<Operands, kLanes> lanes;
  unsigned warp;
  int group;
  std::string start;              // its place
  std::vector<float> a, b, sums;  // kRows x kInner, kInner x columns, kRows x columns
};

struct Warp {
  std::deque<Product> products;  // in flight
  int groups = 0;                // that were made
  uint32_t ready = 0;            // lanes that may start products
  size_t steps = 0;              // instructions issued
};
std::vector<Warp> warps;
std::vector<std::vector<std::string>> steps;  // of each warpgroup's foremost warp

unsigned this_warp() { return threadIdx.x / kLanes; }

// All warps of a warpgroup must issue the same instructions.
void follow(const std::string& step) {
  const unsigned warp = this_warp();
  auto& all = steps[warp / kWarps];
  const size_t at = warps[warp].steps++;
  if (at == all.size()) all.push_back(step);
  if (step != all[at])
    fail("the warps of a warpgroup part: warp " + std::to_string(warp) + " is at " + step +
         ", where another was at " + all[at]);
}

// kInner x rows elements of the transpose of a matrix in shared memory. by_columns: its inner
// dimension runs from row to row. (PTX ISA, "Matrix descriptor" and "Strides"; by_columns is
// "MN-major" there.)
std::vector<float> read(uint64_t matrix, bool by_columns, unsigned first, unsigned rows) {
  const auto field = [&](int bit) { return static_cast<unsigned>(matrix >> bit & 0x3fff) * 16; };
  const unsigned start = field(0), panel = field(16), group = field(32);  // group: of 8 rows
  const auto expect = [&](bool holds, const char* rule) {
    if (!holds)
      fail("a product of a matrix at byte " + std::to_string(int64_t{start} - kSharedStart) +
           " of shared memory: " + rule);
  };
  expect(matrix >> 62 == 1 && (matrix & 0x3fffc000c000c000) == 0, "expected 128-byte swizzling");
  expect(start / 128 % 8 == 0, "expected a first row aligned to 1024 bytes");
  expect(start % 128 <= (by_columns ? 0 : 96), "it leaves its rows of 128 bytes");
  expect(group % 1024 == 0 && (!by_columns || rows <= 64 || panel % 1024 == 0),
         "expected groups of rows and panels aligned to 1024 bytes");
  std::vector<float> elements(kInner * rows);
  for (unsigned chunk = 0; chunk < kInner * rows / 8; ++chunk) {  // of 16 bytes
    const unsigned k = by_columns ? chunk / (rows / 8) : chunk % 2 * 8,
                   row = by_columns ? chunk % (rows / 8) * 8 : chunk / 2, r = first + row;
    const unsigned at =
        start + (by_columns ? r / 64 * panel + r % 64 * 2 + k / 8 * group + k % 8 * 128
                            : r / 8 * group + r % 8 * 128 + k * 2);
    std::array<uint16_t, 8> eight;
    std::memcpy(eight.data(), published(at ^ at / 128 % 8 * 16), sizeof eight);
    for (unsigned e = 0; e < 8; ++e)
      elements[by_columns ? k * rows + row + e : (k + e) * rows + row] = half_of(eight[e], 0);
  }
  return elements;
}

std::vector<float> read_a(const Product& p) {
  const Operands& one = p.lanes[0];
  if (one.a == nullptr) return read(one.matrices.a, false, p.warp % kWarps * kRows, kRows);
  std::vector<float> elements(kInner * kRows);
  for (unsigned i = 0; i < elements.size(); ++i) {
    const unsigned k = i / kRows, row = i % kRows;
    const Operands& lane = p.lanes[row % 8 * 4 + k % 8 / 2];
    elements[i] = half_of(lane.a[k / 8 * 2 + row / 8], k % 2);
  }
  return elements;
}
std::vector<float> read_b(const Product& p) {
  const Matrices& m = p.lanes[0].matrices;
  return read(m.b, m.by_columns, 0, m.columns);
}

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

// f(sum, its register) for all sums.
template <class F>
void each_sum(Product& p, F&& f) {
  const unsigned columns = p.lanes[0].matrices.columns;
  for (unsigned i = 0; i < kRows * columns; ++i) {
    const unsigned row = i / columns, n = i % columns;
    f(p.sums[i], p.lanes[row % 8 * 4 + n % 8 / 2].d[n / 8 * 4 + row / 8 * 2 + n % 2]);
  }
}

void start(Product p) {
  Warp& warp = warps[p.warp];
  const auto& [d, a, m] = p.lanes[0];
  if (capability() / 10 != 9) fail("products of warpgroups need a card of compute capability 9.0");
  if ((p.warp / kWarps + 1) * kWarps > warps.size()) fail("a product of less than a warpgroup");
  if (warp.ready != ~0u)
    fail("a product without before_products() since the last wait: " + p.start);
  follow(p.start + " with " + std::to_string(m.a) + ", " + std::to_string(m.b) +
         (m.keep ? " and sums" : ""));
  p.a = read_a(p);
  p.b = read_b(p);
  const auto adds_to = [sums = d](const Product& other) { return other.lanes[0].d == sums; };
  if (std::none_of(warp.products.begin(), warp.products.end(), adds_to)) {
    p.sums.resize(kRows * m.columns);
    each_sum(p, [](float& sum, float& own) { sum = std::exchange(own, kPoison); });
  }
  warp.products.push_back(std::move(p));
}

// Finishes a warp's first product.
void finish(Warp& warp) {
  Product p = std::move(warp.products.front());
  warp.products.pop_front();
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) fail(what + (" of a product changed before its end was waited for: " + p.start));
  };
  expect(same_bits(read_a(p), p.a), "the first operand");
  expect(same_bits(read_b(p), p.b), "the second operand");
  const auto& [d, a, m] = p.lanes[0];
  for (unsigned r = 0; r < kRows; ++r) {
    float* sums = p.sums.data() + r * m.columns;
    if (!m.keep) std::fill_n(sums, m.columns, 0.0f);
    for (unsigned k = 0; k < kInner; ++k) {
      const float factor = p.a[k * kRows + r], *row = p.b.data() + k * m.columns;
      for (unsigned n = 0; n < m.columns; ++n) sums[n] += factor * row[n];
    }
  }
  for (Product& next : warp.products) {
    if (next.lanes[0].d != d) continue;
    next.sums = std::move(p.sums);
    return;
  }
  each_sum(p, [&](float sum, float& own) {
    expect(std::bit_cast<uint32_t>(own) == std::bit_cast<uint32_t>(kPoison), "a sum");
    own = sum;
  });
}

}  // namespace

// Of a warp's lanes, lane 0 goes on first after an exchange. It works for all.
void start_product(float* d, int columns, const uint32_t* a, uint64_t a_matrix, uint64_t b_matrix,
                   bool by_columns, bool keep, Where where) {
  const Operands mine{d, a, {a_matrix, b_matrix, static_cast<unsigned>(columns), by_columns, keep}};
  const unsigned char* all = exchange(Collective::product, &mine, sizeof mine, where);
  if (threadIdx.x % kLanes != 0) return;
  Product p{{}, this_warp(), warps[this_warp()].groups, place(where), {}, {}, {}};
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    p.lanes[lane] = from_lane<Operands>(all, lane);
    if (p.lanes[lane].matrices != mine.matrices)
      fail("lanes of a warp start different products: " + p.start);
  }
  start(std::move(p));
}

void before_products() { warps[this_warp()].ready |= 1u << threadIdx.x % kLanes; }

void end_products(Where where) {
  exchange(Collective::product, nullptr, 0, where);
  if (threadIdx.x % kLanes != 0) return;
  follow(place(where));
  ++warps[this_warp()].groups;
}

void wait_for_products(int groups_left, Where where) {
  exchange(Collective::late, nullptr, 0, where);
  if (threadIdx.x % kLanes != 0) return;
  follow(place(where) + ", " + std::to_string(groups_left) + " left");
  Warp& warp = warps[this_warp()];
  warp.ready = 0;
  while (!warp.products.empty() && warp.products.front().group < warp.groups - groups_left)
    finish(warp);
}

void start_block_of_products(int threads) {
  const auto count = static_cast<size_t>(threads) / kLanes;
  warps.assign(count, {});
  steps.assign((count + kWarps - 1) / kWarps, {});
}

void end_block_of_products() {
  for (size_t w = 0; w < warps.size(); ++w) {
    const auto& [products, groups, ready, at] = warps[w];
    const std::string leaves = "warp " + std::to_string(w) + " has left ";
    if (!products.empty()) fail(leaves + "without a wait for its product: " + products[0].start);
    const auto& all = steps[w / kWarps];
    if (at < all.size())
      fail("the warps of a warpgroup part: " + leaves + "where another was at " + all[at]);
  }
}

}  // namespace emulator
