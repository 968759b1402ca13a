// Which inkling this is.
#pragma once

#include <string>

namespace ink {

/// "inkling 0.1.0, commit c8c41c8"; without the commit where the source was no checkout of Git.
std::string program_text();

}  // namespace ink
