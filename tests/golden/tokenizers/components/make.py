#!/usr/bin/env python3
"""Writes cases.jsonl.xz: small random tokenizer.json files and what Hugging Face's library makes of them.

    pip install tokenizers==0.21.4
    python3 make.py --count 90 --seed components --out cases.jsonl.xz

Every line holds one tokenizer ("tokenizer": the text of its tokenizer.json), "encode" cases (text, ids without and with
special tokens) and "decode" cases (ids, text with and without special tokens). A configuration that the library itself
refuses or panics on is left out.
"""
import argparse
import json
import lzma
import random

from tokenizers import Tokenizer

PARTS = ["a", "b", "ab", "abc", "cab", "e", "A", "B", "AbC", "é", "e\u0301", "\u0301", "ß", "İ", "Σ", "ς", "世", "界",
         "世界", "\u3000", "ﬁ", "①", "½", "😀", "👨\u200d👩", " ", "  ", "   ", "\n", "\t", " a", " b", "▁", "▁▁", "0", "12",
         "0123", ",", ".", "!", "?", "'", "-", "--", "_", "'s", "\u200d", "\u00a0", "\u2028", "\x00", "Å", "\u212b", "<s>",
         "</s>", "<x>", "[M]", "cat", "<0x41>", "ñ", "\u1112\u1161\u11ab", "x", "y", "zz"]
CHARACTERS = list("abcdexyzABC0123,.!?'-_ \n<>/s▁éßΣ世界😀ıi\u0301½")
ADDED = ["<s>", "</s>", "<x>", "[M]", "cat", "ab", "  ", "é", "A", "▁", "x y"]
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
LLAMA_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def byte_alphabet():
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    moved = iter(range(256, 512))
    return [chr(b if b in plain else next(moved)) for b in range(256)]


def text(r):
    return "".join(r.choice(PARTS) for _ in range(r.randrange(14)))


def pattern(r, regexes, strings):
    return {"Regex": r.choice(regexes)} if r.random() < 0.5 else {"String": r.choice(strings)}


def normalizer(r, depth=0):
    kind = r.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend", "Replace", "Replace",
                     "Sequence", "Sequence"])
    if kind == "Sequence":
        steps = [normalizer(r, depth + 1) for _ in range(r.randrange(4))] if depth < 2 else []
        return {"type": kind, "normalizers": steps}
    step = {"type": kind}
    if kind == "Strip":
        step.update(strip_left=r.random() < 0.6, strip_right=r.random() < 0.6)
    if kind == "Prepend":
        step.update(prepend=r.choice(["▁", "x", "ab"]))
    if kind == "Replace":
        step.update(pattern=pattern(r, ["\\s+", " ", "a|b", "[0-9]", "^a", "\\p{Lu}"], [" ", "ab", "▁", "'"]),
                    content=r.choice(["▁", " ", "", "xy"]))
    return step


def pretokenizer(r, byte_level, depth=0):
    kind = r.choice(["Split", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "Metaspace", "Metaspace",
                     "CharDelimiterSplit", "Sequence"])
    end = dict(BYTE_LEVEL, add_prefix_space=r.random() < 0.5, use_regex=r.random() < 0.5)
    if kind == "Sequence" and depth == 0:
        steps = [pretokenizer(r, False, 1) for _ in range(r.randrange(4))]
        return {"type": kind, "pretokenizers": steps + ([end] if byte_level else [])}
    if byte_level:
        return end
    if kind == "Sequence":
        kind = "Digits"
    step = {"type": kind}
    if kind == "Split":
        step.update(pattern=pattern(r, ["\\s+", " ", "a|b", "\\p{N}{1,3}", "\\w+", "b*", "[^a]"], [" ", "ab", "▁", "a"]),
                    behavior=r.choice(BEHAVIORS), invert=r.random() < 0.4)
    if kind == "Digits":
        step.update(individual_digits=r.random() < 0.5)
    if kind == "Punctuation":
        step.update(behavior=r.choice(BEHAVIORS))
    if kind == "CharDelimiterSplit":
        step.update(delimiter=r.choice(["a", " ", "▁"]))
    if kind == "Metaspace":
        step.update(replacement=r.choice(["▁", "▁", "_"]), prepend_scheme=r.choice(["always", "never", "first"]),
                    split=r.random() < 0.5)
    return step


def decoder(r, depth=0):
    kind = r.choice(["ByteLevel", "ByteFallback", "Fuse", "Strip", "Strip", "Metaspace", "Replace", "Replace", "Sequence",
                     "Sequence", "Sequence"])
    if kind == "Sequence":
        steps = [decoder(r, depth + 1) for _ in range(r.randrange(1, 5))] if depth < 2 else []
        return {"type": kind, "decoders": steps}
    step = dict(BYTE_LEVEL) if kind == "ByteLevel" else {"type": kind}
    if kind == "Strip":
        step.update(content=r.choice([" ", "a", "▁"]), start=r.randrange(3), stop=0 if r.random() < 0.6 else 1)
    if kind == "Metaspace":
        step.update(replacement="▁", prepend_scheme=r.choice(["always", "never", "first"]), split=True)
    if kind == "Replace":
        step.update(pattern=pattern(r, ["\\s+", "a|b", "b*", "^a", "▁"], ["▁", "ab", " a", "aa"]),
                    content=r.choice([" ", "", "xy", "▁"]))
    return step


