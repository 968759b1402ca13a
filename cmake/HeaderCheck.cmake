# Target check_headers: every header as a file of its own, so that none leans on what others include
# before it.
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
