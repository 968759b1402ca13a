#!/usr/bin/env python3
"""Byte-pair encoding against tiktoken 0.14.0 and tokenizers 0.23.3, by hand.

usage: bpe.py fixture          writes ../golden/bpe.json, which test_bpe reads
       bpe.py check PROGRAM    compares `PROGRAM tokenizer` with them on 10 MB of mixed text, and
                               loads the tokenizer.json that `PROGRAM prepare` writes into tokenizers
       bpe.py classes          their classes of characters, as data/bpe/unicode.h has them

pip install tiktoken==0.14.0 tokenizers==0.23.3
"""
import base64
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unicodedata

import tiktoken
from tokenizers import ByteLevelBPETokenizer, Regex, Tokenizer, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).parent
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?"
         rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": [*parts]}


def split(regex, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: regex}, "behavior": behavior, "invert": invert}


def digits(each):
    return {"type": "Digits", "individual_digits": each}


BYTES_GPT2 = {**BYTES, "use_regex": True}
PRE_TOKENIZERS = {
    "gpt2": BYTES_GPT2,
    "llama3": sequence(split(LLAMA3), BYTES),
    "qwen2": sequence(split(QWEN2), BYTES),
    "o200k": sequence(split(O200K), BYTES),
    "smollm2": sequence(digits(True), BYTES_GPT2),
    "digits": sequence(digits(False), BYTES_GPT2),
    "no split": BYTES,
    "removed gaps": sequence(split(LLAMA3, "Removed", True), BYTES),
    "several": sequence(split(" ", "MergedWithNext", False, "String"), split(r"\p{N}{1,3}"),
                        split("[一-龥]+|^x|e$"), BYTES),
    **{f"{behavior} {invert}": sequence(split(r"[\s\p{P}]", behavior, invert), BYTES)
       for behavior in ("Contiguous", "MergedWithPrevious", "MergedWithNext")
       for invert in (False, True)},
}
TIKTOKEN = {"gpt2": GPT2, "cl100k": LLAMA3, "o200k": O200K}

SPACES = [chr(c) for c in [*range(9, 14), 32, 0x85, 0xa0, 0x1680, 0x180e, *range(0x2000, 0x200e),
                           0x2028, 0x2029, 0x202f, 0x205f, 0x2060, 0x3000, 0xfeff]]
NEW = "\u1c89\ua7cb\ua7cd\u0897" + "".join(chr(c) for c in [
    0x105c0, 0x10d40, 0x11f50, 0x31350, 0x2ebf0, 0x113b8, 0x1e4d0, 0x1ccf0, 0x116d0, 0x1fadc])
WORDS = ("Once upon a time the GPT's HTML wasn't camelCase, they'LL say; I'M 12345 years old. "
         "naïve façade Ünïcode Привет мир שלום أَلف हिन्दी ไทย 日本語のテキスト 한국어 ǅ ʰa K ſ ẞ İ "
         "e\u0301 🦊👩\u200d🔬").split(" ")


def code_points(rng, count, low, high):
    return "".join(chr(c) for c in (rng.randrange(low, high) for _ in range(count))
                   if not 0xd800 <= c < 0xe000)


def random_text(rng, size):
    text = ""
    while len(text) < size:
        kind = rng.randrange(9)
        text += [
            lambda: rng.choice(["", " "]).join(rng.choice(WORDS) for _ in range(rng.randrange(9))),
            lambda: "".join(rng.choice(SPACES) for _ in range(rng.randrange(6))),
            lambda: "".join(rng.choice(NEW) for _ in range(rng.randrange(4))),
            lambda: code_points(rng, rng.randrange(6), 0, 0x110000),
            lambda: code_points(rng, rng.randrange(9), 0, 0x800),
            lambda: code_points(rng, rng.randrange(9), 0x4e00, 0xa000),
            lambda: "".join(rng.choice("0123456789٠½Ⅷ") for _ in range(rng.randrange(9))),
            lambda: rng.choice(["  ", "\n\n", "\r\n", "\t\t", " \n ", "!!\n\n", "//", ".\r\n\r\n",
                                "<|endoftext|>", "don't", "I'LL", "'\u017f"]) * rng.randrange(3),
            lambda: "aeiou"[rng.randrange(5)] + code_points(rng, rng.randrange(3), 0x300, 0x370),
        ][kind]()
    return text


