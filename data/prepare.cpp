#include "data/prepare.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/io/atomic_file.h"
#include "autograd/io/crc64.h"
#include "autograd/io/foreign.h"
#include "autograd/io/log.h"
#include "data/data_files.h"
#include "data/file.h"
#include "data/formats.h"
#include "data/shard.h"
#include "data/unpack.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kUnpackedFile = "unpacked.tmp";
constexpr size_t kBatch = size_t{4} << 20, kPart = size_t{256} << 10;  // bytes of text

// ---- Which files

// The ending in small letters, without .gz or .zst.
std::string ending_of(fs::path file) {
  if (file.extension() == ".gz" || file.extension() == ".zst") file.replace_extension();
  std::string ending = file.extension();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}
bool has_lines_of_json(const fs::path& file) {
  const std::string kind = ending_of(file);
  return kind == ".jsonl" || kind == ".ndjson";
}
bool is_hidden(const fs::path& file) { return file.filename().string()[0] == '.'; }
bool is_text_by_name(const fs::path& file) {
  return has_lines_of_json(file) || ending_of(file) == ".txt";
}

// ---- The place that has been reached

// In a file: where the next part begins, where its document does, and how many came before it.
struct Place {
  size_t file = 0, part = 0, document = 0, number = 0;
};

json to_json(const std::vector<PreparedShard>& shards) {
  json list = json::array();
  for (const PreparedShard& shard : shards)
    list.push_back({{"file", shard.file},
                    {"tokens", shard.tokens},
                    {"documents", shard.documents},
                    {"crc64", hex64(shard.crc)}});
  return list;
}

// A folder that no other process prepares.
class Lock {
 public:
  explicit Lock(const fs::path& folder) : fd_(open_file(folder, O_RDONLY | O_DIRECTORY)) {
    const int reason = lock_alone(fd_, folder);
    if (reason == 0) return;
    ::close(fd_);  // no destructor runs for a constructor that throws
    INK_CHECK(reason == EWOULDBLOCK, folder.string(), ": cannot lock: ", std::strerror(reason));
    detail::fail({folder.string(), ": another process prepares data in this folder"});
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { ::close(fd_); }

 private:
  int fd_;
};

// ---- One shard

class ShardWriter {
 public:
  ShardWriter(const fs::path& file, int id_bytes, uint64_t vocab_size, uint64_t vocabulary)
      : file_(file) {
    end_.id_bytes = static_cast<uint32_t>(id_bytes);
    end_.vocab_size = vocab_size;
    end_.vocabulary = vocabulary;
  }

  int64_t tokens() const { return static_cast<int64_t>(end_.tokens); }
  void begin_document() { documents_.push_back(end_.tokens); }
  void append(std::span<const int64_t> ids) {
    end_.tokens += ids.size();
    if (end_.id_bytes == 2) return write(std::vector<uint16_t>(ids.begin(), ids.end()));
    write(std::vector<uint32_t>(ids.begin(), ids.end()));
  }

  PreparedShard finish(const std::string& name) {
    const size_t over = end_.tokens * end_.id_bytes % 8;
    if (over > 0) write(std::vector<char>(8 - over));
    write(documents_);
    end_.documents = documents_.size();
    write(std::vector<ShardEnd>{end_});
    file_.commit();
    return {name, tokens(), static_cast<int64_t>(documents_.size()), crc_};
  }

 private:
  template <class T>
  void write(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    file_.write(bytes.data(), bytes.size());
    crc_ = crc64(bytes, crc_);
  }

  AtomicFile file_;
  ShardEnd end_;
  std::vector<uint64_t> documents_;
  uint64_t crc_ = 0;
};

// ---- One text

// A part of a document: what is encoded of it at a time.
struct Passage {
  std::string_view document;  // of a line of JSON: the line
  size_t begin, end;
  size_t number;  // of the document in its file
  bool ends;
  std::vector<int64_t> ids = {};
  size_t bytes = 0;
  std::exception_ptr error = nullptr;
  bool has_others = false;  // bytes that are not UTF-8
};

// The parts of a file, from a place on.
class Passages {
 public:
  Passages(const fs::path& file, const TextFile& text, const PrepareOptions& options)
      : file_(text),
        text_(text.view()),
        lines_(has_lines_of_json(file)),
        separator_(options.separator) {}

