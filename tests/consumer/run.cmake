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
endforeach()

function(configure source build)
  step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${source} -B ${build}
       -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX}
       -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=${FLAGS}")
endfunction()
configure(${SOURCE} ${WORK}/build)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure)

configure(${EXAMPLES} ${WORK}/examples)
step(${CMAKE_COMMAND} --build ${WORK}/examples --target two_moons)
step(${WORK}/examples/two_moons)