def learned(texts, size):
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=size, show_progress=False,
                                  special_tokens=["<|endoftext|>"])
    return json.loads(tokenizer._tokenizer.to_str())


def variant(base, name):
    changed = json.loads(json.dumps(base))
    changed["pre_tokenizer"] = PRE_TOKENIZERS[name]
    changed["normalizer"] = {"type": "NFC"} if name == "qwen2" else None
    changed["model"]["ignore_merges"] = name == "llama3"
    return changed


def ids_of_tokenizers(json_object, text):
    tokenizer = Tokenizer.from_str(json.dumps(json_object))
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


def has_its_added_ids(json_object):
    tokenizer = Tokenizer.from_str(json.dumps(json_object))
    return all(tokenizer.token_to_id(token["content"]) == token["id"]
               for token in json_object["added_tokens"])


def ranks_of(base):
    letters = {}
    extra = 0
    for byte in range(256):
        prints = 0x20 < byte < 0x7f or 0xa0 < byte <= 0xff and byte != 0xad
        letters[chr(byte if prints else 256 + extra)] = byte
        extra += not prints
    return {bytes(letters[c] for c in token): i for token, i in base["model"]["vocab"].items()
            if token != "<|endoftext|>"}


def ids_of_tiktoken(ranks, pattern, text):
    return tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={}).encode_ordinary(text)


def tiktoken_file(ranks):
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())


CLASSES = ("L Lu Ll Lt Lm Lo M Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp "
           "Cc").split()
POINTS = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]


def class_of(name):
    pattern = rf"\p{{{name}}}"
    encoding = tiktoken.Encoding("x", pat_str=pattern, special_tokens={},
                                 mergeable_ranks={bytes([i]): i for i in range(256)})
    split_off = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str
    members = [c for c in POINTS if encoding.encode_ordinary(chr(c))]
    assert members == [c for c in POINTS if not split_off(chr(c))], name
    return members


def runs(members):
    found = []
    for c in sorted(members):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def hashed(members):
    value = 0
    for c in members:
        value = (value * 1000003 + c) % 2**64
    return f"{value:016x}"


def fixture():
    rng = random.Random(11)
    lesson = (HERE / "../../README.md").read_text()
    base = learned([lesson, random_text(rng, 4000)], 700)
    text = random_text(rng, 2000)
    ranks = ranks_of(base)
    tokens = {i: token for token, i in ranks.items()}
    trained_on = random_text(rng, 6000)
    result = {
        "tokenizer": base, "text": text,
        "cases": [{"name": name, **{key: variant(base, name)[key] for key in
                                    ("pre_tokenizer", "normalizer")},
                   "ignore_merges": name == "llama3",
                   "ids": ids_of_tokenizers(variant(base, name), text)}
                  for name in PRE_TOKENIZERS],
        "tiktoken": [{"name": name, "ids": ids_of_tiktoken(ranks, pattern, text)}
                     for name, pattern in TIKTOKEN.items()],
        "tiktoken_file": tiktoken_file(ranks),
        "trained_on": trained_on,
        "merges": learned([trained_on], 500)["model"]["merges"],
        "classes": {name: hashed(class_of(name)) for name in CLASSES},
    }
    (HERE / "../golden/bpe.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")


def mixed_text(rng, size):
    """English, code, CJK, and what random_text gives; at the end what is long."""
    root = HERE / "../.."
    sources = ["".join(path.read_text() for path in sorted(root.glob(pattern)))
               for pattern in ("**/README.md", "autograd/**/*.cpp")]
    parts = ["7" * 100000, "\n", "ab" * 500000, " " * 50000]
    bytes_left = size - sum(map(len, parts))
    while bytes_left > 0:
        source = rng.choice(sources)
        at = rng.randrange(len(source))
        some = source[at:at + rng.randrange(3000)] + random_text(rng, 1000) + "，。".join(
            code_points(rng, rng.randrange(60), 0x4e00, 0x9fff) for _ in range(9))
        bytes_left -= len(some.encode())
        parts.insert(0, some)
    return "".join(parts)