def model(r, byte_level):
    if byte_level:
        tokens = byte_alphabet()
        pool = list("abcdexABC0123,.'-ĠĠÃ©Ċä¸ĸ")
    else:
        characters = CHARACTERS[:]
        r.shuffle(characters)
        pool = characters[:r.randrange(20, len(characters) + 1)]
        share = r.choice([0, 0.7, 1, 1])  # of bytes that have a token
        tokens = ["<unk>"] + [f"<0x{b:02X}>" for b in range(256) if r.random() < share] + pool
    merges = []
    for _ in range(r.randrange(60)):
        left, right = r.choice(pool), r.choice(pool)
        if "<0xE4>" in tokens and "<0xB8>" in tokens and r.random() < 0.05:
            left, right = "<0xE4>", r.choice(["<0xB8>", "<unk>"])
        if [left, right] in merges or len(left + right) > 12:
            continue
        merges.append([left, right])
        pool.append(left + right)
        tokens += [left + right] + ([r.choice(["zz", "abcx", "ba", "ccc"])] if r.random() < 0.1 else [])
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    if r.random() < 0.5:
        merges = [f"{left} {right}" for left, right in merges if " " not in left + right]
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>" if "<unk>" in vocab and r.random() < 0.8 else None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": r.random() < 0.5,
            "byte_fallback": not byte_level and r.random() < 0.6, "ignore_merges": r.random() < 0.3, "vocab": vocab,
            "merges": merges}


def added_tokens(r, vocab):
    out, free = [], len(vocab)
    for content in r.sample(ADDED, r.randrange(6)):
        out.append({"id": vocab.get(content, free), "content": content, "single_word": r.random() < 0.2,
                    "lstrip": r.random() < 0.3, "rstrip": r.random() < 0.3, "normalized": r.random() < 0.4,
                    "special": r.random() < 0.5})
        free += content not in vocab
    return out


def post_processor(r, tokens):
    if not tokens or r.random() < 0.4:
        return None
    first, last = r.choice(tokens), r.choice(tokens)
    kind = r.random()
    if kind < 0.4:
        out = {"type": "BertProcessing" if kind < 0.2 else "RobertaProcessing", "cls": [first["content"], first["id"]],
               "sep": [last["content"], last["id"]]}
        return dict(out, trim_offsets=True, add_prefix_space=False) if kind >= 0.2 else out

    def special(token):
        return {"SpecialToken": {"id": token["content"], "type_id": 0}}

    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    specials = {}
    for token in (first, last):
        ids = [token["id"]] if r.random() < 0.8 else [token["id"], first["id"]]
        specials[token["content"]] = {"id": token["content"], "ids": ids, "tokens": [token["content"]] * len(ids)}
    template = {"type": "TemplateProcessing", "single": [special(first), a] + ([special(last)] if r.random() < 0.5 else []),
                "pair": [a, b], "special_tokens": specials}
    return template if r.random() < 0.6 else {"type": "Sequence", "processors": [BYTE_LEVEL, template]}


def tokenizer(r):
    byte_level = r.random() < 0.3
    bpe = model(r, byte_level)
    added = added_tokens(r, bpe["vocab"])
    plain = not byte_level and r.random() < 0.3
    usual = BYTE_LEVEL if byte_level else LLAMA_DECODER
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer(r) if r.random() < 0.6 else None,
            "pre_tokenizer": None if plain else pretokenizer(r, byte_level), "post_processor": post_processor(r, added),
            "decoder": decoder(r) if r.random() < 0.7 else usual, "model": bpe}


def line(r, texts):
    """One line of the file, or None."""
    config = tokenizer(r)
    source = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    try:
        oracle = Tokenizer.from_str(source)
    except Exception:  # two added tokens of the same normalised text, for example
        return None
    vocabulary = 1 + max(list(config["model"]["vocab"].values()) + [t["id"] for t in config["added_tokens"]])
    encode, decode = [], []
    for _ in range(texts):
        try:
            string = text(r)
            ids, special = (oracle.encode(string, add_special_tokens=flag).ids for flag in (False, True))
            encode.append({"text": string, "ids": ids, "ids_with_special": special})
            any_ids = [r.randrange(vocabulary) for _ in range(r.randrange(10))]
            byte_ids = [min(r.randrange(1, 257), vocabulary - 1) for _ in range(r.randrange(10))]
            for some in (special, any_ids, byte_ids):
                plain, skipped = (oracle.decode(some, skip_special_tokens=flag) for flag in (False, True))
                decode.append({"ids": some, "decoded": plain, "decoded_skip_special": skipped})
        except BaseException as error:  # a panic of the library
            if isinstance(error, KeyboardInterrupt):
                raise
    return json.dumps({"tokenizer": source, "encode": encode, "decode": decode}, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    lines = [line(random.Random(f"{args.seed}.{i}"), args.texts) for i in range(args.count)]
    data = "".join(one + "\n" for one in lines if one).encode()
    with open(args.out, "wb") as file:
        file.write(lzma.compress(data, preset=9) if args.out.endswith(".xz") else data)


if __name__ == "__main__":
    main()
