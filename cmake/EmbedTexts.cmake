# Writes OUTPUT, C++ with the FUNCTION, declared in HEADER, that gives the texts of SOURCES by their
# file names. Those of C++ and CUDA go without the extension.
set(entries "")
foreach(source IN LISTS SOURCES)
  get_filename_component(name "${source}" NAME)
  string(REGEX REPLACE "\\.(cpp|cu)$" "" name "${name}")
  file(READ "${source}" text)
  string(FIND "${text}" ")~~\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${source} holds )~~\", which ends a text here")
  endif()
  string(APPEND entries "      {\"${name}\", R\"~~(${text})~~\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "#include <map>
#include <string>

#include \"${HEADER}\"

namespace ink {

std::string ${FUNCTION}(const std::string& name) {
  static const std::map<std::string, std::string> texts = {
${entries}  };
  return texts.at(name);
}

}  // namespace ink
")
