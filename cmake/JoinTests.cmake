# Writes OUTPUT, one file of the test files SOURCES. Each is in a namespace of its own within ink,
# so that names in two of them never meet. The compiler names the files and lines as they are.
set(joined "")
foreach(source IN LISTS SOURCES)
  get_filename_component(name "${source}" NAME_WE)
  file(READ "${source}" text)
  if(NOT text MATCHES "\nnamespace ink {\n.*\n}  // namespace ink\n")
    message(FATAL_ERROR "${source}: expected lines 'namespace ink {' and '}  // namespace ink'")
  endif()
  string(REPLACE "\nnamespace ink {\n" "\nnamespace ink { namespace in_${name} {\n" text "${text}")
  string(REPLACE "\n}  // namespace ink\n" "\n}}  // namespace ink\n" text "${text}")
  string(APPEND joined "#line 1 \"${source}\"\n${text}\n")
endforeach()
file(WRITE "${OUTPUT}" "${joined}")
