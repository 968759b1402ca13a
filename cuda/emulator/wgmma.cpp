// Products of warpgroups. A warp computes its own 16 rows when it waits for them. What a product
// reads is copied when the product starts, and compared when it ends: so it does not matter at
// which time a card would have read it. Sums are NaN in between.
#include "cuda/emulator/wgmma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace emulator {
namespace {

constexpr int kLanes = 32, kRows = 16, kInner = 16, kWarps = 4;  // of a warp, a product, a group
constexpr uint32_t kPoison = 0x7fc0d00d;                         // a NaN

struct Request {
  float* d;
  const uint32_t* a;  // null: in shared memory
  uint64_t a_descriptor, b_descriptor;
  int columns;
  bool by_columns, keep;
};

/// An instruction that all warps of a warpgroup must issue. groups_left: -2 starts a product, -1
/// ends a group.
struct Step {
  int groups_left;
  Where where;
  uint64_t a_descriptor = 0, b_descriptor = 0;
  bool keep = false;

  bool operator==(const Step& other) const {
    return groups_left == other.groups_left && same_place(where, other.where) &&
           a_descriptor == other.a_descriptor && b_descriptor == other.b_descriptor &&
           keep == other.keep;
  }
};

/// The sums of products in flight.
struct Sums {
  std::array<float*, kLanes> d;
  int columns;
  int products = 0;           // in flight
  std::vector<float> values;  // kRows x columns

  /// f(value, the lane's own) of all values.
  template <class F>
  void each(F&& f) {
    for (int i = 0; i < kRows * columns; ++i) {
      const int row = i / columns, column = i % columns;
      float* lane = d[static_cast<size_t>(row % 8 * 4 + column % 8 / 2)];
      f(values[static_cast<size_t>(i)], lane[column / 8 * 4 + row / 8 * 2 + column % 2]);
    }
  }
};

struct Product {
  std::array<Request, kLanes> lanes;
  Where where;
  int warp, group;
  std::shared_ptr<Sums> sums;
  std::vector<uint16_t> a, b;  // kRows x kInner; kInner x columns
};

struct Warp {
  std::deque<Product> products;  // in flight
  int groups = 0;                // that were made
  uint32_t ready = 0;            // lanes that may start products
  size_t steps = 0;
};
struct Products {
  std::vector<Warp> warps;
  std::vector<std::vector<Step>> steps;  // of each warpgroup's foremost warp
};

Products& products() {
  static auto* only = new Products;
  return *only;
}
int this_warp() { return static_cast<int>(threadIdx.x / kLanes); }
unsigned this_lane() { return threadIdx.x % kLanes; }

void follow(const Step& step) {
  const int warp = this_warp();
  auto& steps = products().steps[static_cast<size_t>(warp / kWarps)];
  size_t& at = products().warps[static_cast<size_t>(warp)].steps;
  if (at == steps.size()) {
    steps.push_back(step);
  } else if (!(step == steps[at])) {
    fail("the warps of a warpgroup part: warp " + std::to_string(warp) + " is at " +
         place(step.where) + ", where another was at " + place(steps[at].where) +
         " or had other operands");
  }
  ++at;
}

// Reads inner x rows elements of a matrix (PTX ISA, "Matrix descriptor" and "Strides"; the matrix
// is the transpose of what PTX calls b). by_columns: its inner dimension runs from row to row of
// shared memory ("MN-major").
std::vector<uint16_t> read(uint64_t descriptor, bool by_columns, int first, int rows) {
  const auto field = [&](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fff) * 16;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  const auto refuse = [&](const char* why) {
    fail("a matrix at byte " + std::to_string(static_cast<int64_t>(start) - kSharedStart) +
         " of shared memory " + why);
  };
  if (descriptor >> 62 != 1 || (descriptor & 0x3fffc000c000c000) != 0)
    refuse("has a descriptor of something else than 128-byte swizzling");
  if (start / 128 % 8 != 0) refuse("does not start in a row that is aligned to 1024 bytes");
  if (start % 128 > (by_columns ? 0 : 96)) refuse("leaves its rows of 128 bytes");
  if (stride % 1024 != 0 || (by_columns && rows > 64 && leading % 1024 != 0))
    refuse("has panels or groups of rows that are not aligned to 1024 bytes");
  std::vector<uint16_t> elements(static_cast<size_t>(kInner * rows));
  // 16 bytes at a time: eight elements along the inner dimension, or along the other
  const int k_step = by_columns ? 1 : 8, row_step = by_columns ? 8 : 1;
  for (int k = 0; k < kInner; k += k_step) {
    for (int r = 0; r < rows; r += row_step) {
      const auto row = static_cast<uint32_t>(first + r), inner = static_cast<uint32_t>(k);
      uint32_t at = start + (by_columns ? row / 64 * leading + row % 64 * 2 + inner / 8 * stride +
                                              inner % 8 * 128
                                        : row / 8 * stride + row % 8 * 128 + inner * 2);
      at ^= at / 128 % 8 * 16;
      std::array<uint16_t, 8> eight;
      std::memcpy(eight.data(), published(at, sizeof eight), sizeof eight);
      for (int e = 0; e < 8; ++e) {
        const int to = by_columns ? k * rows + r + e : (k + e) * rows + r;
        elements[static_cast<size_t>(to)] = eight[static_cast<size_t>(e)];
      }
    }
  }
  return elements;
}

std::vector<uint16_t> read_a(const Product& p) {
  const Request& one = p.lanes[0];
  if (one.a == nullptr) return read(one.a_descriptor, false, p.warp % kWarps * kRows, kRows);
  std::vector<uint16_t> elements(kInner * kRows);
  for (size_t i = 0; i < elements.size(); ++i) {
    const size_t k = i / kRows, row = i % kRows;
    const uint32_t pair = p.lanes[row % 8 * 4 + k % 8 / 2].a[k / 8 * 2 + row / 8];
    elements[i] = static_cast<uint16_t>(k % 2 ? pair >> 16 : pair);
  }
  return elements;
}
std::vector<uint16_t> read_b(const Product& p) {
  const Request& one = p.lanes[0];
  return read(one.b_descriptor, one.by_columns, 0, one.columns);
}

void start(Product p) {
  Warp& warp = products().warps[static_cast<size_t>(p.warp)];
  const Request& one = p.lanes[0];
  if (capability() / 10 != 9) fail("products of warpgroups need a card of compute capability 9.0");
  if (static_cast<size_t>(p.warp / kWarps + 1) * kWarps > products().warps.size())
    fail("a product of less than a warpgroup, at " + place(p.where));
  if (warp.ready != ~0u)
    fail("a product at " + place(p.where) + " without before_products() after the thread may " +
         "have used its registers");
  follow({-2, p.where, one.a_descriptor, one.b_descriptor, one.keep});
  p.group = warp.groups;
  p.a = read_a(p);
  p.b = read_b(p);
  for (const Product& other : warp.products) {
    if (other.lanes[0].d == one.d) p.sums = other.sums;
  }
  if (!p.sums) {
    p.sums = std::make_shared<Sums>();
    p.sums->columns = one.columns;
    p.sums->values.resize(static_cast<size_t>(kRows * one.columns));
    for (size_t lane = 0; lane < kLanes; ++lane) p.sums->d[lane] = p.lanes[lane].d;
    p.sums->each([](float& value, float& own) {
      value = own;
      own = std::bit_cast<float>(kPoison);
    });
  }
  ++p.sums->products;
  warp.products.push_back(std::move(p));
}

void finish(Product& p) {
  const auto changed = [&](const char* what) {
    fail(std::string(what) +
         " of a product changed before the product was waited for (started at " + place(p.where) +
         ")");
  };
  if (read_a(p) != p.a) changed("the first operand");
  if (read_b(p) != p.b) changed("the second operand");
  const auto columns = static_cast<size_t>(p.sums->columns);
  std::vector<float> b(p.b.size());
  const auto value = [](uint16_t bf16) { return std::bit_cast<float>(uint32_t{bf16} << 16); };
  std::transform(p.b.begin(), p.b.end(), b.begin(), value);
  for (size_t r = 0; r < kRows; ++r) {
    float* sums = p.sums->values.data() + r * columns;
    if (!p.lanes[0].keep) std::fill(sums, sums + columns, 0.0f);
    for (size_t k = 0; k < kInner; ++k) {
      const float a = value(p.a[k * kRows + r]), *row = b.data() + k * columns;
      for (size_t n = 0; n < columns; ++n) sums[n] += a * row[n];
    }
  }
  if (--p.sums->products > 0) return;
  p.sums->each([&](const float& sum, float& own) {
    if (std::bit_cast<uint32_t>(own) != kPoison) changed("the sums");
    own = sum;
  });
}

}  // namespace

