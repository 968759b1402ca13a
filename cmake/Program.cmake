# The program `inkling`, and what it is made of: train, the lessons, the tables of ops and layers.

# The tables of ops and layers that drive their tests, `inkling gradcheck` and the benchmarks.
file(GLOB case_sources CONFIGURE_DEPENDS tests/*_cases.cpp tests/*_case_inputs.cpp)
add_library(inkling_cases STATIC ${case_sources})
target_link_libraries(inkling_cases PUBLIC inkling::nn PRIVATE inkling_driver_options)
inkling_precompile(cases inkling_driver_options)
inkling_unite(cases)
set_source_files_properties(tests/op_case_inputs.cpp PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2> SKIP_PRECOMPILE_HEADERS ON)

# Lessons: programs that are also kept as text, for `inkling walkthrough` to show.
file(GLOB walkthrough_sources CONFIGURE_DEPENDS tests/walkthroughs/*.cpp)
set(walkthrough_texts ${CMAKE_CURRENT_BINARY_DIR}/walkthrough_texts.cpp)
add_custom_command(OUTPUT ${walkthrough_texts}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${walkthrough_texts} "-DSOURCES=${walkthrough_sources}"
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/EmbedTexts.cmake
  DEPENDS ${walkthrough_sources} cmake/EmbedTexts.cmake VERBATIM)
add_library(inkling_walkthroughs STATIC ${walkthrough_sources} ${walkthrough_texts})
target_link_libraries(inkling_walkthroughs PUBLIC inkling::nn PRIVATE inkling_driver_options)
inkling_precompile(walkthroughs inkling_driver_options)
inkling_unite(walkthroughs)

add_library(inkling_train STATIC)
file(GLOB train_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/train/*.cpp)
list(FILTER train_sources EXCLUDE REGEX "/main\\.cpp$")
target_sources(inkling_train PRIVATE ${train_sources})
add_library(inkling::train ALIAS inkling_train)
target_link_libraries(inkling_train PUBLIC inkling::nn inkling::data nlohmann_json::nlohmann_json
                      PRIVATE CLI11::CLI11 inkling_driver_options inkling_cases inkling_walkthroughs ${fmt_target})
inkling_precompile(train inkling_driver_options)
inkling_unite(train)
target_compile_definitions(inkling_train PRIVATE INKLING_VERSION="${PROJECT_VERSION}")

# What programs link besides: the GPU backend where there is one.
add_library(inkling_backends INTERFACE)
if(cuda_backend)
  target_link_libraries(inkling_backends INTERFACE inkling::cuda)
endif()

add_executable(inkling train/main.cpp)
target_link_libraries(inkling PRIVATE inkling_driver_options inkling_backends inkling::train)
