#include "train/lessons/exercises/checks/progress.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>

#include "autograd/io/crc64.h"
#include "train/lessons/exercises/checks/texts.h"

namespace ink {
namespace {

using std::filesystem::path;

std::string line_for(const std::string& event, const std::string& name, const std::string& text) {
  return event + " " + name + " " + hex64(crc64(std::as_bytes(std::span(text))));
}

}  // namespace

ReaderProgress::ReaderProgress(const path& checkout)
    : file_(checkout / "exercises" / "progress.txt") {
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) lines_.push_back(line);
}

bool ReaderProgress::has(const std::string& event, const std::string& name,
                         const std::string& text) const {
  return std::find(lines_.begin(), lines_.end(), line_for(event, name, text)) != lines_.end();
}

size_t ReaderProgress::count(const std::string& event, const std::string& name) const {
  const std::string begin = event + " " + name + " ";
  return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
    return line.compare(0, begin.size(), begin) == 0;
  }));
}

bool ReaderProgress::note(const std::string& event, const std::string& name,
                          const std::string& text) {
  if (has(event, name, text)) return true;
  lines_.push_back(line_for(event, name, text));
  std::error_code error;
  create_directories(file_.parent_path(), error);
  const std::string before = text_in(file_);
  std::ofstream out(file_, std::ios::app);
  if (!before.empty() && before.back() != '\n') out << "\n";  // a line that was cut short
  out << lines_.back() + "\n" << std::flush;
  return out.good();
}

path file_of(const Exercise& exercise, const path& checkout) {
  return checkout / "exercises" / (exercise.name + exercise.extension);
}

std::string text_in(const path& file) {
  std::error_code error;
  if (!is_regular_file(file, error)) return "";
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ExerciseState state_of(const Exercise& exercise, const path& checkout) {
  const path file = file_of(exercise, checkout);
  if (!exists(file)) return ExerciseState::open;
  const ReaderProgress progress(checkout);
  const std::string text = text_in(file);
  if (progress.has("right", exercise.name, text)) return ExerciseState::solved;
  return progress.count("right", exercise.name) > 0 && !progress.has("wrong", exercise.name, text)
             ? ExerciseState::changed
             : ExerciseState::begun;
}

const Exercise* next_of(const std::vector<Exercise>& list, const path& checkout) {
  for (const Exercise& exercise : list)
    if (state_of(exercise, checkout) != ExerciseState::solved) return &exercise;
  return nullptr;
}

std::string number_of(const Exercise& exercise) {
  return std::to_string(std::stoi(exercise.name.substr(0, 2)));
}

std::string place_of(const Source& source, const path& checkout) {
  const size_t line = line_of(text_in(checkout / source.file), source.begins);
  return source.file + (line > 0 ? ":" + std::to_string(line) : "");
}

}  // namespace ink