void start_product(float* d, int columns, const uint32_t* a, uint64_t a_descriptor,
                   uint64_t b_descriptor, bool by_columns, bool keep, Where where) {
  const Request mine{d, a, a_descriptor, b_descriptor, columns, by_columns, keep};
  const unsigned char* all = exchange(Collective::product, &mine, sizeof mine, where);
  const auto first = from_lane<Request>(all, 0);
  if (mine.a_descriptor != first.a_descriptor || mine.b_descriptor != first.b_descriptor ||
      mine.keep != first.keep)
    fail("lanes of a warp start a product at " + place(where) + " with different operands");
  if (this_lane() != 0) return;  // lane 0 goes on before all others
  Product p{{}, where, this_warp(), 0, nullptr, {}, {}};
  for (unsigned lane = 0; lane < kLanes; ++lane) p.lanes[lane] = from_lane<Request>(all, lane);
  start(std::move(p));
}

void before_products() {
  products().warps[static_cast<size_t>(this_warp())].ready |= 1u << this_lane();
}

void end_products(Where where) {
  exchange(Collective::product, nullptr, 0, where);
  if (this_lane() != 0) return;
  follow({-1, where});
  ++products().warps[static_cast<size_t>(this_warp())].groups;
}

void wait_for_products(int groups_left, Where where) {
  exchange(Collective::late, nullptr, 0, where);
  if (this_lane() != 0) return;
  follow({groups_left, where});
  Warp& warp = products().warps[static_cast<size_t>(this_warp())];
  warp.ready = 0;
  while (!warp.products.empty() && warp.products.front().group < warp.groups - groups_left) {
    finish(warp.products.front());
    warp.products.pop_front();
  }
}

void start_block_of_products(int threads) {
  const auto warps = static_cast<size_t>(threads / kLanes);
  products().warps.assign(warps, Warp());
  products().steps.assign((warps + kWarps - 1) / kWarps, {});
}

void end_block_of_products() {
  auto& [warps, steps] = products();
  for (size_t w = 0; w < warps.size(); ++w) {
    if (!warps[w].products.empty())
      fail("warp " + std::to_string(w) + " has left without waiting for the product of " +
           place(warps[w].products.front().where));
    const auto& all = steps[w / kWarps];
    if (warps[w].steps < all.size())
      fail("the warps of a warpgroup part: warp " + std::to_string(w) +
           " has left, where another was at " + place(all[warps[w].steps].where));
  }
}

}  // namespace emulator
