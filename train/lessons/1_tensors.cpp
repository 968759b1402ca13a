// Tensors: shapes, strides, views and broadcasting
//
// A tensor is a block of numbers in memory, and a way to look at it. Afterwards you can say whether
// an op copies numbers or only looks at them in another way, and which shapes fit together.
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

    // In memory the numbers lie side by side: 0 1 2 3 4 5. Strides say how far away the next row
    // and the next column are: 3 and 1. So element (1, 2) lies at 1 * 3 + 2 * 1 = 5.
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

    // Rows, columns and slices are views, too. What is written through a view is seen in x, and
    // in all other views of x.
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

    // Row by row, the transpose reads 0 3 1 4 2 5. No stride leads through memory in that order.
    // So view refuses, and reshape makes a copy.
    const Tensor t = x.transpose(0, 1);
    print(message_of([&] { t.view({6}); }));
    const Tensor copy = t.reshape({6});
    print(copy, "is a view:", copy.is_view());

    // A tensor is contiguous if its elements, row by row, lie side by side. contiguous() makes a
    // copy where they do not.
    print(x.is_contiguous(), t.is_contiguous(), t.contiguous().is_contiguous());
  }

  // ---- 4. Broadcasting
  //
  // Two shapes are compared from the right. Sizes must be equal, or one of them 1 or missing. Along
  // a size of 1, the same number is used again and again.

  void step_4() {
    const Tensor column = tensor({{0.0}, {10.0}}), row = tensor({1.0, 2.0, 3.0});
    print(tuple(column.shape()), "+", tuple(row.shape()), "gives");
    print(column + row);

    // "Used again" means a stride of 0. expand shows it: two rows, in the memory of one.
    const Tensor expanded = row.expand({2, 3});
    print("strides", tuple(expanded.strides()));

    // A common mistake: the means of the rows have the shape (2,), which does not fit (2, 3).
    // They fit if the reduced dimension is kept, with size 1: the argument keepdim.
    const Tensor x = arange(6.0).reshape({2, 3});
    print(message_of([&] { x - mean(x, {1}); }));
    print(x - mean(x, {1}, true));
  }

  // ---- 5. Choosing elements: views and copies

  void step_5() {
    // Integers and slices choose elements at equal distances, so the result is a view.
    const Tensor x = arange(12).reshape({3, 4});
    const Tensor corner = x.index({Slice(None, 2), Slice(None, None, 2)});
    print(corner, "strides", tuple(corner.strides()));

    // Ids and masks choose any elements, so the result is a copy.
    print(x.index({tensor({2, 0})}));
    print(x.index({x % 5 == 0}));

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
