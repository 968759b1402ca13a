// Prepared data: shards of token ids from texts of any size, whatever stops it on the way; and
// windows of them.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/context.h"
#include "autograd/io/log.h"
#include "data/bpe/train.h"
#include "data/dataset.h"
#include "data/file.h"
#include "data/prepare.h"
#include "data/shard.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/peak_memory.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_files.h"

namespace ink {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

// "three<|endoftext|>four"
constexpr const char* kZstd =
    "28b52ffd0458b1000074687265653c7c656e646f66746578747c3e666f7572eefdac45";

// Bytes by two digits each.
std::string raw(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

PrepareOptions bytes_into(const fs::path& folder) {
  PrepareOptions options;
  options.tokenizer = std::make_shared<ByteTokenizer>();
  options.out_dir = folder;
  return options;
}

std::shared_ptr<const Tokenizer> learned(const std::string& text) {
  bpe::TrainOptions options;
  options.vocab_size = 300;
  bpe::Pieces pieces;
  bpe::count_pieces(pieces, text, bpe::Splitter(bpe::named_cuts("gpt2")));
  return bpe::train(pieces, options);
}

// The bytes of all files of a folder, by name.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

// The ids of a folder and where documents begin, read from its bytes by another way.
struct Read {
  Ids ids, documents;
};
Read read(const fs::path& folder) {
  Read all;
  const Prepared prepared = read_prepared(folder);
  const auto tokenizer = load_tokenizer(folder / "tokenizer.json");
  for (const PreparedShard& shard : prepared.shards) {
    const MappedFile file(folder / shard.file);
    const OpenShard open = open_shard(shard.file, file.bytes(), prepared, shard,
                                      tokenizer->vocab_size(), vocabulary_crc(*tokenizer));
    for (const uint64_t place : open.documents)
      all.documents.push_back(std::ssize(all.ids) + static_cast<int64_t>(place));
    std::visit([&](auto ids) { all.ids.insert(all.ids.end(), ids.begin(), ids.end()); }, open.ids);
  }
  return all;
}

std::string text_of(const Ids& ids) { return {ids.begin(), ids.end()}; }

// "one\ntwo..." in documents of very different lengths.
std::string story(int documents, int longest = 900) {
  std::string text;
  for (int i = 0; i < documents; ++i) {
    for (int line = 0; line < (i == 7 ? longest : i % 7 == 0 ? 900 : i % 5); ++line)
      text += "Line " + std::to_string(line * i) + " of the story, and the cat saw it.\n";
    text += "<|endoftext|>";
  }
  return text + "the end";
}

TEST(Prepare, KeepsDocumentsOfEveryKindOfFile) {
  const TempFolder folder;
  fs::create_directories(folder / "in/deeper");
  folder.write("in/a.txt", "\xef\xbb\xbfone<|endoftext|><|endoftext|>two");
  folder.write("in/b.jsonl", "{\"text\": \"h\\u00e9\"}\n\n{\"text\": \"\"}\n{\"text\":\"x\"}");
  folder.write("in/c.jsonl.gz",
               raw("1f8b0800000000000203ab562a49ad2851b252cacf4b55aae5e2aa86f14bcaf"
                   "3817c00b965ce4b1f000000"));
  folder.write("in/deeper/d.txt.zst", raw("502a4d180400000012345678") + raw(kZstd));  // of pzstd
  folder.write("in/e.md", "left out");
  fs::create_directories(folder / "in/.ipynb_checkpoints");
  folder.write("in/.ipynb_checkpoints/a.txt", "a copy");
  folder.write("in/empty.txt", "");
  const auto files = files_to_prepare({(folder / "in").string(), (folder / "in/e.md").string()});
  ASSERT_EQ(files.size(), 5u);
  const Prepared prepared = prepare(files, bytes_into(folder / "out"));
  EXPECT_EQ(prepared.documents, 9);
  const Read got = read(folder / "out");
  EXPECT_EQ(text_of(got.ids), "onetwoh\xc3\xa9xonetwothreefourleft out");
  EXPECT_EQ(got.documents, (Ids{0, 3, 6, 9, 10, 13, 16, 21, 25}));
  EXPECT_FALSE(fs::exists(folder / "out/unpacked.tmp"));
  PrepareOptions ending = bytes_into(folder / "ending");  // a token ends each document
  ending.tokenizer = learned("abcabc");
  EXPECT_EQ(prepare({folder / "in/b.jsonl"}, ending).documents, 2);

  PrepareOptions options = bytes_into(folder / "other");
  options.field = "body";
  options.separator = "";
  folder.write("f.jsonl", "{\"body\": \"q\"}\n{\"text\": \"q\"}\n");
  EXPECT_EQ(error_of([&] { prepare({folder / "f.jsonl"}, options); }),
            (folder / "f.jsonl").string() +
                ": line 2: expected an object with a text in \"body\", got {\"text\":\"q\"}; name "
                "the field with --field");
  EXPECT_FALSE(fs::exists(options.out_dir)) << "it was made for nothing";
  fs::create_directories(options.out_dir);
  EXPECT_NE(error_of([&] { prepare({folder / "f.jsonl"}, options); }), "(no error)");
  EXPECT_TRUE(fs::exists(options.out_dir)) << "it was there";
  EXPECT_EQ(prepare({folder / "in/a.txt"}, options).documents, 1) << "after an error";
}

TEST(Prepare, TheSameBytesWhateverTheThreadsAndStops) {
  const TempFolder folder;
  const auto file = folder.write("story.txt", story(150, 100000));  // one fills more than a batch
  folder.write("more.jsonl", "{\"text\": \"the cat saw\"}\n{\"text\": \"it\"}\n");
  const std::vector<fs::path> files{file, folder / "more.jsonl"};
  PrepareOptions options = bytes_into(folder / "whole");
  options.tokenizer = learned(read_file(file).substr(0, 50000));
  options.shard_tokens = 40000;
  const Prepared whole = prepare(files, options);
  EXPECT_GT(whole.shards.size(), 2u);
  const auto expected = files_of(folder / "whole");
  {
    const FieldGuard one_thread(&Context::threads, int64_t{1});
    options.out_dir = folder / "alone";
    prepare(files, options);
    EXPECT_EQ(files_of(folder / "alone"), expected);
  }
  // Documents one by one.
  Ids ids, documents;
  const std::string text = read_file(file);
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find("<|endoftext|>", at), text.size());
    if (end > at) {
      documents.push_back(std::ssize(ids));
      const Ids some = options.tokenizer->encode(text.substr(at, end - at));
      ids.insert(ids.end(), some.begin(), some.end());
      ids.push_back(options.tokenizer->end_of_text());
    }
    at = end + 13;
  }
  const Read got = read(folder / "whole");
  ASSERT_GT(got.ids.size(), ids.size());
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), got.ids.begin()));
  EXPECT_TRUE(std::equal(documents.begin(), documents.end(), got.documents.begin()));
  EXPECT_EQ(got.documents.size(), documents.size() + 2);

  // Stopped after some batches, with rubbish of a killed process left there.
  options.out_dir = folder / "stopped";
  for (int stops = 0;; ++stops) {
    ASSERT_LT(stops, 100);
    options.progress = [stops, calls = 0](const PrepareProgress&) mutable {
      return ++calls < (stops == 0 ? 1 : 2);  // the first time within a document
    };
    const Prepared part = prepare(files, options);
    if (part.whole) break;
    folder.write("stopped/shard_00001.ids.tmp", "rubbish");
    folder.write("stopped/unpacked.tmp", "rubbish");
  }
  auto stopped = files_of(folder / "stopped");
  stopped.erase("shard_00001.ids.tmp"), stopped.erase("unpacked.tmp");
  EXPECT_EQ(stopped, expected);
  EXPECT_TRUE(prepare(files, options).was_there);
}

