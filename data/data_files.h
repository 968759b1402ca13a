// Which files a run learns from: what --data and --val_data name, folders among them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace ink {

struct DataFiles {
  std::vector<std::filesystem::path> train;
  std::vector<std::filesystem::path> val;  ///< empty: the end of `train` is kept for validation
  bool are_ids = false;                    ///< files of token ids
  bool are_prepared = false;               ///< prepared.json of a folder of shards, one each
  std::string note;                        ///< for people: which files of a folder were taken
};

/// A folder stands for the shards that `prepare` wrote; or for its train.bin and val.bin, as
/// nanoGPT writes them, or train.u32 and val.u32; or for its *_train.bin and *_val.bin, as llm.c
/// does, or *_train_*.bin and *_val_*.bin, as modded-nanogpt does; or for its text files, in the
/// order of their names. These are those called *.txt or, if there are none, all, if all hold text
/// and none is a program. A README, LICENSE or requirements.txt is left out, and so are folders.
/// Texts for validation and tests are told by `parts_of`; those of tests are left out. A name with
/// * or ? stands for the files of its folder that it fits. Throws, naming the option, if something
/// cannot be read, is of another format, or does not go together; `option`: what `data` is called.
DataFiles data_files(const std::vector<std::string>& data, const std::vector<std::string>& val_data,
                     const std::string& option = "--data");

/// The files that a name with * or ? stands for; none for another name, or that of a file. Throws
/// if it fits none.
std::vector<std::filesystem::path> files_by_pattern(const std::filesystem::path& name);

/// The files of token ids that a folder stands for, where it has no prepared data. No folder: none.
std::vector<std::filesystem::path> ids_of_folder(const std::filesystem::path& folder);

struct TextParts {
  std::vector<std::filesystem::path> train, val, test, others;
};

/// Texts by a word of their names: train, val (valid, validation) or test, between dots, dashes,
/// underscores or spaces, as in wiki.train.tokens. With a root, by a word of the first folder in it
/// that has one, or else of the name: train/a.txt. Empty, unless some are of train, some of val or
/// test, and all are of a part or two names differ in this word alone.
TextParts parts_of(const std::vector<std::filesystem::path>& texts,
                   const std::filesystem::path& root = {});

/// The first names of some files, from the root on if there is one, and how many more there are.
std::string names_of(const std::vector<std::filesystem::path>& files,
                     const std::filesystem::path& root = {});

/// Which files of a folder are its texts: those that are called so or, if there are none, all.
/// Empty files and what tells of the data, such as a README, are left out.
struct ChosenTexts {
  std::vector<std::filesystem::path> texts, left_out;
  std::string why;             ///< why not all can be texts, where there are no others; or empty
  std::filesystem::path some;  ///< one that is a text, if not all are
};
ChosenTexts choose_texts(const std::vector<std::filesystem::path>& files,
                         bool (*is_called_so)(const std::filesystem::path&));

/// A sentence where the lines of one of these texts end with two characters.
std::string said_of_line_ends(const std::vector<std::filesystem::path>& texts);

/// A sentence where a file is among these twice.
std::string said_of_same(const std::vector<std::filesystem::path>& train,
                         const std::vector<std::filesystem::path>& val = {});

/// A sentence where one of these texts has fields, as JSON and CSV do, of which all are taken.
std::string said_of_fields(const std::vector<std::filesystem::path>& texts);

/// Throws if no file has this name, and if it seems to be something else, such as a URL.
void check_is_name(const std::string& name);

/// Throws if the folder is that of a run, which holds no data.
void check_no_run(const std::filesystem::path& folder);

/// Throws if this is a file of token ids, by its name.
void check_no_ids(const std::filesystem::path& file);

/// The vocabulary in the meta.pkl of nanoGPT's characters, if that is beside this file; otherwise
/// null. Nothing in it is run. Throws if it holds anything else.
std::shared_ptr<const Tokenizer> vocabulary_beside(const std::filesystem::path& file);

}  // namespace ink