  // The next ones, up to about kBatch bytes, and moves `place` behind them.
  std::vector<Passage> take(Place& place) const {
    std::vector<Passage> parts;
    const size_t first = place.part;
    while (place.part < text_.size() && place.part - first < kBatch && parts.size() < kBatch / 64)
      lines_ ? take_line(place, parts) : take_part(place, parts);
    return parts;
  }

 private:
  void take_line(Place& place, std::vector<Passage>& parts) const {
    const size_t end = std::min(text_.find('\n', place.part), text_.size());
    const std::string_view line = text_.substr(place.part, end - place.part);
    ++place.number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      parts.push_back(
          {.document = line, .begin = 0, .end = line.size(), .number = place.number, .ends = true});
    place.part = place.document = std::min(end + 1, text_.size());
  }

  void take_part(Place& place, std::vector<Passage>& parts) const {
    if (end_ <= place.part) end_ = end_of_document(place.part);
    const size_t end = std::min(end_, place.part + kPart);
    if (place.part == place.document) ++place.number;
    if (end > place.part)
      parts.push_back({.document = text_.substr(place.document, end_ - place.document),
                       .begin = place.part - place.document,
                       .end = end - place.document,
                       .number = place.number,
                       .ends = end == end_});
    place.part = end;
    if (end == end_) place.part = place.document = std::min(end + separator_.size(), text_.size());
  }

  // Where the next separator is. A document may be larger than memory, so what was searched is
  // released.
  size_t end_of_document(size_t from) const {
    if (separator_.empty()) return text_.size();
    for (; from < text_.size(); from += kBatch) {
      const size_t found = text_.substr(from, kBatch + separator_.size() - 1).find(separator_);
      if (found != std::string_view::npos) return from + found;
      file_.release(from, std::min(from + kBatch, text_.size()));
    }
    return text_.size();
  }

  const TextFile& file_;
  std::string_view text_;
  bool lines_;
  std::string separator_;
  mutable size_t end_ = 0;  // of the document
};

// ---- All of it

class Preparation {
 public:
  Preparation(const std::vector<fs::path>& files, const PrepareOptions& options)
      : files_(files), options_(options), tokenizer_(*options.tokenizer) {
    INK_CHECK(!files_.empty(), "prepare: expected files, got none");
    for (const fs::path& file : files_) {
      const bool other = file_operation([&] { return fs::is_other(fs::status(file)); });
      INK_CHECK(!other, file.string(), ": expected a file, got a device or a pipe");
      sizes_.push_back(file_operation([&] { return fs::file_size(file); }));
      all_bytes_ += static_cast<double>(sizes_.back());
    }
    vocabulary_ = vocabulary_crc(tokenizer_);
    done_.id_bytes = tokenizer_.vocab_size() <= int64_t{1} << 16 ? 2 : 4;
    request_ = {{"field", printable(options.field)},
                {"separator", printable(options.separator)},
                {"shard_tokens", options.shard_tokens},
                {"vocabulary", hex64(vocabulary_)},
                {"files", json::array()}};
    for (size_t i = 0; i < files_.size(); ++i)
      request_["files"].push_back({{"file", printable(files_[i].string())}, {"bytes", sizes_[i]}});
  }

  // A folder that it made and that stays empty does not stay.
  Prepared run() {
    const bool made = file_operation([&] { return fs::create_directories(options_.out_dir); });
    try {
      return write();
    } catch (...) {
      std::error_code ignored;
      shard_.reset();
      fs::remove(in_folder(kUnpackedFile), ignored);
      if (made) fs::remove(options_.out_dir, ignored);
      throw;
    }
  }

 private:
  Prepared write() {
    const Lock lock(options_.out_dir);
    if (fs::exists(options_.out_dir / kPreparedFile)) return found();
    const fs::path tokenizer = in_folder(kTokenizerFile);
    INK_CHECK(!fs::exists(tokenizer) || ink::read_file(tokenizer) == tokenizer_.to_json(),
              tokenizer.string(),
              ": prepare would write its tokenizer in place of this one; name another --out_dir");
    go_on();
    for (; place_.file < files_.size(); place_ = {.file = place_.file + 1})
      if (!read_file(files_[place_.file])) return stopped();
    if (shard_) close_shard();
    return finish();
  }

  fs::path in_folder(const std::string& name) const { return options_.out_dir / name; }