TEST(Prepare, HoldsLittleOfATextThatIsOneDocument) {
  const TempFolder folder;
  std::string text;
  while (text.size() < 80 << 20) text += "A line of a text that has no separator.\n";
  const auto file = folder.write("text.txt", text);
  const std::string first = text.substr(0, 4 << 20);
  std::string().swap(text);
  prepare({folder.write("first.txt", first)}, bytes_into(folder.path() / "first"));  // threads
  const auto peak = peak_memory_of([&] { prepare({file}, bytes_into(folder.path() / "data")); });
  if (!peak) GTEST_SKIP() << "the peak is not known here";
  EXPECT_LT(*peak, 40 << 20);  // 4 MB of text at a time, and its ids of 8 bytes
}

TEST(Prepare, RefusesWhatDoesNotGoTogether) {
  const TempFolder folder;
  const std::string out = (folder / "out").string();
  const auto file = folder.write("a.txt", "some text");
  const auto other = folder.write("b.txt", "other");
  prepare({file}, bytes_into(out));
  const std::string elsewhere =
      out +
      ": this folder holds data that were prepared from other files or with other options; "
      "name another --out_dir, or delete it";
  EXPECT_EQ(error_of([&] { prepare({file, other}, bytes_into(out)); }), elsewhere);
  PrepareOptions options = bytes_into(out);
  options.separator = "e";
  EXPECT_EQ(error_of([&] { prepare({file}, options); }), elsewhere);
  const std::string finished = out + "/prepared.json";
  const auto later = [](const std::string& than) {
    return fs::last_write_time(than) + std::chrono::seconds(2);
  };
  fs::last_write_time(file, later(finished));
  EXPECT_EQ(error_of([&] { prepare({file}, bytes_into(out)); }),
            file.string() + ": it was written after " + finished +
                ", which was made of it; delete " + out +
                " to prepare it anew, or, if the text is the same: touch " + finished);
  fs::last_write_time(finished, later(file));
  EXPECT_TRUE(prepare({file}, bytes_into(out)).was_there);
  PrepareOptions stops = bytes_into(folder / "stops");
  stops.shard_tokens = 1;
  const auto long_file = folder.write("long.txt", story(150, 100000));
  stops.progress = [calls = 0](const PrepareProgress&) mutable { return ++calls < 2; };
  ASSERT_FALSE(prepare({long_file}, stops).whole);
  ASSERT_TRUE(fs::exists(folder / "stops/preparing.json"));
  fs::last_write_time(long_file, later(long_file));
  EXPECT_EQ(error_of([&] { prepare({long_file}, stops); }),
            (folder / "stops").string() +
                ": prepare was stopped here, and the files were written "
                "again since; delete this folder, or name another "
                "--out_dir");
  // Members that were joined, and the zeros that fill a block of a tape, are whole.
  const std::string member =
      raw("1f8b0800000000000203ab562a49ad2851b252cacf4b55aae5e2aa86f14bcaf3817c00b965ce4b1f000000");
  PrepareOptions joined = bytes_into(folder / "joined");
  folder.write("joined.jsonl.gz", member + member + std::string(1000, '\0'));
  const int64_t once = [&] {
    folder.write("once.jsonl.gz", member);
    return prepare({folder / "once.jsonl.gz"}, bytes_into(folder / "once")).documents;
  }();
  EXPECT_EQ(prepare({folder / "joined.jsonl.gz"}, joined).documents, 2 * once);
  const auto fails = [&](const char* name, const std::string& bytes, const std::string& error) {
    const std::string path = folder.write(name, bytes).string();
    const std::string got = error_of([&] { prepare({path}, bytes_into(folder / "new")); });
    EXPECT_EQ(got.rfind(path, 0), 0u) << got;
    EXPECT_NE(got.find(error), std::string::npos) << got;
    EXPECT_FALSE(fs::exists(folder / "new"));
  };
  fails("x.txt", raw("504b030414000000"), "expected UTF-8 text, got a ZIP archive");
  fails("y.gz", raw("1f8b0800000000000203ab562a49ad2851"), "damaged or cut short");
  fails("y.zst", raw(kZstd).substr(0, 20), "cut short");
  fails("y.gz", member + "\x1f\x8c" + member.substr(2), "damaged or cut short");
  fails("y.gz", member + member.substr(0, member.size() - 4), "damaged or cut short");
  fails("y.jsonl", "{\"text\": \"x\", \"n\": NaN}\n",
        "; each line is one object of JSON in UTF-8, ");
  fails("y.zst", raw(kZstd).replace(6, 3, "xyz"), "damaged");
  fails("z.jsonl", "{\"text\": oops}\n", "line 1: invalid JSON at byte 10");
  fails("z.jsonl", "[{\"text\": \"a\"}]\n",
        "line 1: expected an object in each line, got an array");
  fails("z.JSONL", "{\"text\": []}\n",
        "line 1: expected the field \"text\" to be a text, got []; write each document as one");
  EXPECT_EQ(error_of([&] { prepare({folder.write("0.txt", "")}, bytes_into(folder / "new")); }),
            "prepare: expected text in " + (folder / "0.txt").string() + ", got none");
  EXPECT_EQ(error_of([&] { prepare({"/dev/zero"}, bytes_into(folder / "new")); }),
            "/dev/zero: expected a file, got a device or a pipe");
  fs::create_directories(folder / "wiki");
  folder.write("wiki/train.txt", "a"), folder.write("wiki/test.txt.gz", "a");
  const std::string wiki = (folder / "wiki").string();
  EXPECT_EQ(error_of([&] { files_to_prepare({wiki}); }),
            wiki +
                ": train.txt and test.txt.gz seem to be parts of one text; prepare each alone, by "
                "the names of its files or folder, or name all files to have them as one");
  EXPECT_NE(error_of([&] {
              files_to_prepare({folder.path().string() + "/out"});
            }).find("/out: this folder holds prepared data: train --data reads them"),
            std::string::npos);
}

