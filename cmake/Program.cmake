# The program `inkling`, and what it is made of.

# inkling_add_part(NAME FOLDER FILE...): a static library that is not installed, of the .cpp in
# train/FOLDER and further files.
function(inkling_add_part name folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/train/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(inkling_${name} STATIC ${sources} ${ARGN})
  target_link_libraries(inkling_${name} PUBLIC inkling::nn PRIVATE inkling_driver_options)
  inkling_precompile(${name} inkling_driver_options)
  inkling_unite(${name})
endfunction()

# The tables of ops and layers that drive their tests, `inkling gradcheck` and the benchmarks.
inkling_add_part(cases cases)
set_source_files_properties(train/cases/op_case_inputs.cpp PROPERTIES
  COMPILE_OPTIONS $<$<CONFIG:Release>:-O2> SKIP_PRECOMPILE_HEADERS ON)

# inkling_embed_texts(OUTPUT FUNCTION HEADER SOURCE...): sources kept in the program as text.
function(inkling_embed_texts output function header)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${function} -DHEADER=${header}
            "-DSOURCES=${ARGN}" -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/EmbedTexts.cmake
    DEPENDS ${ARGN} cmake/EmbedTexts.cmake VERBATIM)
endfunction()

# Lessons: programs that are also kept as text, for `inkling lesson` to show.
file(GLOB lesson_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/train/lessons/*.cpp)
set(lesson_texts ${CMAKE_CURRENT_BINARY_DIR}/lesson_texts.cpp)
inkling_embed_texts(${lesson_texts} detail::lesson_source train/lessons/notebook.h
                    ${lesson_sources})
inkling_add_part(lessons lessons ${lesson_texts})
target_link_libraries(inkling_lessons PUBLIC inkling::train)

# What a run's metrics look like, and the pages for a browser, whose sources are kept as text.
file(GLOB page_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/train/report/page/*.html
     ${CMAKE_CURRENT_SOURCE_DIR}/train/report/page/*.css
     ${CMAKE_CURRENT_SOURCE_DIR}/train/report/page/*.js)
set(page_texts ${CMAKE_CURRENT_BINARY_DIR}/page_texts.cpp)
inkling_embed_texts(${page_texts} detail::page_text train/report/page.h ${page_sources})
inkling_add_part(report report ${page_texts})
get_target_property(report_sources inkling_report SOURCES)
list(FILTER report_sources EXCLUDE REGEX "/look\\.cpp$")  # a command of its own
set_target_properties(inkling_report PROPERTIES SOURCES "${report_sources}")
target_link_libraries(inkling_report PUBLIC inkling::train PRIVATE ${fmt_target} utf8proc::utf8proc)

# What runs the kernels of exercises on the CPU. run.sh installs Boost.Context for it, and says ON.
set(INKLING_EMULATOR AUTO CACHE STRING
    "Exercises that are CUDA kernels: AUTO (where Boost.Context is found) or ON")
if(cuda_backend STREQUAL EMULATED)
  add_library(inkling_emulator INTERFACE)
  target_link_libraries(inkling_emulator INTERFACE inkling::cuda)
else()
  if(INKLING_EMULATOR STREQUAL AUTO)
    find_package(Boost QUIET COMPONENTS context)
  else()
    find_package(Boost REQUIRED COMPONENTS context)
  endif()
  if(Boost_FOUND)
    add_library(inkling_emulator STATIC cuda/emulator/threads.cpp cuda/emulator/accesses.cpp
                cuda/emulator/wgmma.cpp)
    target_include_directories(inkling_emulator BEFORE PRIVATE
                               ${CMAKE_CURRENT_SOURCE_DIR}/cuda/emulator)
    target_link_libraries(inkling_emulator PUBLIC inkling::autograd
                          PRIVATE inkling_driver_options Boost::context)
  endif()
endif()

# inkling_kernel_exercise(TARGET FILE): a reader's .cu for the emulator; and TARGET_card, by nvcc.
function(inkling_kernel_exercise target file)
  set_source_files_properties(${file} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
  if(TARGET inkling_emulator)
    target_link_libraries(${target} PRIVATE inkling_emulator)
  endif()
  find_package(CUDAToolkit 12 QUIET)
  if(NOT CUDAToolkit_NVCC_EXECUTABLE)
    return()
  endif()
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_card.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O2 -arch=compute_80 -Xcompiler=-fPIE
            -I ${CMAKE_CURRENT_SOURCE_DIR} -c ${file} -o ${object}
    DEPENDS ${file} VERBATIM)
  add_executable(${target}_card EXCLUDE_FROM_ALL ${object})
  set_target_properties(${target}_card PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target}_card PRIVATE inkling_exercises CUDA::cudart_static)
endfunction()

# Exercises: the checks, and the texts. A reader's answers are programs that nothing else needs:
# run.sh sets up exercises/NN_name.cpp, then builds the target exercise_NN.
file(GLOB exercise_sources CONFIGURE_DEPENDS
     ${CMAKE_CURRENT_SOURCE_DIR}/train/lessons/exercises/*.c*)
set(exercise_texts ${CMAKE_CURRENT_BINARY_DIR}/exercise_texts.cpp)
inkling_embed_texts(${exercise_texts} exercise_source train/lessons/exercises/checks/texts.h
                    ${exercise_sources})
inkling_add_part(exercises lessons/exercises/checks ${exercise_texts})
target_link_libraries(inkling_exercises PUBLIC inkling::train)
add_library(inkling_answer_options INTERFACE)  # warnings of half-written answers are no errors
target_compile_options(inkling_answer_options INTERFACE -Wno-unused-parameter -Wno-error)
foreach(source IN LISTS exercise_sources)
  get_filename_component(file ${source} NAME)
  string(SUBSTRING ${file} 0 2 number)
  set(answer ${CMAKE_CURRENT_SOURCE_DIR}/exercises/${file})
  add_executable(exercise_${number} EXCLUDE_FROM_ALL ${answer})
  set_source_files_properties(${answer} PROPERTIES GENERATED ON)
  target_link_libraries(exercise_${number} PRIVATE inkling_driver_options inkling_answer_options
                        inkling_exercises)
  if(file MATCHES "\\.cu$")
    inkling_kernel_exercise(exercise_${number} ${answer})
  endif()
endforeach()

# The commands: those that training needs, and all of them, for a program with models of its own.
inkling_add_part(commands cli)
get_target_property(command_sources inkling_commands SOURCES)
set(tool_sources ${command_sources})
list(FILTER tool_sources INCLUDE REGEX "/cli/(all_commands|bench|draw|exercise|gradcheck|lesson\
|look|prepare|seedhunt|suggest|tokenizer)[a-z_]*\\.cpp$")
list(REMOVE_ITEM command_sources ${tool_sources})
set_target_properties(inkling_commands PROPERTIES SOURCES "${command_sources}")
target_link_libraries(inkling_commands PUBLIC inkling::train
                      PRIVATE inkling_report ${fmt_target})
if(NOT INKLING_SEEDHUNT)
  list(FILTER tool_sources EXCLUDE REGEX "/seedhunt")
endif()
add_library(inkling_cli STATIC ${tool_sources} train/report/look.cpp)
add_library(inkling::cli ALIAS inkling_cli)
target_link_libraries(inkling_cli PUBLIC inkling_commands
                      PRIVATE inkling_driver_options inkling_cases inkling_lessons
                              inkling_exercises inkling_report ${fmt_target})
foreach(part commands cli)
  target_compile_definitions(inkling_${part} PRIVATE INKLING_VERSION="${PROJECT_VERSION}"
                             $<$<NOT:$<BOOL:${INKLING_SEEDHUNT}>>:INKLING_NO_SEEDHUNT>)
endforeach()
inkling_precompile(cli inkling_driver_options)
inkling_unite(cli)

# The commit, which reports name. A commit configures anew, and compiles one file.
find_package(Git QUIET)
set(commit "")
if(GIT_FOUND AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.git)
  set(here WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
      ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short HEAD OUTPUT_VARIABLE commit ${here})
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD OUTPUT_VARIABLE head_log
                  ${here})
  get_filename_component(head_log "${head_log}" ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  if(EXISTS ${head_log} AND NOT IS_DIRECTORY ${head_log})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head_log})
  endif()
endif()
set_source_files_properties(train/cli/version.cpp PROPERTIES
  COMPILE_DEFINITIONS INKLING_COMMIT="${commit}"
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)

# What programs link besides: the GPU backend where there is one.
add_library(inkling_backends INTERFACE)
if(cuda_backend)
  target_link_libraries(inkling_backends INTERFACE inkling::cuda)
endif()

# inkling trains, and calls inkling-tools for other commands. Linked statically, it has them all.
add_executable(inkling train/cli/main.cpp)
add_executable(inkling_tools train/cli/main.cpp)
set_target_properties(inkling_tools PROPERTIES OUTPUT_NAME inkling-tools)
foreach(program inkling inkling_tools)
  set(commands inkling_commands)
  if(INKLING_STATIC OR program STREQUAL inkling_tools)
    set(commands inkling_cli)
    target_compile_definitions(${program} PRIVATE INKLING_ALL_COMMANDS)
  endif()
  target_link_libraries(${program} PRIVATE inkling_driver_options inkling_backends ${commands})
  target_link_options(${program} PRIVATE -Wl,--gc-sections)
endforeach()