  Prepared stopped() {
    shard_.reset();
    done_.whole = false;
    return done_;
  }

  json modified() const {
    json times = json::array();
    for (const fs::path& file : files_)
      times.push_back(fs::last_write_time(file).time_since_epoch().count());
    return times;
  }

  // What another call has finished.
  Prepared found() const {
    Prepared prepared = read_prepared(options_.out_dir);
    const fs::path file = in_folder(kPreparedFile);
    const json its = parse_json(read_text(file));
    INK_CHECK(its.value("made_of", json()) == request_, options_.out_dir.string(),
              ": this folder holds data that were prepared from other files or with other options; "
              "name another --out_dir, or delete it");
    for (const fs::path& each : files_)
      INK_CHECK(fs::last_write_time(each) <= fs::last_write_time(file), each.string(),
                ": it was written after ", file.string(), ", which was made of it; delete ",
                options_.out_dir.string(),
                " to prepare it anew, or, if the text is the same: touch ",
                for_shell(file.string()));
    prepared.was_there = true;
    return prepared;
  }

  void go_on() {
    fs::remove(in_folder(kUnpackedFile));  // of a call that was killed
    const fs::path file = in_folder(kPreparingFile);
    if (!fs::exists(file)) return;
    const json state = with_prefix(file.string(), [&] { return parse_json(read_text(file)); });
    INK_CHECK(state.is_object() && state.contains("made_of") && state.contains("modified"),
              file.string(), ": expected how far prepare came, got ", quoted(state));
    INK_CHECK(state.at("made_of") == request_, options_.out_dir.string(),
              ": prepare was stopped here with other files or options; give the same ones, name "
              "another --out_dir, or delete this one");
    INK_CHECK(state.at("modified") == modified(), options_.out_dir.string(),
              ": prepare was stopped here, and the files were written again since; delete this "
              "folder, or name another --out_dir");
    const Fields fields(file.string(), state), place = fields.object("place");
    constexpr int64_t kMost = int64_t{1} << 53;
    const auto at = [&](const char* name) { return static_cast<size_t>(place.count(name, kMost)); };
    place_ = {at("file"), at("part"), at("document"), at("number")};
    done_.shards = shards_of(file.string(), fields.of("shards"));
    done_.bytes = fields.count("bytes", kMost);
    in_document_ = place_.part != place_.document;
    for (const PreparedShard& shard : done_.shards) {
      done_.tokens += shard.tokens, done_.documents += shard.documents;
      INK_CHECK(fs::exists(in_folder(shard.file)), in_folder(shard.file).string(),
                ": the shard that ", kPreparingFile, " names is not there; delete the folder");
    }
    INK_CHECK(place_.file < files_.size(), file.string(), ": it names file ", place_.file, " of ",
              files_.size());
  }

  // False: it is to stop.
  bool read_file(const fs::path& file) {
    fs::path text_file = file;
    const fs::path unpacked = in_folder(kUnpackedFile);
    if (is_packed(file)) unpack(file, text_file = unpacked);
    if (sizes_[place_.file] == 0 || fs::file_size(text_file) == 0) {
      fs::remove(unpacked);
      return true;  // an empty file has no document
    }
    const TextFile text = open_text(file, text_file);
    const std::string_view view = text.view();
    INK_CHECK(place_.part <= view.size() && place_.document <= place_.part, file.string(),
              ": the file has changed since prepare was stopped");
    const Passages parts(file, text, options_);
    while (place_.part < view.size()) {
      const size_t before = place_.part;
      std::vector<Passage> some = parts.take(place_);
      encode(file, some);
      append(some);
      text.release(before, place_.part);
      if (shard_ && shard_->tokens() >= options_.shard_tokens) close_shard();
      const double read = static_cast<double>(place_.part) / static_cast<double>(view.size());
      if (!go_further(read)) return false;
    }
    return true;
  }

  // Errors name the packed file.
  static TextFile open_text(const fs::path& file, const fs::path& text_file) {
    if (file == text_file) return TextFile(file);
    struct Removed {  // it stays mapped
      const fs::path& file;
      ~Removed() {
        std::error_code ignored;
        fs::remove(file, ignored);
      }
    } const after{text_file};
    return with_prefix(file.string(), [&] { return TextFile(text_file); });
  }

