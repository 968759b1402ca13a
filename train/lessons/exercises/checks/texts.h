// Exercises as text: the file that a reader gets, the kept solution, the same in the library.
#pragma once

#include <string>

namespace ink {

/// The text of an exercise's file, as it is kept in the program: "05_softmax".
std::string exercise_source(const std::string& name);

/// Its first line: "Exercise 5: ...".
std::string title_of(const std::string& source);
/// The file with a hole for every marked part: ">>> HOLE" ... "<<<" becomes HOLE.
std::string with_holes(const std::string& source);
/// The functions, without comments of the task, includes and markers.
std::string solution_of(const std::string& source);

/// The text in lines of at most 80 columns; each begins with the indent.
std::string in_lines(const std::string& text, const std::string& indent = "");

/// The number of the line that begins with `first`, after spaces; 0 if there is none.
size_t line_of(const std::string& text, const std::string& first);
/// The first line whose code declares a __shared__ array that is no shared<T, N>; 0 if none does.
size_t plain_shared_array(const std::string& text);
/// The definition in a file's text whose first line begins with `first`, with the comment above it,
/// up to the brace that closes it. Empty if there is none.
std::string definition_in(const std::string& text, const std::string& first);

}  // namespace ink
