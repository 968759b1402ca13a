// Every public op, in three pages:
//
//   basic_ops.h   arithmetic, comparisons, sums, views, copies, products, random values
//   fused_ops.h   linear, softmax, norms, dropout, embedding, losses, attention
//   more_ops.h    all others
//
// A new op is declared here, because only its own file, its row and programs include this page, and
// have to be compiled again.
#pragma once

#include "autograd/basic_ops.h"
#include "autograd/fused_ops.h"
#include "autograd/more_ops.h"

namespace ink {

// ---- new ops; one that others are written with moves to a page above

}  // namespace ink
