// Pictures of graphs, for people.
#pragma once

#include <string>

#include "autograd/io/serialize.h"
#include "autograd/tensor.h"

namespace ink {

/// The graph behind y as indented text: a line per node with its op and output shape, and its
/// inputs below it. A node that is used several times is written once and numbered. sum(exp(x) *
/// exp(x)):
///
///   sum ()
///     mul (3,)
///       [1] exp (3,)
///         x (3,)
///       [1] exp, above
///
/// Inputs that do not require grad are left out. Leaves get their names from a list such as
/// Module::named_parameters(); a leaf that is not in the list is called "leaf".
std::string print_graph(const Tensor& y, const NamedTensors& names = {});

/// The same for Graphviz: `dot -Tsvg` draws it from the leaves (boxes) up. Edges carry the shapes
/// of the tensors.
std::string to_dot(const Tensor& y, const NamedTensors& names = {});

}  // namespace ink
