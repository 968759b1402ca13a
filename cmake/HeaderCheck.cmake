# Target check_headers: headers as files of their own, so that none leans on what others include
# before it. A header that its own source file includes first is left out: tests/systems/syntax.sh
# compiles each source file alone, without precompiled headers.
find_package(GTest REQUIRED)
set(folders autograd nn data train cuda tests)
list(TRANSFORM folders APPEND /*.h OUTPUT_VARIABLE headers)
file(GLOB_RECURSE headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS
     ${headers} cuda/*.cuh)
list(FILTER headers EXCLUDE REGEX "^tests/(consumer|systems)/")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(REMOVE_ITEM headers autograd/gemm/pack.h)
endif()
set(header_sources)
foreach(header IN LISTS headers)
  string(REGEX REPLACE "\\.h$" ".cpp" own_source ${header})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${own_source})
    file(STRINGS ${own_source} includes REGEX "^#include" LIMIT_COUNT 1)
    if(includes STREQUAL "#include \"${header}\"")
      continue()
    endif()
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/check_headers/${header}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
  list(APPEND header_sources ${source})
  if(header MATCHES "^cuda/")  # as the emulator reads them
    set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS INKLING_EMULATED
      INCLUDE_DIRECTORIES ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulator)
  endif()
endforeach()
add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${header_sources})
target_include_directories(check_headers PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(check_headers PRIVATE inkling_driver_options OpenMP::OpenMP_CXX
                      nlohmann_json::nlohmann_json GTest::gtest)
target_compile_definitions(check_headers PRIVATE  # as tests/CMakeLists.txt does
                           INKLING_SOURCE_DIR="" INKLING_PROGRAM="")
# Nothing is made of them: a third of the time.
target_compile_options(check_headers PRIVATE -fsyntax-only)
