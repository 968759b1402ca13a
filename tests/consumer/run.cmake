# cmake -DBUILD=... -DSOURCE=... -DEXAMPLES=... -DWORK=... -DGENERATOR=... -P run.cmake: installs
# inkling into WORK, and builds and runs the consumer and one of the examples against it, after
# moving what was installed. GENERATOR is the build's own, because the default of CMake needs make.
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(followed 0)
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)

# No macros but these two: others could clash with the user's.
file(GLOB_RECURSE headers ${WORK}/prefix/include/*.h)
if(NOT headers)
  message(FATAL_ERROR "No headers were installed")
endif()
foreach(header IN LISTS headers)
  file(STRINGS ${header} macros REGEX "^ *# *define ")
  list(FILTER macros EXCLUDE REGEX "define (INK_CHECK|INK_FIELDS)\\(")
  if(macros)
    message(FATAL_ERROR "${header} defines ${macros}")
  endif()
  # What it includes was installed, too.
  file(STRINGS ${header} includes REGEX "^#include \"")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"|\".*" "" included "${line}")
    if(NOT EXISTS ${WORK}/prefix/include/inkling/${included})
      message(FATAL_ERROR "${header} includes ${included}, which was not installed")
    endif()
  endforeach()
endforeach()

# Each folder with headers has its README beside them.
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  if(NOT EXISTS ${folder}/README.md)
    message(FATAL_ERROR "${folder}/README.md was not installed")
  endif()
endforeach()

# Every file that a README names in a link, or shows as a picture, was installed.
file(GLOB_RECURSE readmes ${WORK}/prefix/include/*.md)
foreach(readme IN LISTS readmes)
  get_filename_component(folder ${readme} DIRECTORY)
  file(READ ${readme} text)
  file(RELATIVE_PATH name ${WORK}/prefix/include/inkling ${readme})
  file(READ ${SOURCE}/../../${name} original)
  string(REGEX MATCHALL "```[^`]*```" code "${text}")
  string(REGEX MATCHALL "```[^`]*```" original_code "${original}")
  if(NOT code STREQUAL original_code)
    message(FATAL_ERROR "${readme}: its code was changed by the installation")
  endif()
  string(REGEX REPLACE "```[^`]*```" "" text "${text}")
  string(REPLACE "](" "src=\"" text "${text}")  # brackets would hold a list of CMake together
  string(REGEX MATCHALL "src=\"[A-Za-z0-9_./#-]+[\")]" links "${text}")
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^src=\"|#.*|[\")]$" "" target "${link}")
    if(NOT EXISTS ${folder}/${target})
      message(FATAL_ERROR "${readme}: ${target} was not installed")
    endif()
    math(EXPR followed "${followed} + 1")
  endforeach()
endforeach()
if(followed LESS 30)
  message(FATAL_ERROR "Only ${followed} links were found in the installed READMEs")
endif()

# The README of ops shows own_op to the letter.
file(READ ${WORK}/prefix/include/inkling/autograd/ops/README.md readme)
foreach(file own_op.cpp CMakeLists.txt)
  file(READ ${SOURCE}/own_op/${file} code)
  string(FIND "${readme}" "\n${code}```" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "autograd/ops/README.md differs from tests/consumer/own_op/${file}")
  endif()
endforeach()

function(build source folder)
  step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${source} -B ${WORK}/${folder}
       -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX}
       -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=${FLAGS}")
  step(${CMAKE_COMMAND} --build ${WORK}/${folder} ${ARGN})
endfunction()
build(${SOURCE} consumer)
step(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/consumer --output-on-failure)
build(${SOURCE}/own_op own_op)
step(${WORK}/own_op/own_op)
build(${EXAMPLES} examples --target two_moons)

# A component of a wrong name is named.
file(WRITE ${WORK}/misspelt/CMakeLists.txt "cmake_minimum_required(VERSION 3.22)
project(misspelt LANGUAGES CXX)
find_package(inkling REQUIRED COMPONENTS nn trian)
")
execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${WORK}/prefix
                        -DCMAKE_CXX_COMPILER=${CXX} -S ${WORK}/misspelt -B ${WORK}/misspelt/build
                RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
if(status EQUAL 0 OR NOT output MATCHES "It has no component trian\\.")
  message(FATAL_ERROR "A component that is not there: ${status}\n${output}")
endif()
step(${WORK}/examples/two_moons)
