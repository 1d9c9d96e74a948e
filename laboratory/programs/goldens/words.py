"""A tokenizer and a text of random words, in place of those that Megatron-LM's T5 tests download."""

import random
import struct
from pathlib import Path

WORDS = 28996
"""The number of words of bert-large-cased, whose vocabulary the tests use."""
MORE = 100
"""The number of further words, <extra_id_0> ..., that follow them."""
MAGIC = b"MMIDIDX\x00\x00"
INT32 = 4
"""The code of this type in an index."""


class Tokenizer:
    """A tokenizer with the attributes that T5's data set asks for."""

    def __init__(self):
        self.vocab_size = WORDS + MORE
        self.inv_vocab = {number: f"w{number}" for number in range(self.vocab_size)}
        self.vocab = {word: number for number, word in self.inv_vocab.items()}
        self.pad, self.cls, self.sep, self.mask = 0, 101, 102, 103
        self.bos, self.eos, self.eod = self.cls, self.sep, self.sep
        self.additional_special_tokens_ids = list(range(WORDS, WORDS + MORE))
        self.unique_identifiers = {"class": "random words"}


def write(prefix: Path, documents=400, sentences=24, length=32):
    """Writes Megatron's indexed data set: PREFIX.bin and PREFIX.idx."""
    chance = random.Random(0)
    count = documents * sentences
    words = [chance.randrange(1000, WORDS) for _ in range(count * length)]
    prefix.with_suffix(".bin").write_bytes(struct.pack(f"<{len(words)}i", *words))
    index = MAGIC + struct.pack("<QBQQ", 1, INT32, count, documents + 1)
    index += struct.pack(f"<{count}i", *[length] * count)
    index += struct.pack(f"<{count}q", *range(0, 4 * length * count, 4 * length))
    index += struct.pack(f"<{documents + 1}q", *range(0, count + 1, sentences))
    prefix.with_suffix(".idx").write_bytes(index)