// Parts of a text may lie in folders of their own, under any names.
TEST(Prepare, KeepsFoldersOfAPartApart) {
  const TempFolder folder;
  for (const char* name : {"wiki/en/train", "wiki/en/valid", "trains/train", "trains/other"})
    fs::create_directories(folder / name);
  folder.write("wiki/en/train/a.txt", "a"), folder.write("wiki/en/valid/b.txt", "b");
  folder.write("wiki/notes.txt", "c");
  folder.write("trains/train/val_1.txt", "a"), folder.write("trains/other/train.txt", "b");
  const std::string wiki = (folder / "wiki").string(), trains = (folder / "trains").string();
  for (const std::string& name : {wiki, wiki + "/"})
    EXPECT_EQ(error_of([&] { files_to_prepare({name}); }),
              name +
                  ": en/train/a.txt and en/valid/b.txt seem to be parts of one text; prepare each "
                  "alone, by the names of its files or folder, or name all files to have them as "
                  "one");
  EXPECT_EQ(files_to_prepare({trains}).size(), 2u);
  EXPECT_EQ(files_to_prepare({wiki + "/en/train"}).size(), 1u);
}

// The same files as train takes.
TEST(Prepare, AFolderOfOtherNamesHoldsTexts) {
  const TempFolder folder;
  fs::create_directories(folder / "notes/more");
  folder.write("notes/a.md", "a"), folder.write("notes/more/b.md", "b");
  folder.write("notes/README.md", "x"), folder.write("notes/empty.md", "");
  const std::string notes = (folder / "notes").string();
  const auto names = [&] {
    std::string all;
    for (const fs::path& file : files_to_prepare({notes})) all += file.filename().string() + " ";
    return all;
  };
  EXPECT_EQ(names(), "a.md b.md ");
  const auto program = folder.write("notes/more/c.py", "import os");
  EXPECT_EQ(error_of(names),
            notes +
                ": expected *.txt, *.jsonl or *.ndjson in this folder, also packed (.gz, .zst), or "
                "nothing but UTF-8 texts; " +
                program.string() +
                " is a program; if it makes the data, run it first; to prepare some of its files, "
                "name them");
  folder.write("notes/c.jsonl", "{\"text\": \"c\"}\n"), folder.write("notes/README.txt", "x");
  EXPECT_EQ(names(), "c.jsonl ");
}