  void encode(const fs::path& file, std::vector<Passage>& parts) {
    const bool lines = has_lines_of_json(file);
    parallel_for(std::ssize(parts), 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        Passage& part = parts[static_cast<size_t>(i)];
        try {
          if (lines) {
            const std::string text = text_of_line(part.document);
            part.bytes = text.size();
            part.ids = tokenizer_.encode(text);
          } else {
            part.bytes = part.end - part.begin;
            part.has_others = has_other_bytes(part.document, part.begin, part.end);
            part.ids = tokenizer_.encode_part(part.document, part.begin, part.end);
          }
        } catch (...) {
          part.error = std::current_exception();
        }
      }
    });
    for (const Passage& part : parts)
      if (part.error)
        with_prefix(detail::joined({file.string(), lines ? ": line " : ": document ", part.number}),
                    [&] { std::rethrow_exception(part.error); });
    const auto has_others = [](const Passage& part) { return part.has_others; };
    if (tokenizer_.name() != "byte" && !told_of_others_ &&
        std::any_of(parts.begin(), parts.end(), has_others)) {
      log_message(said_of_other_bytes(file));
      told_of_others_ = true;
    }
  }

  std::string text_of_line(std::string_view line) const {
    const size_t begin = line.find_first_not_of(" \t");
    INK_CHECK(begin == std::string_view::npos || line[begin] != '[',
              "expected an object in each line, got an array; of one array in all, this makes "
              "lines: jq -c '.[]'");
    const json object = [&] {
      try {
        return parse_json(line);
      } catch (const Error& error) {
        detail::fail({error.what(),
                      "; each line is one object of JSON in UTF-8, which has neither ",
                      "NaN nor halves of surrogates"});
      }
    }();
    const auto found = object.is_object() ? object.find(options_.field) : object.end();
    INK_CHECK(found == object.end() || found->is_string(), "expected the field \"",
              printable(options_.field, 60), "\" to be a text, got ", quoted(*found),
              "; write each document as one text, or name a field that is one with --field");
    INK_CHECK(found != object.end() && found->is_string(), "expected an object with a text in \"",
              printable(options_.field, 60), "\", got ", quoted(object),
              "; name the field with --field");
    return found->get<std::string>();
  }

  void append(std::vector<Passage>& parts) {
    const int64_t end_of_text = tokenizer_.end_of_text();
    for (Passage& part : parts) {
      if (part.bytes == 0 && part.ids.empty()) continue;
      if (!shard_)
        shard_.emplace(in_folder(shard_name(done_.shards.size())), done_.id_bytes,
                       static_cast<uint64_t>(tokenizer_.vocab_size()), vocabulary_);
      const int64_t before = shard_->tokens();
      if (!in_document_ && (!part.ids.empty() || end_of_text >= 0))
        shard_->begin_document(), ++done_.documents, in_document_ = true;
      if (part.ends && end_of_text >= 0) part.ids.push_back(end_of_text);
      shard_->append(part.ids);
      if (part.ends) in_document_ = false;
      done_.bytes += static_cast<int64_t>(part.bytes);
      done_.tokens += shard_->tokens() - before;
    }
  }

  void close_shard() {
    const std::string name = shard_name(done_.shards.size());
    done_.shards.push_back(shard_->finish(name));
    shard_.reset();
    sync_folder(options_.out_dir);
    write_file(in_folder(kPreparingFile), json{{"made_of", request_},
                                               {"modified", modified()},
                                               {"bytes", done_.bytes},
                                               {"place",
                                                {{"file", place_.file},
                                                 {"part", place_.part},
                                                 {"document", place_.document},
                                                 {"number", place_.number}}},
                                               {"shards", to_json(done_.shards)}}
                                              .dump());
  }

  bool go_further(double share_of_file) {
    if (!options_.progress) return true;
    double bytes = share_of_file * static_cast<double>(sizes_[place_.file]);
    for (size_t i = 0; i < place_.file; ++i) bytes += static_cast<double>(sizes_[i]);
    return options_.progress({.file = static_cast<int64_t>(place_.file),
                              .files = std::ssize(files_),
                              .share = bytes / std::max(all_bytes_, 1.0),
                              .tokens = done_.tokens,
                              .documents = done_.documents});
  }

  Prepared finish() {
    INK_CHECK(done_.tokens > 0, "prepare: expected text in ", files_[0].string(),
              files_.size() > 1 ? " and others" : "", ", got none");
    write_file(in_folder(kTokenizerFile), tokenizer_.to_json());
    write_file(in_folder(kPreparedFile), json{{"format", kPreparedFormat},
                                              {"tokens", done_.tokens},
                                              {"documents", done_.documents},
                                              {"bytes", done_.bytes},
                                              {"id_bytes", done_.id_bytes},
                                              {"vocab_size", tokenizer_.vocab_size()},
                                              {"end_of_text", tokenizer_.end_of_text()},
                                              {"made_of", request_},
                                              {"shards", to_json(done_.shards)}}
                                                 .dump(2) +
                                             "\n");
    fs::remove(in_folder(kPreparingFile));
    sync_folder(options_.out_dir);
    return done_;
  }

  const std::vector<fs::path>& files_;
  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  std::vector<uintmax_t> sizes_;
  double all_bytes_ = 0;
  uint64_t vocabulary_;
  json request_;
  Place place_;
  bool in_document_ = false, told_of_others_ = false;
  std::optional<ShardWriter> shard_;
  Prepared done_;
};

}  // namespace

