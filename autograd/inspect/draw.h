// Pictures of graphs, for people.
#pragma once

#include <string>

#include "autograd/io/serialize.h"
#include "autograd/tensor.h"

namespace ink {

/// The graph behind y as indented text: a line per node, its op and output shape, its inputs below
/// it. What is used several times is written out once and numbered. sum(exp(x) * exp(x)):
///
///   sum ()
///     mul (3,)
///       [1] exp (3,)
///         x (3,)
///       [1] exp, above
///
/// Inputs that need no gradient are left out. Leaves get their names from a list such as
/// Module::named_parameters(); one that is not in it is "leaf".
std::string print_graph(const Tensor& y, const NamedTensors& names = {});

/// The same for Graphviz: `dot -Tsvg` draws it from the leaves (boxes) up, with the shapes of what
/// flows along the edges.
std::string to_dot(const Tensor& y, const NamedTensors& names = {});

}  // namespace ink