TEST(Prepare, APatternStandsForFiles) {
  const TempFolder folder;
  const std::string b = folder.write("b.txt", "b"), a = folder.write("a.txt", "a");
  folder.write("c.bin", "cc");
  EXPECT_EQ(files_to_prepare({(folder / "?.txt").string()}), (std::vector<fs::path>{a, b}));
  EXPECT_EQ(error_of([&] { files_to_prepare({(folder / "*").string()}); }),
            (folder / "c.bin").string() +
                ": expected a text, got token ids, which need no preparation: train --data reads "
                "them");
  const std::string none = (folder / "*.md").string();
  EXPECT_EQ(error_of([&] { files_to_prepare({none}); }),
            none + ": expected files of this pattern, found none");
}

TEST(Prepare, SaysWhereATextIsNotUtf8) {
  const TempFolder folder;
  const auto bad = folder.write("bad.txt", "caf\xe9\n");
  bpe::Pieces pieces;
  const bpe::Splitter splitter(bpe::named_cuts(bpe::TrainOptions().pattern));
  bpe::count_pieces(pieces, "caf caf", splitter, [](size_t, size_t) { return true; });
  std::string said;
  set_log_callback([&](const std::string& text) { said += text; });
  PrepareOptions options;
  options.tokenizer = bpe::train(std::move(pieces), {}), options.out_dir = folder / "out";
  prepare({bad, bad}, options);
  set_log_callback({});
  EXPECT_EQ(said.rfind(bad.string() + ": has bytes that are not UTF-8, ", 0), 0u) << said;
  EXPECT_EQ(said.rfind(": has bytes "), said.find(": has bytes ")) << "once: " << said;
}

