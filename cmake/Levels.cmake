# One portable build, fast on every x86-64: inkling_autograd, which holds the CPU's kernels, becomes
# a shared library that is compiled once more for each level of the architecture (v3: AVX2 and FMA,
# v4: AVX-512). All have one name. The faster ones lie in glibc-hwcaps/LEVEL/ beside the library for
# any x86-64, and the loader (glibc 2.33 or newer) takes the best that the processor runs. What else
# is compiled is for any x86-64, so no instruction of a higher level gets into a program by way of a
# header.
include(CheckCXXCompilerFlag)
include(GNUInstallDirs)

set(library_type)  # BUILD_SHARED_LIBS says
set(autograd_levels)
if(INKLING_LEVELS AND NOT INKLING_NATIVE AND NOT INKLING_STATIC
   AND CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  check_cxx_compiler_flag(-march=x86-64-v4 INKLING_COMPILER_KNOWS_LEVELS)  # GCC 11, Clang 12
  if(INKLING_COMPILER_KNOWS_LEVELS)
    set(library_type SHARED)
    set(autograd_levels x86-64-v3 x86-64-v4)
  endif()
endif()

# inkling_add_levels(): inkling_autograd, as it is now, once more for each level.
function(inkling_add_levels)
  # It calls its own functions, also those of headers that a program has copies of.
  target_compile_options(inkling_autograd PRIVATE -fno-semantic-interposition)
  target_link_options(inkling_autograd PRIVATE LINKER:-Bsymbolic-functions)
  foreach(level IN LISTS autograd_levels)
    set(name inkling_autograd_${level})
    add_library(${name} SHARED)
    foreach(property SOURCES INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_FEATURES
                     COMPILE_OPTIONS LINK_LIBRARIES LINK_OPTIONS PRECOMPILE_HEADERS
                     UNITY_BUILD UNITY_BUILD_BATCH_SIZE)
      get_property(value TARGET inkling_autograd PROPERTY ${property})
      set_property(TARGET ${name} PROPERTY ${property} "${value}")
    endforeach()
    target_compile_definitions(${name} PRIVATE INKLING_LEVEL="${level}")
    target_compile_options(${name} PRIVATE -march=${level}
                           $<$<STREQUAL:${level},x86-64-v4>:-mprefer-vector-width=512>)
    set_target_properties(${name} PROPERTIES
                          OUTPUT_NAME inkling_autograd INSTALL_RPATH $ORIGIN/../..
                          LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/glibc-hwcaps/${level})
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/glibc-hwcaps/${level})
    add_dependencies(inkling_autograd ${name})
  endforeach()
  target_compile_definitions(inkling_autograd PRIVATE INKLING_LEVEL="x86-64")
  set_target_properties(inkling_autograd PROPERTIES
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
endfunction()
