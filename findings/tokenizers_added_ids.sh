#!/usr/bin/env bash
# The id of an added token in a tokenizer.json counts for nothing, unless the vocabulary has it, too.
#
# Each entry of "added_tokens" has an id. When tokenizers loads the file, a token whose text is in
# model.vocab takes the id from there, and any other takes the next free one: the size of the
# vocabulary, or one more than the last added token. The id in the file is not used, and nothing is
# said. If the vocabulary has a gap where the token's id would be, its size is the id of another
# token: then two tokens have one id, and decode() gives the added one for both. Who writes such a
# file (from cl100k_base, whose <|endoftext|> is 100257 after 100256 ranks) has to put the added
# tokens into model.vocab as well.
#
# Seen with tokenizers 0.23.3, for the vocabulary a, b and <end>, which the file gives an id:
#   a 0, b 1, <end> 5                            <end> is 2
#   a 1, b 2, <end> 0                            <end> is 2; "b" is decoded to "<end>"
#   a 1, b 2, <end> 0, in the vocabulary, too    <end> is 0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q tokenizers==0.23.3 2>"$work/log" || { cat "$work/log"; exit 1; }

cat >"$work/load.py" <<'PYTHON'
import json

from tokenizers import Tokenizer

for vocab, end in (({"a": 0, "b": 1}, 5), ({"a": 1, "b": 2}, 0), ({"<end>": 0, "a": 1, "b": 2}, 0)):
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "added_tokens": [{"id": end, "content": "<end>", "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []}}))
    b = tokenizer.decode(tokenizer.encode("b").ids, skip_special_tokens=False)
    print(f"{json.dumps(vocab)}, <end> {end}: <end> is {tokenizer.token_to_id('<end>')}, b is decoded to {b}")
PYTHON
seen=$("$work/venv/bin/python" "$work/load.py")
printf '%s\n' "$seen"
expected='{"a": 0, "b": 1}, <end> 5: <end> is 2, b is decoded to b
{"a": 1, "b": 2}, <end> 0: <end> is 2, b is decoded to <end>
{"<end>": 0, "a": 1, "b": 2}, <end> 0: <end> is 0, b is decoded to b'
[[ $seen == "$expected" ]] || { echo "This has changed."; exit 1; }
