#include "autograd/base/check.h"

#include <ios>
#include <sstream>

namespace ink {

std::string detail::joined(std::initializer_list<Piece> pieces) {
  std::ostringstream text;
  text << std::boolalpha;
  for (const Piece& piece : pieces) text << piece;
  return text.str();
}

}  // namespace ink
