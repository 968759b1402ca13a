// Rows of a table (V, C) by ids: the twins of autograd/ops/embedding.cpp.
//   y[i]          = weight[ids[i]]
//   dweight[v]    = sum of dy[i] over all i with ids[i] = v
#include "cuda/ids.cuh"
#include "cuda/rows.cuh"
#include "cuda/sort.cuh"

namespace ink::cuda {
namespace {

// A thread takes N neighbours of a row. An id out of range gives zeros until the host hears of it.
template <class T, int N>
struct Embedding {
  static constexpr int kThreads = 256;
  T* y;
  const T* weight;
  const int64_t* ids;
  int64_t packs, count;  // of a row; of all rows
  IdCheck in_range;

  __device__ void operator()() const {
    const int64_t i = global_thread();
    if (i >= count) return;
    const int64_t row = i / packs, id = ids[row], from = id * packs + (i - row * packs);
    Pack<T, N> values{};
    if (in_range(id, row)) values = reinterpret_cast<const Pack<T, N>*>(weight)[from];
    reinterpret_cast<Pack<T, N>*>(y)[i] = values;
  }
};

// Tokens in the order of their ids, and of their positions where ids are equal. Runs of one id are
// summed in chunks of kChunk tokens, so that a few ids that many tokens share are as much work for
// the card as many. What lies within a chunk is added to the table at once; a run that goes on over
// chunks leaves a sum in each.
constexpr int64_t kChunk = 32;

template <class T>
struct Runs {
  static constexpr int kThreads = 128;
  using C = compute_t<T>;
  C* dweight;
  C* parts;  // (chunks, 2, columns): of the run that came into a chunk; of the one that leaves it
  const T* dy;
  const int64_t *ids, *positions;
  int64_t n, columns, table_rows;

  __device__ int64_t column() const {
    return static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  }
  __device__ int64_t begin(int64_t chunk) const { return chunk * kChunk; }
  __device__ int64_t end(int64_t chunk) const {
    const int64_t after = begin(chunk) + kChunk;
    return after < n ? after : n;
  }
  /// Are tokens i - 1 and i there, and of one run?
  __device__ bool joined(int64_t i) const { return i > 0 && i < n && ids[i - 1] == ids[i]; }
  __device__ void add(int64_t id, C sum) const {
    if (id >= 0 && id < table_rows) dweight[id * columns + column()] += sum;
  }
};

template <class T>
struct SumRuns : Runs<T> {
  using C = compute_t<T>;
  __device__ void operator()() const {
    if (this->column() >= this->columns) return;
    const int64_t chunk = blockIdx.x, end = this->end(chunk);
    C* part = this->parts + 2 * chunk * this->columns + this->column();
    bool came_in = this->joined(this->begin(chunk));
    C sum = 0;
    for (int64_t i = this->begin(chunk); i < end; ++i) {
      sum += static_cast<C>(this->dy[this->positions[i] * this->columns + this->column()]);
      if (i + 1 < end && this->joined(i + 1)) continue;
      if (came_in) {
        part[0] = sum;
      } else if (this->joined(i + 1)) {
        part[this->columns] = sum;
      } else {
        this->add(this->ids[i], sum);
      }
      came_in = false;
      sum = 0;
    }
  }
};

// The chunk in which a run begins that goes on collects what the others have of it, in order.
template <class T>
struct JoinRuns : Runs<T> {
  using C = compute_t<T>;
  __device__ void operator()() const {
    const int64_t chunk = blockIdx.x, after = this->end(chunk);
    if (this->column() >= this->columns || !this->joined(after)) return;
    const int64_t id = this->ids[after - 1], begin = this->begin(chunk);
    if (begin > 0 && this->ids[begin - 1] == id) return;  // it came in
    C sum = this->parts[(2 * chunk + 1) * this->columns + this->column()];
    for (int64_t k = chunk + 1; this->joined(this->begin(k)) && this->ids[this->begin(k)] == id;
         ++k)
      sum += this->parts[2 * k * this->columns + this->column()];
    this->add(id, sum);
  }
};

}  // namespace

void embedding(Tensor& y, const Tensor& ids, const Tensor& weight) {
  for_float("embedding", weight.dtype(), [&]<class T>(T) {
    T* out = y.mutable_data<T>();
    const T* table = weight.data<T>();
    const int64_t columns = weight.size(1);
    const IdCheck in_range("embedding", "id", weight.size(0), "rows");
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const Embedding<T, N> kernel{out,         table,         ids.data<int64_t>(),
                                   columns / N, y.numel() / N, in_range};
      launch("embedding", blocks_for(kernel.count, kernel.kThreads), kernel);
    };
    constexpr int kWide = 16 / sizeof(T);
    if (columns % kWide == 0 && are_aligned({out, table})) {
      run(std::integral_constant<int, kWide>());
    } else {
      run(std::integral_constant<int, 1>());
    }
  });
}

void embedding_backward(Tensor& dweight, const Tensor& dy, const Tensor& ids) {
  const int64_t n = ids.numel(), columns = dy.size(-1), chunks = (n + kChunk - 1) / kChunk;
  if (n == 0 || columns == 0) return;
  Tensor sorted = empty({n}, ids.options()), positions = empty_like(sorted);
  sort_ids(sorted, positions, ids, dweight.size(0));
  Tensor parts = empty({chunks, 2, columns}, dweight.options());
  for_float("embedding_backward", dy.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const Runs<T> runs{dweight.mutable_data<C>(),
                       parts.mutable_data<C>(),
                       dy.data<T>(),
                       sorted.data<int64_t>(),
                       positions.data<int64_t>(),
                       n,
                       columns,
                       dweight.size(0)};
    const Blocks blocks(chunks, blocks_for(columns, Runs<T>::kThreads));
    launch("embedding_backward", blocks, SumRuns<T>{runs});
    launch("embedding_backward", blocks, JoinRuns<T>{runs});
  });
}

}  // namespace ink::cuda
