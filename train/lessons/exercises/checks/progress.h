// What a reader has done: exercises solved, hints seen, lessons read. It is kept beside the
// reader's exercises.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/lessons/exercises/exercise.h"

namespace ink {

/// The lines of exercises/progress.txt: what happened, to what, and a checksum of the text to which
/// it happened ("right 05_softmax 01234567"). Lines are only ever added, so that two terminals do
/// not take each other's; what is not such a line is left alone.
class ReaderProgress {
 public:
  /// Reads that of a checkout. Nothing is known where there is no such file.
  explicit ReaderProgress(const std::filesystem::path& checkout);

  /// Adds a line unless it is there. False if it cannot be written.
  bool note(const std::string& event, const std::string& name, const std::string& text);
  /// Is there such a line, for this text?
  bool has(const std::string& event, const std::string& name, const std::string& text) const;
  /// How many are there, for whatever text?
  size_t count(const std::string& event, const std::string& name) const;

 private:
  std::filesystem::path file_;
  std::vector<std::string> lines_;
};

/// changed: solved once, but neither right nor wrong is known of what the file holds now.
enum class ExerciseState { open, begun, changed, solved };
ExerciseState state_of(const Exercise& exercise, const std::filesystem::path& checkout);
/// The reader's file.
std::filesystem::path file_of(const Exercise& exercise, const std::filesystem::path& checkout);
/// The text of a file; empty if it cannot be read.
std::string text_in(const std::filesystem::path& file);

/// The first that is not solved; null if all are.
const Exercise* next_of(const std::vector<Exercise>& list, const std::filesystem::path& checkout);
/// "5" of "05_softmax"
std::string number_of(const Exercise& exercise);
/// "autograd/ops/softmax.cpp:57": where it stands now.
std::string place_of(const Source& source, const std::filesystem::path& checkout);

}  // namespace ink
