# The preset tsan includes this at the top of the project: what every program of that build has.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  message(FATAL_ERROR "The preset tsan needs g++, whose OpenMP library openmp_order.cpp knows")
endif()
add_library(openmp_order OBJECT tests/races/openmp_order.cpp)
link_libraries($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:openmp_order>)