std::string shard_name(size_t number) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "shard_%05zu.ids", number);
  return name.data();
}

std::vector<fs::path> files_to_prepare(const std::vector<std::string>& names) {
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    std::vector<fs::path> named = files_by_pattern(name);
    if (named.empty() && !file_operation([&] { return fs::is_directory(name); })) {
      check_is_name(name);
      named = {name};
    }
    if (!named.empty()) {
      for (const fs::path& file : named) check_no_ids(file);
      files.insert(files.end(), named.begin(), named.end());
      continue;
    }
    check_no_run(name);
    std::vector<fs::path> all, links;
    file_operation([&] {
      for (fs::recursive_directory_iterator entry(name), end; entry != end; ++entry) {
        if (is_hidden(entry->path()))
          entry.disable_recursion_pending();
        else if (entry->is_regular_file())
          all.push_back(entry->path());
        else if (entry->is_symlink())
          links.push_back(entry->path());
      }
      return 0;
    });
    for (auto* paths : {&all, &links}) std::sort(paths->begin(), paths->end());
    const std::string not_followed =
        links.empty() ? ""
                      : "; links to folders, or to nothing, are not followed: " + names_of(links) +
                            "; name folders, too, such as " + for_shell(links[0].string());
    const auto [found, left_out, why, some] = choose_texts(all, is_text_by_name);
    const bool is_prepared = std::count(all.begin(), all.end(), fs::path(name) / kPreparedFile) > 0;
    INK_CHECK(!found.empty() || !is_prepared, name,
              ": this folder holds prepared data: train --data reads them");
    INK_CHECK(!found.empty(), name,
              ": expected *.txt, *.jsonl or *.ndjson in this folder, also packed (.gz, .zst), or "
              "nothing but UTF-8 texts",
              why.empty() ? ", found none" : "; " + why,
              some.empty() ? "" : "; to prepare some of its files, name them", not_followed);
    const TextParts parts = parts_of(found, name);
    INK_CHECK(parts.train.empty(), name, ": ", names_of(parts.train, name), " and ",
              names_of(parts.val.empty() ? parts.test : parts.val, name),
              " seem to be parts of one text; prepare each alone, by the names of its files or "
              "folder, or name all files to have them as one");
    if (!left_out.empty() || !links.empty())
      log_message(name, ": ", found.size(), found.size() == 1 ? " file" : " files",
                  left_out.empty() ? "" : "; left out: ", names_of(left_out),
                  left_out.empty() || !is_text_by_name(found[0])
                      ? ""
                      : " (texts are called *.txt or *.jsonl)",
                  not_followed);
    files.insert(files.end(), found.begin(), found.end());
  }
  if (const std::string said = said_of_same(files); !said.empty()) log_message(said);
  std::vector<fs::path> texts;
  for (const fs::path& file : files)
    if (!has_lines_of_json(file)) texts.push_back(file);
  for (const std::string& said : {said_of_fields(texts), said_of_line_ends(texts)})
    if (!said.empty()) log_message(said);
  return files;
}

Prepared prepare(const std::vector<fs::path>& files, const PrepareOptions& options) {
  return Preparation(files, options).run();
}

}  // namespace ink
