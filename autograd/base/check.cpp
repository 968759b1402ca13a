#include "autograd/base/check.h"

#include <ios>

#include "autograd/base/text.h"

namespace ink {

std::string detail::joined(std::initializer_list<Piece> pieces) {
  TextStream text;
  text << std::boolalpha;
  for (const Piece& piece : pieces) piece.print(text);
  return text.str();
}

}  // namespace ink
