#include "train/lessons/exercises/checks/checks.h"

namespace ink {
namespace embedding_check {

using Backward = Tensor (*)(const Tensor&, const Tensor&, int64_t);

// inputs: dy, ids, weight
Answer of_table(Backward f) {
  return [f](const Tensors& in) -> Tensors { return {f(in[0], in[1], in[2].size(0))}; };
}

Tensors expected(const Tensors& in) {
  const auto forward = [](const Tensors& x) {
    return x[2].index_select(0, x[1].reshape({-1})).reshape(x[0].shape());
  };
  return {difference(forward, in, 2, in[0])};
}

// As the solution, but `put` decides what a row of dy does to the row of its id.
template <class Put>
Tensor rows_put(const Tensor& dy, const Tensor& ids, int64_t rows, Put put) {
  const Tensor dy_rows = dy.reshape({ids.numel(), dy.size(-1)});
  const Tensor dweight = zeros({rows, dy.size(-1)}, f64);
  int64_t i = 0;
  for (const int64_t id : ids.reshape({-1}).tolist<int64_t>())
    put(dweight.select(0, id), dy_rows.select(0, i++), id);
  return dweight;
}
Answer mistake(void (*put)(Tensor row, const Tensor& d, int64_t id)) {
  return
      [put](const Tensors& in) -> Tensors { return {rows_put(in[0], in[1], in[2].size(0), put)}; };
}
void add(Tensor row, const Tensor& d, int64_t) { row.add_(d); }

Tensor averaged(const Tensor& dy, const Tensor& ids, int64_t rows) {
  const Tensor counts = sum(one_hot(ids.reshape({-1}), rows), {0}).to(f64);
  return rows_put(dy, ids, rows, add) / maximum(counts, ones({rows}, f64)).unsqueeze(1);
}

Case of(const std::string& name, const Shape& dy, const Tensor& ids) {
  return {name, {noise(1, dy), ids, noise(2, {5, 3})}};
}

}  // namespace embedding_check

Exercise embedding_exercise(embedding_check::Backward embedding_backward) {
  using namespace embedding_check;
  return {"04_embedding",
          "lesson 7",
          {"The forward copies row ids[i] of weight to row i of the output. Where does row i of "
           "dy go?",
           "Begin with zeros({rows, C}). Then add each row of dy to the row of dweight that its "
           "id names.",
           "Adding is what makes repeated ids right: for row i, dweight.select(0, "
           "id).add_(dy.select(0, i)), with the ids from ids.tolist<int64_t>()."},
          {"autograd/ops/embedding.cpp", "void embedding_backward(",
           "Several threads may not add to one row at once, and atomic additions would give "
           "other last bits in each run. So the threads share out what they write instead of "
           "what they read."},
          {{"embedding_backward",
            {"dweight"},
            of_table(embedding_backward),
            expected,
            {of("each id once", {3, 3}, tensor({4, 0, 2})),
             of("an id three times", {4, 3}, tensor({1, 3, 1, 1})),
             of("a single id", {1, 3}, tensor({2})),
             of("ids (B, T)", {2, 2, 3}, tensor({{0, 1}, {1, 4}})),
             {"dy is not contiguous",
              {transposed_in_memory(noise(1, {3, 3})), tensor({3, 3, 0}), noise(2, {5, 3})}},
             of("no ids at all", {0, 3}, zeros({0}, i64))},
            {{mistake([](Tensor row, const Tensor& d, int64_t) { row.copy_(d); }),
              "Only the last use of a repeated id counts here. Add its gradients; do not assign."},
             {of_table(averaged),
              "Gradients of a repeated id are averaged here. They are added: it was used twice."},
             {mistake([](Tensor row, const Tensor& d, int64_t id) {
                if (id > 0) row.add_(d);
              }),
              "Row 0 gets nothing here. Token 0 is a token like any other."},
             {answer([](const Tensor& dy) { return dy; }),
              "dweight has the shape of the table, (rows, C). This is the gradient of y."}}}}};
}

}  // namespace ink
