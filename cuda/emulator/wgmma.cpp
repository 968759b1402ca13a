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

#include "autograd/base/check.h"

namespace emulator {
namespace {

constexpr unsigned kLanes = 32, kRows = 16, kInner = 16, kWarps = 4;  // kWarps: of a warpgroup
constexpr float kPoison = std::bit_cast<float>(0x7fc0d00d);           // a NaN

struct Operands {
  float* d;
  const uint32_t* a;  // null: in shared memory
  uint64_t a_matrix, b_matrix;
  unsigned columns;
  bool by_columns, keep;
};
struct Product {
  std::array<Operands, kLanes> lanes;
  int group;
  std::string start;           // its place
  std::vector<uint32_t> read;  // bits of a's kRows x kInner floats, then b's kInner x columns
  std::vector<float> sums;     // kRows x columns
};
struct Warp {
  std::deque<Product> products;    // in flight
  int groups = 0;                  // that were made
  uint32_t ready = 0;              // lanes that may start products
  std::vector<std::string> steps;  // instructions issued
};
std::vector<Warp> warps;

Warp& this_warp() {
  if (warps.empty()) warps.resize(blockDim.x / kLanes);
  return warps[threadIdx.x / kLanes];
}

// All warps of a warpgroup must issue the same instructions.
void follow(const std::string& step) {
  this_warp().steps.push_back(step);
  const size_t mine = threadIdx.x / kLanes, at = warps[mine].steps.size() - 1;
  for (size_t w = mine / kWarps * kWarps; w < mine / kWarps * kWarps + kWarps; ++w)
    INK_CHECK(w < warps.size() && (warps[w].steps.size() <= at || warps[w].steps[at] == step),
              in_launch(), "the warps of a warpgroup part: warp ", mine, " is at ", step,
              ", and warp ", w, " is not");
}

// Appends the transpose (kInner x rows) of a matrix in shared memory, from row `first` on.
// by_columns: its inner dimension runs from row to row. (PTX ISA, "Matrix descriptor" and
// "Strides", where by_columns is "MN-major".)
void read(std::vector<uint32_t>& to, uint64_t matrix, bool by_columns, unsigned first,
          unsigned rows) {
  const auto field = [&](int bit) { return static_cast<unsigned>(matrix >> bit & 0x3fff) * 16; };
  const unsigned start = field(0), panel = field(16), group = field(32);  // group: of 8 rows
  const auto expect = [&](bool holds, const char* rule) {
    INK_CHECK(holds, in_launch(), "a product of the matrix at byte ", start,
              " of shared memory: expected ", rule);
  };
  expect(matrix >> 62 == 1 && (matrix & 0x3fffc000c000c000) == 0, "128-byte swizzling");
  expect(start / 128 % 8 == 0, "a first row aligned to 1024 bytes");
  expect(start % 128 <= (by_columns ? 0 : 96), "columns that do not leave rows of 128 bytes");
  expect(group % 1024 == 0 && (!by_columns || rows <= 64 || panel % 1024 == 0),
         "groups of rows and panels aligned to 1024 bytes");
  const size_t begin = to.size();
  to.resize(begin + kInner * rows);
  for (unsigned chunk = 0; chunk < kInner * rows / 8; ++chunk) {  // of 16 bytes
    const unsigned k = by_columns ? chunk / (rows / 8) : chunk % 2 * 8,
                   row = by_columns ? chunk % (rows / 8) * 8 : chunk / 2, r = first + row;
    const unsigned at =
        start + (by_columns ? r / 64 * panel + r % 64 * 2 + k / 8 * group + k % 8 * 128
                            : r / 8 * group + r % 8 * 128 + k * 2);
    std::array<uint16_t, 8> eight;
    std::memcpy(eight.data(), published(at ^ at / 128 % 8 * 16), sizeof eight);
    for (unsigned e = 0; e < 8; ++e)
      to[begin + (by_columns ? k * rows + row + e : (k + e) * rows + row)] = uint32_t{eight[e]}
                                                                             << 16;
  }
}

// The bits of all that a product reads.
std::vector<uint32_t> read(const Product& p) {
  const Operands& one = p.lanes[0];
  std::vector<uint32_t> bits;
  if (one.a == nullptr) {
    read(bits, one.a_matrix, false, threadIdx.x / kLanes % kWarps * kRows, kRows);
  } else {
    for (unsigned i = 0; i < kInner * kRows; ++i) {
      const unsigned k = i / kRows, row = i % kRows;
      const uint32_t pair = p.lanes[row % 8 * 4 + k % 8 / 2].a[k / 8 * 2 + row / 8];
      bits.push_back(k % 2 ? pair & 0xffff0000u : pair << 16);
    }
  }
  read(bits, one.b_matrix, one.by_columns, 0, one.columns);
  return bits;
}

// f(sum, its register) for all sums.
template <class F>
void each_sum(Product& p, F&& f) {
  for (unsigned i = 0; i < p.sums.size(); ++i) {
    const unsigned row = i / p.lanes[0].columns, n = i % p.lanes[0].columns;
    f(p.sums[i], p.lanes[row % 8 * 4 + n % 8 / 2].d[n / 8 * 4 + row / 8 * 2 + n % 2]);
  }
}

// sums += a row. Unchecked: under a sanitizer it would be most of what a product takes.
[[gnu::no_sanitize_address]] void add_row(float* sums, float a, const uint32_t* row,
                                          unsigned columns) {
  for (unsigned n = 0; n < columns; ++n) sums[n] += a * std::bit_cast<float>(row[n]);
}

// Ends the first product of a warp.
void finish(std::deque<Product>& products) {
  Product p = std::move(products.front());
  products.pop_front();
  const auto expect = [&](bool holds, const char* what) {
    INK_CHECK(holds, in_launch(), what,
              " of a product changed before its end was waited for: ", p.start);
  };
  expect(read(p) == p.read, "an operand");
  const unsigned columns = p.lanes[0].columns;
  for (unsigned r = 0; r < kRows; ++r) {
    float* sums = p.sums.data() + r * columns;
    if (!p.lanes[0].keep) std::fill_n(sums, columns, 0.0f);
    for (unsigned k = 0; k < kInner; ++k)
      add_row(sums, std::bit_cast<float>(p.read[k * kRows + r]),
              p.read.data() + kInner * kRows + k * columns, columns);
  }
  for (Product& next : products)
    if (next.lanes[0].d == p.lanes[0].d) return next.sums.swap(p.sums);
  each_sum(p, [&](float sum, float& own) {
    expect(std::bit_cast<uint32_t>(own) == std::bit_cast<uint32_t>(kPoison), "a sum");
    own = sum;
  });
}

}  // namespace

// Lane 0 goes on first after an exchange, and works for all.
void start_product(float* d, int columns, const uint32_t* a, uint64_t a_matrix, uint64_t b_matrix,
                   bool by_columns, bool keep, Where where) {
  const Operands mine{d, a, a_matrix, b_matrix, static_cast<unsigned>(columns), by_columns, keep};
  const unsigned char* all = exchange(Collective::product, &mine, sizeof mine, where);
  if (threadIdx.x % kLanes != 0) return;
  Warp& warp = this_warp();
  Product p{{}, warp.groups, place(where), {}, {}};
  for (unsigned i = 0; i < kLanes; ++i) {
    const Operands& lane = p.lanes[i] = from_lane<Operands>(all, i);
    INK_CHECK(lane.a_matrix == a_matrix && lane.b_matrix == b_matrix && lane.keep == keep,
              in_launch(), "the lanes of a warp start different products: ", p.start);
  }
  INK_CHECK(capability() / 10 == 9, in_launch(), "wgmma needs a card of compute capability 9.0");
  INK_CHECK(warp.ready == ~0u, in_launch(), "a product without before_products() since the last ",
            "wait: ", p.start);
  follow(p.start + " with " + std::to_string(a_matrix) + ", " + std::to_string(b_matrix) +
         (keep ? " and sums" : ""));
  p.read = read(p);
  const auto same_sums = [&](const Product& other) { return other.lanes[0].d == d; };
  if (std::none_of(warp.products.begin(), warp.products.end(), same_sums)) {
    p.sums.resize(kRows * mine.columns);
    each_sum(p, [](float& sum, float& own) { sum = std::exchange(own, kPoison); });
  }
  warp.products.push_back(std::move(p));
}

void may_start_products() { this_warp().ready |= 1u << threadIdx.x % kLanes; }

void end_products(Where where) {
  exchange(Collective::product, nullptr, 0, where);
  if (threadIdx.x % kLanes != 0) return;
  follow(place(where));
  ++this_warp().groups;
}

void wait_for_products(int groups_left, Where where) {
  exchange(Collective::late, nullptr, 0, where);
  if (threadIdx.x % kLanes != 0) return;
  follow(place(where) + " for all but " + std::to_string(groups_left));
  Warp& warp = this_warp();
  warp.ready = 0;
  while (!warp.products.empty() && warp.products[0].group < warp.groups - groups_left)
    finish(warp.products);
}

void end_block_of_products(bool failed) {
  const std::vector<Warp> ended = std::exchange(warps, {});
  for (size_t w = 0; w < ended.size() && !failed; ++w) {
    INK_CHECK(ended[w].products.empty(), in_launch(), "warp ", w,
              " has left without a wait for its product: ", ended[w].products[0].start);
    INK_CHECK(ended[w].steps.size() == ended[w / kWarps * kWarps].steps.size(), in_launch(),
              "the warps of a warpgroup part: warp ", w, " has left, and another goes on");
  }
}

}  // namespace emulator
