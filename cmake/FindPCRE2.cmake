# Perl-compatible regular expressions over bytes (Debian and Ubuntu: libpcre2-dev), as PCRE2::8BIT.
include(${CMAKE_CURRENT_LIST_DIR}/find_one.cmake)
find_one(PCRE2 PCRE2::8BIT pcre2.h pcre2-8 libpcre2-dev)
