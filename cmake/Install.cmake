# cmake --install: the libraries for find_package(inkling), and the program. The folder may be moved
# afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
if(TARGET inkling)
  file(RELATIVE_PATH from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(inkling inkling_tools PROPERTIES
                        INSTALL_RPATH $ORIGIN/${from_program})
  install(TARGETS inkling inkling_tools RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS ${libraries} EXPORT inklingTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# With the README of each folder. Not the headers of kernels that define macros, nor those that
# include them; cmake/Doxyfile leaves out the same ones.
install(FILES README.md LICENSE DESTINATION include/inkling)
install(DIRECTORY autograd nn data train DESTINATION include/inkling FILES_MATCHING PATTERN "*.h"
  PATTERN cli EXCLUDE PATTERN cases EXCLUDE PATTERN lessons EXCLUDE
  PATTERN report EXCLUDE
  PATTERN gemm EXCLUDE PATTERN attention EXCLUDE PATTERN kernels EXCLUDE
  PATTERN shared EXCLUDE PATTERN README.md
  REGEX "/(kernels|simd|shuffle|target|device_function)\\.h$" EXCLUDE
  REGEX "/(pointwise|map|map_formula|folds|philox|dropout_mask|sample_units|with_fma)\\.h$" EXCLUDE)
# What those READMEs show to a project of one's own. Links to other files become plain text.
install(FILES train/COMING_FROM.md DESTINATION include/inkling/train)
install(DIRECTORY train/lessons/examples DESTINATION include/inkling/train/lessons)
install(FILES train/report/pictures/report.png train/report/pictures/attention.png
        DESTINATION include/inkling/train/report/pictures)
install(FILES tests/consumer/main.cpp tests/consumer/CMakeLists.txt
        DESTINATION include/inkling/tests/consumer)
install(SCRIPT cmake/Unlink.cmake)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/inkling)
install(EXPORT inklingTargets NAMESPACE inkling:: DESTINATION ${package_folder})
configure_package_config_file(cmake/inklingConfig.cmake.in inklingConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(inklingConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/inklingConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/inklingConfigVersion.cmake
              cmake/FindOpenBLAS.cmake cmake/FindPCRE2.cmake cmake/Findutf8proc.cmake
              cmake/FindZstd.cmake cmake/find_one.cmake
        DESTINATION ${package_folder})
