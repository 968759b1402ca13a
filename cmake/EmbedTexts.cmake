# Writes OUTPUT, C++ with the FUNCTION, declared in HEADER, that gives the texts of SOURCES by their
# names without extension.
set(entries "")
foreach(source IN LISTS SOURCES)
  get_filename_component(name "${source}" NAME_WE)
  file(READ "${source}" text)
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
