// Tensors: shapes, strides, views and broadcasting
//
// A tensor is a block of numbers in memory and a way to look at it. Afterwards you can say of any
// op whether it copies numbers or only looks at them otherwise, and why two shapes fit together.
#include "autograd/basic_ops.h"
#include "train/lessons/notebook.h"

namespace ink {
namespace {

struct Lesson1 : Notebook {
  // ---- 1. A shape and strides over one block of memory

  void step_1() {
    const Tensor x = arange(6.0).reshape({2, 3});
    print(x);
    print("shape", tuple(x.shape()), "strides", tuple(x.strides()), "dtype", name_of(x.dtype()));

    // The numbers lie in memory in one row: 0 1 2 3 4 5. Strides say how far to move in it: 3 for
    // the next row, 1 for the next column. So element (1, 2) lies at 1 * 3 + 2 * 1 = 5.
    const float* memory = x.data<float>();
    print("element (1, 2) is", fixed(memory[1 * x.strides()[0] + 2 * x.strides()[1]], 1));
  }

  // ---- 2. A view is the same memory with other strides

  void step_2() {
    // A transpose swaps sizes and strides. No number moves.
    Tensor x = arange(6.0).reshape({2, 3});
    const Tensor t = x.transpose(0, 1);
    print(t);
    print("strides", tuple(t.strides()), "same memory:", t.data<float>() == x.data<float>());

    // Rows, columns and slices are views, too. A column of x has stride 3. What is written through
    // a view is seen in x, and in all of its other views.
    Tensor column = x.index({Slice(), 1});
    print("a column has shape", tuple(column.shape()), "and strides", tuple(column.strides()));
    column.fill_(-1);
    print(x);
    print(t.index({1}));

    // A clone has memory of its own.
    Tensor copy = x.clone();
    copy.zero_();
    print("largest of x, after its clone was zeroed:", fixed(max(x).item(), 1));
  }

  // ---- 3. view and reshape

  void step_3() {
    // Neighbours in memory can be grouped in other ways, so this is a view. The -1 stands for
    // whatever size is left.
    const Tensor x = arange(6.0).reshape({2, 3});
    print(x.view({3, -1}));

    // Read row by row, the transpose is 0 3 1 4 2 5. No single stride leads through memory in that
    // order. view refuses it, and reshape makes a copy.
    const Tensor t = x.transpose(0, 1);
    print(message_of([&] { t.view({6}); }));
    const Tensor copy = t.reshape({6});
    print(copy, "is a view:", copy.is_view());

    // A tensor whose strides are those of its shape is called contiguous.
    print(x.is_contiguous(), t.is_contiguous(), t.contiguous().is_contiguous());
  }

  // ---- 4. Broadcasting
  //
  // Two shapes are compared from the right. Sizes must be equal, or one of them 1, or missing. Along
  // a size of 1 the same number is used again and again.

  void step_4() {
    const Tensor column = tensor({{0.0}, {10.0}}), row = tensor({1.0, 2.0, 3.0});
    print(tuple(column.shape()), "+", tuple(row.shape()), "gives");
    print(column + row);

    // "Used again" is a stride of 0: expand makes two rows of one, and takes no memory for it.
    const Tensor expanded = row.expand({2, 3});
    print("strides", tuple(expanded.strides()));

    // A mistake to know: the mean of each row has the shape (2,), which does not fit (2, 3). If
    // the mean keeps its dimension, with size 1, it does.
    const Tensor x = arange(6.0).reshape({2, 3});
    print(message_of([&] { x - mean(x, {1}); }));
    print(x - mean(x, {1}, true));
  }

  // ---- 5. Choosing elements: views and copies

  void step_5() {
    // Integers and slices choose at equal distances, so the result is a view.
    const Tensor x = arange(12).reshape({3, 4});
    const Tensor corner = x.index({Slice(None, 2), Slice(None, None, 2)});
    print(corner, "strides", tuple(corner.strides()));

    // Ids and masks choose anything, so the result is a copy.
    print(x.index({tensor({2, 0})}));
    print(x.index({x % 5 == 0}));

    // To try: predict shape and strides of x.index({Slice(), None, 1}), and of
    // x.permute({1, 0}).index({2}), before you print them. Then find a view of x whose reshape is a
    // view again, though it is not contiguous.
  }
};

}  // namespace

Lesson lesson_1() {
  using N = Lesson1;
  return lesson<N>("1_tensors", {&N::step_1, &N::step_2, &N::step_3, &N::step_4, &N::step_5});
}

}  // namespace ink
