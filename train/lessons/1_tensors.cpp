// Tensors: shapes, strides, views and broadcasting
//
// A tensor is a block of numbers in memory, and a way to look at it. Afterwards you can say which
// ops copy numbers, which only look at them in another way, and which shapes fit together.
#include "autograd/basic_ops.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson1 : Notebook {
  // ---- 1. A shape and strides over one block of memory

  void step_1() {
    // A shape has one size per dimension: here two rows and three columns. Tensors print as in
    // PyTorch.
    const Tensor x = arange(6.0).reshape({2, 3});  // arange counts from 0
    print(x);
    print("shape", tuple(x.shape()), "strides", tuple(x.strides()), "dtype", name_of(x.dtype()));

    // In memory the numbers lie side by side: 0 1 2 3 4 5. A stride is the distance, in elements,
    // to the next index of a dimension: 3 to the next row, 1 to the next column. So element (1, 2)
    // lies at 1 * 3 + 2 * 1 = 5.
    const float* memory = x.data<float>();
    print("element (1, 2) is", fixed(memory[1 * x.strides()[0] + 2 * x.strides()[1]], 1));
  }

  // ---- 2. A view is the same memory with other strides

  void step_2() {
    // A transpose swaps the two sizes and the two strides. No number moves.
    Tensor x = arange(6.0).reshape({2, 3});
    const Tensor t = x.transpose(0, 1);
    print(t);
    print("strides", tuple(t.strides()), "same memory:", t.data<float>() == x.data<float>());

    // Rows, columns and slices are views, too. A write through a view changes x and all other views
    // of x. (Ops whose names end in _ write in place.)
    Tensor column = x.index({Slice(), 1});  // in Python: x[:, 1]
    print("a column has shape", tuple(column.shape()), "and strides", tuple(column.strides()));
    column.fill_(-1);
    print(x);
    print("row 1 of t is", t[1]);

    // A clone has memory of its own.
    Tensor copy = x.clone();
    copy.zero_();
    print("largest of x, after its clone was zeroed:", fixed(max(x).item(), 1));
  }

  // ---- 3. view and reshape

  void step_3() {
    // view reads the same elements, in the same order, in another shape. One size may be -1: it
    // follows from the others.
    const Tensor x = arange(6.0).reshape({2, 3});
    print(x.view({3, -1}));

    // Row by row, the transpose reads 0 3 1 4 2 5. No single stride leads through memory in that
    // order. So view refuses, and reshape makes a copy. (message_of gives the text of an error.)
    const Tensor t = x.transpose(0, 1);
    print(message_of([&] { t.view({6}); }));
    const Tensor copy = t.reshape({6});
    print(copy, "is a view:", copy.is_view());

    // A tensor is contiguous if its elements, read row by row, lie side by side in memory.
    // contiguous() copies those of any other tensor.
    print("x:", x.is_contiguous(), "t:", t.is_contiguous());
    print("t.contiguous():", t.contiguous().is_contiguous());
  }

  // ---- 4. Broadcasting
  //
  // Ops on two tensors compare their shapes from the right. Two sizes fit if they are equal, or if
  // one of them is 1 or missing. Along such a dimension, the same numbers are used again and again.

  void step_4() {
    const Tensor column = tensor({{0.0}, {10.0}}), row = tensor({1.0, 2.0, 3.0});
    print("shapes", tuple(column.shape()), "and", tuple(row.shape()));
    print(column + row);

    // expand shows how: a stride of 0 makes two rows in the memory of one.
    print("strides", tuple(row.expand({2, 3}).strides()));

    // Here is a common mistake. The means of the rows of x have the shape (2,), which does not fit
    // (2, 3). With keepdim, mean keeps the dimension that it averages over, with size 1, and (2, 1)
    // fits.
    const Tensor x = arange(6.0).reshape({2, 3});
    print(message_of([&] { x - mean(x, {1}); }));
    print(x - mean(x, {1}, /*keepdim=*/true));
  }

  // ---- 5. Choosing elements: views and copies

  void step_5() {
    // Integers and slices choose elements at equal distances, so the result is a view.
    const Tensor x = arange(12).reshape({3, 4});
    const Tensor corner = x.index({Slice(None, 2), Slice(None, None, 2)});  // x[:2, ::2]
    print(corner);
    print("strides", tuple(corner.strides()));

    // A tensor of row numbers, or a mask of true and false, can choose any elements. So the result
    // is a copy.
    print(x[tensor({2, 0})]);
    print(x[x % 5 == 0]);

    // To try: predict shape and strides of x.index({Slice(), None, 1}) and of
    // x.permute({1, 0}).index({2}), and print them. Then find a view of x that is not contiguous,
    // but on which view({3, 1, 2}) works.
  }
};

}  // namespace

Lesson lesson_1() {
  using N = Lesson1;
  return lesson<N>("1_tensors", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
