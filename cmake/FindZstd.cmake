# Texts packed by zstd (Debian and Ubuntu: libzstd-dev), as Zstd::Zstd.
include(${CMAKE_CURRENT_LIST_DIR}/find_one.cmake)
find_one(Zstd Zstd::Zstd zstd.h zstd libzstd-dev)
