// Checkpoints: a run on disk, from which it continues bit for bit. A checkpoint is a folder that
// other programs can read too:
//
//   config.json             how the run was started
//   model.safetensors       parameters and buffers
//   optimizer.safetensors   the optimizer's state
//   ema.safetensors         the average of the parameters, and buffers, if the run has one
//   state.json              the run's progress, and size and checksum (CRC-64/XZ) of every file
//
// Saving NAME writes NAME.tmp, flushes it to the disk, and then renames NAME to NAME.prev and
// NAME.tmp to NAME. So whenever the power fails, one of the three is whole. The next save or resume
// finishes one that was cut short between the renames. The same contents give the same bytes.
//
// Checksums find accidents. Whoever can write the folder can make a checkpoint that passes them, so
// its contents are also checked like the arguments of a command.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "autograd/io/crc64.h"
#include "autograd/io/serialize.h"

namespace ink {

/// The contents of a checkpoint, without the checksums. JSON has no infinities, so they come back
/// as null.
struct Checkpoint {
  nlohmann::json config = nlohmann::json::object();
  nlohmann::json state = nlohmann::json::object();
  NamedTensors model = {};
  NamedTensors optimizer = {};
  NamedTensors average = {};
};

/// What is loaded of a checkpoint. `model` leaves the optimizer's state out. Its file, twice as
/// large as the model's, may then be damaged or missing.
enum class Parts { all, model };

/// An error of a checkpoint that is whole, which load_checkpoint passes on: this program cannot use
/// it, because it lacks the run's model.
class NotDamaged : public Error {
 public:
  using Error::Error;
};

/// Throws if a save would replace something that is not a checkpoint of inkling: a file, a folder
/// of other things, or the weights of another program (config.json and model.safetensors alone). A
/// checkpoint that is damaged may be replaced. Other files in a checkpoint are no reason: a save
/// moves them along.
void check_replaceable(const std::filesystem::path& out_dir, const std::string& name);

/// Throws as check_replaceable does, and if the checkpoint contains a file that no save wrote and
/// that is not hidden.
void check_deletable(const std::filesystem::path& out_dir, const std::string& name);

/// Deletes the checkpoint, and the one before, but no hidden files of others in them. Throws as
/// check_deletable does.
void delete_checkpoint(const std::filesystem::path& out_dir, const std::string& name);

/// Saves it as out_dir/name; the older one stays as out_dir/name.prev. Makes out_dir. Throws,
/// naming file and reason, if a file cannot be written; the old checkpoint then stays. Returns its
/// checkpoint_checksum().
std::string save_checkpoint(const std::filesystem::path& out_dir, const std::string& name,
                            const Checkpoint& checkpoint);

/// Finishes a save that was cut short between its renames, when name.tmp was whole; if there is
/// none, does nothing. Throws as save_checkpoint does.
void finish_save(const std::filesystem::path& out_dir, const std::string& name);

/// The newest checkpoint of out_dir/name and the folder in which it was found: name.tmp, if a save
/// was cut short before its renames (logged), or else name. If that is missing or one of the files
/// that `parts` needs is damaged, the newest whole one of the others is taken instead, and logged.
/// If there is none, one error says what is wrong with each. `use` is called with each checkpoint
/// until it does not throw, so that one with invalid contents is passed over, too, unless it throws
/// NotDamaged.
struct LoadedCheckpoint : Checkpoint {
  std::filesystem::path folder;
};
LoadedCheckpoint load_checkpoint(const std::filesystem::path& out_dir, const std::string& name,
                                 Parts parts = Parts::all,
                                 const std::function<void(const LoadedCheckpoint&)>& use = {});

/// The state that out_dir/name holds; an empty object where that cannot be read.
nlohmann::json checkpoint_state(const std::filesystem::path& out_dir, const std::string& name);

/// A checksum of all files that out_dir/name holds; empty where its state.json cannot be read.
std::string checkpoint_checksum(const std::filesystem::path& out_dir, const std::string& name);

/// Is there a checkpoint to load, whole or damaged?
bool checkpoint_exists(const std::filesystem::path& out_dir, const std::string& name);

/// Where a folder holds weights of another program, or the path is a file of such: a sentence that
/// names the file, and says that it cannot be read. Likewise for a file of a checkpoint of inkling,
/// whose folder is to be named. Empty: it is neither.
std::string foreign_weights(const std::filesystem::path& path);

}  // namespace ink
