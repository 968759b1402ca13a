// What other programs call commands, options and settings, and what to type here.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ink {

/// How a foreign name is answered.
enum class Answer {
  same,      // taken: it is the setting `text`, in the same unit
  sets,      // taken: text is "NAME = VALUE, ..."; in VALUE, x is the value that was given
  left_out,  // taken, and nothing is done; text says why nothing is lost
  told,      // refused; text says what to type
  like       // refused; text names the options, in the order of preference
};

/// In `text`, {sample --start TEXT} is what to type after the program's name.
struct OtherName {
  const char* names;  // one or several, with spaces between
  const char* value;  // the row holds for it alone; "gpt2*": what begins so; "": any.
                      // Where a name is left out, "" is any of a flag, and "*" any of another name
  Answer answer;
  const char* text;
  const char* commands = "";  // for which it holds; "": all, but train alone where a name is left
                              // out, or llm.c's letter
};

/// The names that one program has. The page train/COMING_FROM.md shows the same tables.
struct OtherProgram {
  const char* name;
  std::vector<OtherName> names;
};
const std::vector<OtherProgram>& other_programs();
/// The value of a flag: true, True, TRUE or 1, and so for false; empty if the word is none.
std::optional<bool> truth_of(const std::string& word);
bool has_name(const OtherName& row, const std::string& name);
bool holds_for(const OtherName& row, const std::string& command);
/// The first row that holds for a name with its value in a command; null: none. Names have no
/// dashes in front, except those of one letter or two.
const OtherName* other_name(const std::string& name, const std::string& value,
                            const std::string& command);

/// Words that stand where a command is expected. "generate.py" is "generate".
struct OtherCommand {
  const char *name, *text;
};
const std::vector<OtherCommand>& other_commands();
const OtherCommand* other_command(const std::string& word);

/// A row's text with what to type in full: {bench} becomes "./run.sh bench" for "./run.sh ".
std::string with_typed(const std::string& text, const std::string& program);

}  // namespace ink