// A tokenizer.json of another model, or the one that is read, which another program laid out.
TEST(Prepare, ReplacesNothingInItsFolder) {
  const TempFolder folder;
  const std::string out = folder.path().string(), bytes = "prepare --tokenizer byte --out_dir ";
  folder.write("tokenizer.json", learned("aaaa")->to_json() + "\n");
  const std::string text = folder.write("a.txt", "aaaa").string();
  const auto before = files_of(folder.path());
  for (const std::string& words :
       {bytes + out + " " + text,
        "prepare --tokenizer " + out + "/tokenizer.json --out_dir " + out + " " + out}) {
    const Ran ran = run_program(words);
    EXPECT_EQ(ran.code, 1) << words;
    EXPECT_NE(ran.err.find(out + "/tokenizer.json: prepare would write its tokenizer in place of "
                                 "this one; name another --out_dir"),
              std::string::npos)
        << ran.err;
    EXPECT_EQ(files_of(folder.path()), before);
  }
  folder.write("tokenizer.json", ByteTokenizer().to_json());
  EXPECT_EQ(run_program(bytes + out + " " + text).code, 0) << "its own";
  for (const char* ids :
       {"train.u16", "val.bin", "tiny_shakespeare_train.bin", "x_val_000000.bin"}) {
    fs::create_directories(folder / "ids");
    folder.write(std::string("ids/") + ids, "abab");
    const Ran ran = run_program(bytes + out + "/ids " + text);
    EXPECT_EQ(ran.code, 2) << ids;
    EXPECT_NE(ran.err.find(std::string(" holds ") + ids + ", in whose place --data would take"),
              std::string::npos)
        << ran.err;
    EXPECT_EQ(files_of(folder / "ids").size(), 1u);
    fs::remove_all(folder / "ids");
  }
}

