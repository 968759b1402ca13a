# Unicode's normal forms (Debian and Ubuntu: libutf8proc-dev), as utf8proc::utf8proc.
include(${CMAKE_CURRENT_LIST_DIR}/find_one.cmake)
find_one(utf8proc utf8proc::utf8proc utf8proc.h utf8proc libutf8proc-dev)
