#!/usr/bin/env python3
"""Writes tiktoken.model, tokenizer_config.json and cases.jsonl: a small vocabulary in the form of Kimi's, and what the
tiktoken library makes of texts with it.

    pip install tiktoken==0.14.0
    python3 make.py

The vocabulary is every byte, what training on the texts below gives, and some pieces of text that no training would
give: two neighbours merge if together they are a token, however that token came about. The pattern and the names of
special tokens (those of tokenizer_config.json, reserved ones for the rest of 256 ids) follow Kimi-K2's own Python code.
"""
import base64
import json
import os
import random

import regex
import tiktoken

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIALS = 256
MERGES = 500
PATTERN = "|".join([
    r"""[\p{Han}]+""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"""
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"""
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""",
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*""",
    r"""\s*[\r\n]+""",
    r"""\s+(?!\S)""",
    r"""\s+""",
])
NAMED = [("[BOS]", 0, True), ("[EOS]", 1, True), ("<|im_end|>", 2, True), ("<|im_user|>", 3, True),
         ("<|tool_call_begin|>", 13, False), ("[UNK]", 254, True), ("[PAD]", 255, True)]
EXTRA = ["camelCaseName and HTTPServer, don't DON'T we'LL", "中文English混合123文本，標點。", "漢字かな交じり文と한국어",
         "ＦＵＬＬ Ǆ ǅ ǆ ʰ ª ⅷ", "e\u0301E\u0301 \u0301x", "a\r\n\r\n  b \t\n c", "〇々〆 㐀 𠀀𪛖", "x１２３４ ١٢٣٤ 1234567"]


def train(texts):
    """Plain byte-pair training on the pieces of PATTERN; the library below has the last word on what they are."""
    pieces = []
    for text in texts:
        pieces += [list(bytes([b]) for b in piece.encode()) for piece in regex.findall(PATTERN, text, regex.V1)]
    tokens = [bytes([b]) for b in range(256)]
    random.Random(1).shuffle(tokens)  # in real files bytes do not stand in order either
    for _ in range(MERGES):
        counts = {}
        for piece in pieces:
            for pair in zip(piece, piece[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        left, right = max(counts, key=lambda pair: (counts[pair], pair))
        if left + right not in tokens:
            tokens.append(left + right)
        for piece in pieces:
            i = 0
            while i + 1 < len(piece):
                if piece[i] == left and piece[i + 1] == right:
                    piece[i:i + 2] = [left + right]
                i += 1
    return tokens


def main():
    r = random.Random(2)
    with open(os.path.join(HERE, "../qwen3/cases.jsonl"), encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file] + EXTRA
    tokens = train(texts)
    for _ in range(150):
        data = r.choice(texts).encode()
        begin = r.randrange(max(1, len(data) - 8))
        token = data[begin:begin + r.randrange(2, 9)]
        if len(token) > 1 and token not in tokens:
            tokens.insert(r.randrange(256, len(tokens)), token)
    base = len(tokens)
    with open(os.path.join(HERE, "tiktoken.model"), "wb") as file:
        for rank, token in enumerate(tokens):
            file.write(base64.b64encode(token) + b" %d\n" % rank)
    added = {str(base + at): {"content": name, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                              "special": special} for name, at, special in NAMED}
    config = {"added_tokens_decoder": added, "bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer"}
    with open(os.path.join(HERE, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    names = {base + at: name for name, at, _ in NAMED}
    specials = {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(base, base + SPECIALS)}
    kept = {base + at for _, at, special in NAMED if not special}
    oracle = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks={t: i for i, t in enumerate(tokens)},
                               special_tokens=specials)
    texts += [f"<|im_user|>hi <|im_end|>{r.choice(texts)}[EOS]", f"<|reserved_token_{base + 7}|>", "<|reserved_token_7|>",
              "[BOS] a<|tool_call_begin|>\n[PAD", "[UNK][PAD]"]
    texts += ["".join(r.choice(r.choice(texts) or "x") for _ in range(60)) for _ in range(40)]
    with open(os.path.join(HERE, "cases.jsonl"), "w", encoding="utf-8") as file:
        for text in texts:
            ids = oracle.encode(text, allowed_special="all")
            plain = [i for i in ids if i < base or i in kept]
            case = {"text": text, "ids": ids, "decoded": oracle.decode(ids), "decoded_skip_special": oracle.decode(plain)}
            file.write(json.dumps(case, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