TEST(Prepare, RefusesShardsThatAreDamagedOrOfAnotherKind) {
  const TempFolder folder;
  const fs::path out = folder / "out", shard = out / "shard_00000.ids";
  prepare({folder.write("a.txt", "some text, and some more of it")}, bytes_into(out));
  const std::string good = read_file(shard), manifest = read_file(out / "prepared.json");
  const auto error = [&] { return error_of([&] { PreparedDataset(out, nullptr, {}); }); };
  EXPECT_EQ(error(), "(no error)");
  const auto expect = [&](const std::string& bytes, const std::string& text) {
    folder.write("out/shard_00000.ids", bytes);
    const std::string got = error();
    EXPECT_EQ(got.rfind(shard.string() + ": ", 0), 0u) << got;
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  const auto with = [&](size_t from_end, const std::string& bytes) {
    return std::string(good).replace(good.size() - from_end, bytes.size(), bytes);
  };
  for (size_t size : {size_t{1}, size_t{40}, good.size() - 1})
    expect(good.substr(0, size), "cut short");
  expect(with(16, raw("01020304")), "the shard's bytes are in the other order");
  expect(with(20, "\x02"), "expected version 1 of a shard, got 2");
  expect(with(40, "\x05"), "the shard is of another vocabulary, of 261 tokens");
  expect(with(56, "\x05"), "expected 30 ids of 2 bytes and 1 documents");
  expect(std::string(good).replace(0, 1, "x"), "the shard's checksum is not the one in");
  folder.write("out/shard_00000.ids", good);
  for (const auto& [before, after, text] : std::vector<std::array<std::string, 3>>{
           {"inkling prepared 1", "inkling prepared 2", "expected the format"},
           {"\"tokens\": 30,\n", "\"tokens\": 31,\n", "expected 31 tokens and 1 documents"},
           {"shard_00000", "../../x", "expected the shard shard_00000.ids"}}) {
    std::string changed = manifest;
    const size_t at = changed.rfind(before);
    ASSERT_NE(at, std::string::npos) << before;
    folder.write("out/prepared.json", changed.replace(at, before.size(), after));
    EXPECT_NE(error().find(text), std::string::npos) << error();
  }
  folder.write("out/prepared.json", manifest);
  folder.write("out/tokenizer.json", R"({"tokenizer":"char","characters":"ab"})");
  EXPECT_NE(
      error().find("another vocabulary, of 256 tokens, than the folder's tokenizer.json, of 2"),
      std::string::npos);
}

// A text is searched in batches of 4 MB.
TEST(Prepare, FindsASeparatorWhereverItLies) {
  const TempFolder folder;
  const std::string before((4 << 20) - 5, 'a');
  const auto file = folder.write("a.txt", before + "<|endoftext|>b");
  prepare({file}, bytes_into(folder / "out"));
  EXPECT_EQ(read(folder / "out").documents, (Ids{0, std::ssize(before)}));
}

TEST(Prepare, WindowsGoAcrossDocumentsOrStayWithinThem) {
  const TempFolder folder;
  folder.write("a.txt", "abcdefg|h|ijk|lmnopqrstuvwxyz");
  PrepareOptions options = bytes_into(folder / "out");
  options.separator = "|";
  options.shard_tokens = 1;
  prepare({folder / "a.txt"}, options);
  PreparedDataset::Options reading;
  reading.val_fraction = 1;
  const PreparedDataset across(folder / "out", nullptr, reading);
  EXPECT_EQ(across.val_windows(5), 5);
  EXPECT_EQ(text_of(across.val_window_batch(1, 1, 5).y), "ghijk");
  reading.within_documents = true;
  const PreparedDataset within(folder / "out", nullptr, reading);
  EXPECT_EQ(within.val_windows(9), 1 + 0 + 1 + 2);
  ASSERT_EQ(within.val_windows(5), 2 + 0 + 1 + 3);
  reading.val_fraction = 0.2;  // within the last document
  EXPECT_EQ(PreparedDataset(folder / "out", nullptr, reading).val_windows(4), 2);
  reading.val_fraction = 1;
  std::string targets;
  const Batch all = within.val_window_batch(0, 6, 5);
  for (const int64_t id : all.y) targets += id == kIgnored ? '.' : static_cast<char>(id);
  EXPECT_EQ(targets, "bcdefg....jk...mnopqrstuvwxyz.");
  // Each window is within a document, as full as it can be, and each is found.
  reading.val_folder = folder / "out";
  const PreparedDataset train(folder / "out", nullptr, reading);
  std::map<std::string, int> seen;
  for (uint64_t step = 0; step < 300; ++step) {
    const Batch batch = train.train_batch(1, step, 1, 5);
    std::string window(1, static_cast<char>(batch.x[0]));
    for (size_t t = 0; t < 5 && batch.y[t] != kIgnored; ++t)
      window += static_cast<char>(batch.y[t]);
    const std::string text = "abcdefg|h|ijk|lmnopqrstuvwxyz";
    EXPECT_NE(text.find(window), std::string::npos) << window;
    EXPECT_EQ(window.size(), window == "ijk" ? 3u : 6u) << window;
    ++seen[window];
  }
  EXPECT_EQ(seen.size(), 2u + 1u + 10u);
}

TEST(Prepare, ATokenizerOfAnotherKindIsRefused) {
  const TempFolder folder;
  prepare({folder.write("a.txt", "some text")}, bytes_into(folder / "out"));
  EXPECT_EQ(
      error_of([&] {
        PreparedDataset(folder / "out", std::make_shared<CharTokenizer>(std::vector{U'a', U'b'}),
                        {});
      }),
      (folder / "out").string() +
          ": these data were prepared with another tokenizer (byte, 256 tokens) than char of "
          "2; name the text itself, prepare it anew, or leave out --tokenizer, if it is given");
}

std::string llm_file(const std::vector<uint16_t>& ids) {
  std::array<int32_t, 256> header{20240520, 1, static_cast<int32_t>(ids.size())};
  return std::string(reinterpret_cast<const char*>(header.data()), sizeof header) +
         std::string(reinterpret_cast<const char*>(ids.data()), 2 * ids.size());
}

TEST(Prepare, ShardsOfOtherProgramsAreJoined) {
  const TempFolder folder;
  std::vector<fs::path> files;
  for (const uint16_t first : {10, 20, 30})
    files.push_back(folder.write("x_train_00000" + std::to_string(first / 10) + ".bin",
                                 llm_file({first, static_cast<uint16_t>(first + 1)})));
  const auto val = folder.write("x_val_000000.bin", llm_file({7, 8, 9}));
  TokenDataset::Options options;
  options.val_files = {val};
  const TokenDataset data(files, nullptr, options);
  EXPECT_EQ(data.tokenizer().vocab_size(), 50257) << "of GPT-2, as the header says";
  EXPECT_EQ(data.train_batch(0, 0, 1, 5).y, (Ids{11, 20, 21, 30, 31})) << "across the files";
  EXPECT_EQ(data.val_window_batch(0, 1, 2).x, (Ids{7, 8}));
  EXPECT_EQ(data.tokenizer().encode(data.tokenizer().decode(Ids{464, 3})), (Ids{464, 3}));
}

TEST(Prepare, InTheProgram) {
  const TempFolder folder;
  folder.write("a.txt", story(30));
  const auto path = [&](const char* name) { return (folder / name).string(); };
  const std::string small =
      " --n_layer 1 --n_head 1 --n_embd 8 --block_size 16 --max_iters 4 "
      "--eval_interval 2 --sample_interval 0 --overwrite --out_dir ";
  for (const char* wrong : {"", "a.txt", "a.txt --tokenizer byte", "a.txt --out_dir x",
                            "a.txt --out_dir x --tokenizer char"})
    EXPECT_EQ(run_program(std::string("prepare ") + wrong).code, 2) << wrong;
  const Ran prepared =
      run_program("prepare --tokenizer byte --out_dir " + path("data") + " " + path("a.txt"));
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_NE(prepared.out.find("26 documents"), std::string::npos) << prepared.out;
  const std::string without = "no token for the end of a document: one follows the other without";
  EXPECT_NE(prepared.out.find(without), std::string::npos) << prepared.out;
  folder.write("bpe.json", learned("aaaa")->to_json());
  EXPECT_EQ(run_program("prepare --tokenizer " + path("bpe.json") + " --out_dir " + path("ended") +
                        " " + path("a.txt"))
                .out.find(without),
            std::string::npos);
  for (const char* pack : {"across", "within"}) {
    const Ran trained =
        run_program("train --data " + path("data") + " --pack " + pack + small + path(pack));
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(trained.out.find("(byte)"), std::string::npos) << trained.out;
    EXPECT_NE(trained.out.find("bits per byte"), std::string::npos) << trained.out;
    const Ran resumed =
        run_program("train --init_from resume --max_iters 6 --out_dir " + path(pack));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
  const Ran into =
      run_program("prepare --tokenizer byte --out_dir " + path("across") + " " + path("a.txt"));
  EXPECT_EQ(into.code, 2);
  EXPECT_NE(into.err.find("holds a run"), std::string::npos) << into.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "across/prepared.json"));
  // What is left out, or taken otherwise than it may seem, is said.
  std::filesystem::create_directories(folder / "mixed/sub");
  folder.write("mixed/a.md", "left out");
  folder.write("mixed/B.TXT", "a text");
  folder.write("mixed/sub/c.txt", "{\"text\": \"x\"}\n");
  const std::string bytes = "prepare --tokenizer byte --out_dir ";
  const Ran mixed = run_program(bytes + path("d1") + " " + path("mixed"));
  EXPECT_NE(mixed.err.find("mixed: 2 files; left out: a.md (texts are called *.txt or *.jsonl)\n"),
            std::string::npos)
      << mixed.err;
  EXPECT_NE(mixed.err.find("c.txt: all of it is taken as plain text"), std::string::npos);
  fs::create_directories(folder / "linked");
  fs::create_directory_symlink(folder / "mixed", folder / "linked/more");
  const std::string not_followed =
      "; links to folders, or to nothing, are not followed: more; name folders, too, such as " +
      path("linked/more") + "\n";
  EXPECT_TRUE(run_program(bytes + path("d3") + " " + path("linked"))
                  .err.ends_with("or nothing but UTF-8 texts, found none" + not_followed));
  folder.write("linked/a.txt", "a text");
  EXPECT_NE(run_program(bytes + path("d3") + " " + path("linked"))
                .err.find("linked: 1 file" + not_followed),
            std::string::npos);
  EXPECT_NE(run_program(bytes + path("d4") + " " + path("linked/more")).out.find("2 documents"),
            std::string::npos);
  EXPECT_NE(run_program(bytes + path("d5") + " " + path("linked/a.txt")).out.find(" 1 document, "),
            std::string::npos);
  folder.write("train.bin", "abab");
  for (const auto& [words, error] : std::vector<std::pair<std::string, std::string>>{
           {path("d2") + " " + path("train.bin"), "train.bin: expected a text, got token ids"},
           {path("d2") + " " + path("across"), "across: this is the folder of a run"},
           {path(".") + " " + path("a.txt"), " holds train.bin, in whose place"}})
    EXPECT_NE(run_program(bytes + words).err.find(error), std::string::npos) << words;
  EXPECT_FALSE(std::filesystem::exists(folder / "prepared.json"));
  const Ran alone = run_program("train --data " + path("data/shard_00000.ids") + small + path("x"));
  EXPECT_NE(alone.err.find("name the folder that it is in"), std::string::npos) << alone.err;
  const Ran within = run_program("train --pack within --data " + path("a.txt") + small + path("x"));
  EXPECT_NE(within.err.find("--pack within: expected prepared data"), std::string::npos);
  // Ids alone: samples are ids, and the run says so.
  for (int i = 1; i < 3; ++i)
    folder.write("y_train_00000" + std::to_string(i) + ".bin",
                 llm_file(std::vector<uint16_t>(40, static_cast<uint16_t>(i))));
  folder.write("y_val_000000.bin", llm_file(std::vector<uint16_t>(40, 1)));
  const Ran ids = run_program("train --data '" + path("y_train_*.bin") + "' --val_data " +
                              path("y_val_000000.bin") + small + path("ids"));
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_NE(ids.err.find("nothing says what they mean"), std::string::npos) << ids.err;
  EXPECT_EQ(ids.out.find("bits per byte"), std::string::npos) << ids.out;
  const Ran sampled =
      run_program("sample --max_new_tokens 2 --start '1 2' --out_dir " + path("ids"));
  EXPECT_EQ(sampled.out.rfind("1 2", 0), 0u) << sampled.out;
  EXPECT_NE(sampled.err.find("ids without a vocabulary"), std::string::npos) << sampled.err;
  EXPECT_EQ(run_program("sample --start Hi --out_dir " + path("ids")).code, 1);
}

}  // namespace
}  // namespace ink
