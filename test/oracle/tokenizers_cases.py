"""Writes tokenizers.json.gz: small tokenizers, trained on the text below, and what the package tokenizers makes of tricky strings.

A record has the tokenizer.json, or the name of an earlier record and the parts that replace its parts. `ids` are those of the texts, with
special tokens around them; `decoded` are the texts of these ids, and `skipped` without special tokens, where that differs. `lists` are random
ids, and `listed` their texts. Needs tokenizers 0.23.
"""

import gzip
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.
However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so
well fixed in the minds of the surrounding families, that he's considered the rightful property of some one or other.
def step(model, batch):\n    loss = model.loss(batch["ids"], batch["labels"])\n    return loss.item() / 1024
In 1999, 12345 people paid 3.50 EUR; 2,000,000 didn't. We'll see: they've won, I'm sure you'd agree. DON'T SHOUT!
Der Fluß fließt über die Brücke, süße Äpfel schmecken früh. L'été, les élèves dînent à Orléans; ça va? El niño soñó.
Москва и Санкт-Петербург находятся в России. Η Αθήνα είναι η πρωτεύουσα της Ελλάδας. ירושלים היא עיר. مدينة القاهرة كبيرة
東京は日本の首都です。北京是中国的首都。서울은 한국의 수도이다. นี่คือภาษาไทย हिन्दी में लिखा है 😀 👍🏽 🎉 ∑ ∫ ≤ € — “quoted” …
"""

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

TEXTS = [
    "", " ", "  ", "   x", "x   ", "\n", "\n\n\n", "\t", "a\r\nb", " \n \n x", "a \n", "\u00a0a\u00a0\u00a0b", "\u3000a", "a\u2028b", "\u200b",
    "Hello world", " Hello world", "hello  world   again", "It's we've I'LL you'D don't 'tis ' s", "’s it’s", "X'S'T",
    "1234567890", "3.14159", "1,000,000", "x2y3", "²³¼", "٣٤٥", "Ⅻ", "12ab34",
    "ÀÉÎõü", "A\u0300e\u0301", "ﬁnd", "Ａｂｃ", "ß ẞ", "İstanbul ıI", "Σίσυφος ΣΑΣ", "ǅ", "Å \u212b",
    "日本語のテキスト", "中文，标点。", "漢字かな交じり文123", "한국어", "\u1112\u1161\u11ab", "ไทยไม่มีช่องว่าง", "हिन्दी", "العربية", "עברית",
    "😀", "👩‍👩‍👧‍👦 family", "👍🏽👍", "🇩🇪🇫🇷", "❤️", "\U0001d400\U0001d401", "\U00020000", "a\u0301\u0302\u0303",
    "\ufeffbom", "\x00\x01\x7f", "a\u00adb", "\u202eabc", "\ufffd", "a\x00b", "\u0378",
    "http://a.b/c?d=e&f=%20#g", "user@example.com", "C:\\dir\\file.txt", "<b>bold</b>", "{{x}}", "a_b-c.d", "!!!???...", "--- ***", "=>", "$€£¥",
    "<s>", "</s> <s>", "<|end|>", "a<|end|>b", " <|end|> ", "[CLS] [SEP] [MASK]", "[MASK]ed", "<unk>", "<0x41>", "<0xZZ>", "▁a▁▁b", "Ġa", "##ing",
    "camelCase snake_case SCREAMING", "antidisestablishmentarianism" * 5, "ab" * 60, "aaaaaaaaaaaaaaaaa", "the the the the",
    "    def f(x):\n        return x  # c\n\n\n", "\tif a:\r\n\t\tb\r\n", "a , b . c ! d ? e 's f n't", "( x ) [ y ]", "q\u0323\u0307",
]

ALPHABET = (
    list("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 .,!?'\"-_/\n\t<>[]|#▁Ġé ") + ["  ", " the", "'s", "'LL", "ing", "<s>", "<|end|>", "[MASK]", "world", "Hello", "case"]
    + list("ÀßΣςЖщ漢字かカ한글ไ้हि۵€—“…😀🏽\u200d\u0301\u00a0\u3000\u2028\ufeff\u00ad")
)


def random_numbers(seed):
    state = seed
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield state >> 12


def random_texts(count):
    numbers = random_numbers(11)
    return ["".join(ALPHABET[next(numbers) % len(ALPHABET)] for _ in range(next(numbers) % 30)) for _ in range(count)]


def trained(tokenizer, trainer):
    tokenizer.train_from_iterator(TEXT.split("\n"), trainer)
    return json.loads(tokenizer.to_str())


def byte_level(pre_tokenizer, post, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer, tokenizer.decoder, tokenizer.post_processor = pre_tokenizer, decoders.ByteLevel(), post
    if normalizer:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=480, special_tokens=["<s>", "<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    return trained(tokenizer, trainer)


def split(regex):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(regex), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BOS = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])


def sentence_piece_bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = BOS
    special = ["<unk>", "<s>", "</s>", *BYTES]
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=special, limit_alphabet=60, show_progress=False)
    made = trained(tokenizer, trainer)
    # Files of Llama have bytes in the vocabulary only.
    made["added_tokens"] = made["added_tokens"][:3]
    return made


def unigram(byte_fallback):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first" if byte_fallback else "always")
    tokenizer.decoder = (
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
        if byte_fallback
        else decoders.Metaspace()
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    made = trained(tokenizer, trainer)
    if byte_fallback:
        made["model"]["byte_fallback"] = True
        made["model"]["vocab"] += [[byte, 0.0] for byte in BYTES]
    made["model"]["vocab"] = [[token, round(score, 6)] for token, score in made["model"]["vocab"]]
    return made


def word_piece(**options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, limit_alphabet=140, show_progress=False)
    return trained(tokenizer, trainer)


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    trainer = trainers.WordLevelTrainer(vocab_size=200, special_tokens=["<unk>", "<s>"], show_progress=False)
    return trained(tokenizer, trainer)


def added(content, id, **flags):
    fields = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False, **flags}
    return {"id": id, "content": content, **fields}


def records():
    plain = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), plain)
    template = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    yield "llama3", byte_level(split(LLAMA3), processors.Sequence([plain, template]), ignore_merges=True)
    yield "qwen2", byte_level(split(QWEN2), plain, normalizers.NFC())
    yield "llama2", sentence_piece_bpe()
    yield "unigram", unigram(byte_fallback=False)
    yield "unigram with bytes", unigram(byte_fallback=True)
    yield "bert uncased", word_piece()
    yield "bert cased", word_piece(lowercase=False)
    yield "word level", word_level()
    yield "gpt2 with a prefix", {"base": "gpt2", "pre_tokenizer": json.loads(pre_tokenizers.ByteLevel().__getstate__())}
    legacy = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    yield "llama2 with Metaspace", {"base": "llama2", "normalizer": None, "pre_tokenizer": legacy}
    tokens = [
        added("<unk>", 0, special=True, normalized=False),
        added("<s>", 1, special=True, normalized=False),
        added("</s>", 2, special=True, normalized=False),
        added("<|end|>", 560, lstrip=True, special=True, normalized=False),
        added("[MASK]", 561, rstrip=True),
        added("world", 562, single_word=True),
        added("Hello", 563, normalized=False),
        added("case", 564, lstrip=True, rstrip=True, single_word=True, normalized=False),
    ]
    yield "llama2 with tokens", {"base": "llama2", "added_tokens": tokens}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            pattern = {"type": "Split", "pattern": {"Regex": r"\p{L}+"}, "behavior": behavior, "invert": invert}
            bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
            steps = {"type": "Sequence", "pretokenizers": [pattern, bytes_only]}
            yield f"{behavior}, {invert}", {"base": "gpt2", "pre_tokenizer": steps}
    punctuation = {"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Digits", "individual_digits": False},
        {"type": "CharDelimiterSplit", "delimiter": "a"},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    yield "punctuation", {"base": "gpt2", "pre_tokenizer": punctuation}


def main():
    texts = TEXTS + random_texts(90)
    made, whole = [], {}
    for name, parts in records():
        base = parts.pop("base", None)
        whole[name] = {**whole[base], **parts} if base else parts
        tokenizer = Tokenizer.from_str(json.dumps(whole[name]))
        ids = [tokenizer.encode(text).ids for text in texts]
        numbers, size = random_numbers(7), tokenizer.get_vocab_size()
        lists = [[next(numbers) % size for _ in range(next(numbers) % 12)] for _ in range(24)]
        decoded = [tokenizer.decode(each, skip_special_tokens=False) for each in ids]
        skipped = [tokenizer.decode(each, skip_special_tokens=True) for each in ids]
        made.append({
            **{"name": name, "base": base, "parts": parts, "ids": ids, "decoded": decoded},
            "skipped": {at: text for at, text in enumerate(skipped) if text != decoded[at]},
            **{"lists": lists, "listed": [tokenizer.decode(each, skip_special_tokens=False) for each in lists]},
        })
    path = Path(__file__).with_name("tokenizers.json.gz")
    content = json.dumps({"texts": texts, "tokenizers": made}, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(gzip.compress(content.encode(), mtime=0))
    print(path, len(content), path.stat().st_size)


if __name__ == "__main__":
    main()
