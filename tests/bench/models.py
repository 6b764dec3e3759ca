"""The models of the benchmark, and prompts of an exact length in their tokens that nobody has seen before."""

from __future__ import annotations

import random
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from tokenizers import Tokenizer

from kakeya_ops.demo.gguf import convert_llama_gguf
from kakeya_ops.demo.smollm2 import find_smollm2
from kakeya_ops.demo.tiny_model import make_tiny_llama


def make_tiny(folder: Path) -> Path:
    """The demo's tiny model."""
    return make_tiny_llama(folder / "tiny")


def make_real(folder: Path) -> Path:
    """The real small model with every weight in float32, the one kind that a BLAS makes fast."""
    from mlx_lm import convert

    # What it prints is no part of the result.
    with tempfile.TemporaryDirectory(dir=folder) as quantized, redirect_stdout(sys.stderr):
        convert_llama_gguf(find_smollm2(), Path(quantized))
        convert(quantized, str(folder / "smollm2-float32"), dequantize=True, dtype="float32")
    return folder / "smollm2-float32"


class Prompts:
    """Texts of common words in random order."""

    def __init__(self, model: Path, seed: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._random = random.Random(seed)
        vocabulary = self._tokenizer.get_vocab()
        spaced = sorted(token[1:] for token in vocabulary if token.startswith("Ġ") and token[1:].isascii())
        self._words = [word for word in spaced if word.isalpha() and word.islower() and len(word) > 2]

    @property
    def special_tokens(self) -> list[int]:
        """Those that would end an answer early."""
        return sorted(token for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special)

    def tokens(self, text: str) -> list[int]:
        """The tokens of `text`."""
        return list(self._tokenizer.encode(text).ids)

    def make(self, count: int) -> str:
        """A new text of exactly `count` tokens."""
        while True:
            text = "The"
            while (short := count - len(self.tokens(text))) > 0:
                text += "".join(f" {self._word()}" for _ in range(max(short // 16, 1)))
            while len(self.tokens(text)) > count:
                text = text[:-1]
            if len(self.tokens(text)) == count:
                return text

    def _word(self) -> str:
        return self._random.choice(self._words) if self._words else f"{self._random.randrange(10**6)}"