def check(program):
    def ran(*words):
        return subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True)

    def ids(tokenizer, text_file):
        return [int(word) for word in
                ran("tokenizer", "encode", "--tokenizer", tokenizer, text_file).stdout.split()]

    def written_again(tokenizer, folder):
        shutil.rmtree(folder / "prepared", ignore_errors=True)
        (folder / "a.txt").write_text("a")
        ran("prepare", "--tokenizer", tokenizer, "--out_dir", folder / "prepared", folder / "a.txt")
        return json.loads((folder / "prepared/tokenizer.json").read_text())

    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    print("seed", seed)
    wrong = 0

    def tell(right, *what):
        nonlocal wrong
        wrong += not right
        print("same" if right else "DIFFERENT", *what, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        some = random_text(rng, 300000)
        text_file = folder / "text.txt"
        written = folder / "tokenizer.json"
        for size, text in ((300, some), (5000, mixed_text(rng, 10_000_000))):
            text_file.write_text(text, newline="")
            base = learned([some], size)
            (folder / "train.txt").write_text(some, newline="")
            ran("tokenizer", "train", "--vocab_size", size, "--out", written, folder / "train.txt")
            ours = json.loads(written.read_text())["model"]
            tell(ours["merges"] == [list(m) if isinstance(m, list) else m.split(" ")
                                    for m in base["model"]["merges"]] and
                 ours["vocab"] == base["model"]["vocab"], size, "merges")
            for name in PRE_TOKENIZERS:
                written.write_text(json.dumps(variant(base, name)))
                expected = ids_of_tokenizers(variant(base, name), text)
                tell(ids(written, text_file) == expected, size, name, len(expected), "ids")
                again = written_again(written, folder)
                tell(ids_of_tokenizers(again, text) == expected and has_its_added_ids(again),
                     size, name, "as it was written, in tokenizers")
            for name, pattern in TIKTOKEN.items():
                file = folder / f"{name}.tiktoken"
                file.write_text(tiktoken_file(ranks_of(base)))
                expected = ids_of_tiktoken(ranks_of(base), pattern, text)
                tell(ids(file, text_file) == expected, size, file.name, len(expected), "ids")
                again = written_again(file, folder)
                tell(ids_of_tokenizers(again, text) == expected and has_its_added_ids(again),
                     size, file.name, "as it was written, in tokenizers")
    sys.exit(wrong > 0)


# Python's own Unicode has to be that of PCRE2 10.39 to 10.42.
def classes():
    assert unicodedata.unidata_version == "14.0.0"
    before = {c: unicodedata.category(chr(c)) for c in POINTS}
    for name in CLASSES:
        theirs = set(class_of(name))
        fewer = {c for c in POINTS if before[c].startswith(name)} - theirs
        added = runs(c for c in theirs if not before[c].startswith(name))
        print(name, "".join(rf"\x{{{a:x}}}" + (rf"-\x{{{b:x}}}" if b > a else "")
                            for a, b in added), "LACKS" if fewer else "", *fewer)
    ends = [end for a, b in runs(class_of("Cn")) for end in (a, b + 1)]
    print("kAssigned", *(b - a for a, b in zip([0] + ends, ends)))
    # Marks that Python's Unicode reorders and tokenizers' NFC does not: in kNewerThanNfc.
    compose = normalizers.NFC().normalize_str
    for c in map(chr, POINTS):
        for text in ("q\u0345" + c, "q" + c + "\u0334"):
            if unicodedata.combining(c) and compose(text) != unicodedata.normalize("NFC", text):
                print(f"NFC does not know U+{ord(c):04X}")


if __name__ == "__main__":
    if sys.argv[1:] == ["fixture"]:
        fixture()
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        check(sys.argv[2])
    elif sys.argv[1:] == ["classes"]:
        classes()
    else:
        sys.exit(__doc__)
