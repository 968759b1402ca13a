// Checkpoints: a run on disk, from which it continues bit for bit. A checkpoint is a folder that
// other programs can read too:
//
//   config.json             how the run was started
//   model.safetensors       parameters and buffers
//   optimizer.safetensors   the optimizer's state
//   state.json              where the run stands, and size and checksum (CRC-64/XZ) of every file
//
// Saving NAME writes NAME.tmp, flushes it to the disk, and then renames NAME to NAME.prev and
// NAME.tmp to NAME: whenever the power fails, one of the three is whole. A save that was cut short
// between the two is finished by the next one. The same contents give the same bytes.
//
// Checksums are against accidents. Whoever can write the folder can make a checkpoint that passes:
// what it says is then checked as the arguments of a command line are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "autograd/io/serialize.h"

namespace ink {

/// What a checkpoint holds; the checksums are its own business. JSON has no infinities: they come
/// back as null.
struct Checkpoint {
  nlohmann::json config = nlohmann::json::object();
  nlohmann::json state = nlohmann::json::object();
  NamedTensors model = {};
  NamedTensors optimizer = {};
};

/// Throws where a save would replace something that is no checkpoint of ours: a file, or a folder
/// that holds anything else.
void check_replaceable(const std::filesystem::path& out_dir, const std::string& name);

/// Saves it as out_dir/name; the one that was there stays as out_dir/name.prev. Makes out_dir.
/// Throws, naming file and reason, where a file cannot be written; then the old checkpoint stands.
void save_checkpoint(const std::filesystem::path& out_dir, const std::string& name,
                     const Checkpoint& checkpoint);

/// The checkpoint out_dir/name and the folder it was found in. Where that one is missing or any of
/// its files is not what was written, the newest whole one of name.tmp (complete, but not yet
/// renamed) and name.prev, and the log callback is told. Throws when there is none: one error that
/// says what is wrong with each. `use` is called with each until it does not throw: a checkpoint
/// whose contents make no sense is passed over, too.
struct LoadedCheckpoint : Checkpoint {
  std::filesystem::path folder;
};
LoadedCheckpoint load_checkpoint(const std::filesystem::path& out_dir, const std::string& name,
                                 const std::function<void(const LoadedCheckpoint&)>& use = {});

/// Is there anything to load, whole or not?
bool checkpoint_exists(const std::filesystem::path& out_dir, const std::string& name);

/// CRC-64/XZ (ECMA-182, reflected); pass the result of one piece on to the next.
uint64_t crc64(std::span<const std::byte> bytes, uint64_t crc = 0);

}  // namespace ink
