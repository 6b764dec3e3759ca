"""Prompts of about a wanted length that nobody has sent before."""

from __future__ import annotations

from kakeya_ops.verify.probe import probe_text
from kakeya_ops.wire.signing import new_nonce

_FIRST_GUESS = 2.0
"""Tokens of a word of two hexadecimal digits and a space, before any prompt was counted."""


class Texts:
    """Makes prompts, and learns from the head's counts how many tokens a word is."""

    def __init__(self) -> None:
        self._tokens_per_word = _FIRST_GUESS
        self._words: dict[str, int] = {}

    def make(self, tokens: int) -> str:
        """A new prompt of about `tokens` tokens; its first block is new as well."""
        words = max(round(tokens / self._tokens_per_word), 1)
        text = probe_text(new_nonce(), words)
        self._words[text] = words
        return text

    def learn(self, text: str, tokens: int) -> None:
        """Heed that `text`, which was made here, had `tokens` tokens."""
        if words := self._words.pop(text, None):
            self._tokens_per_word = max(tokens / words, 0.1)


def counting_text() -> str:
    """A short prompt that nobody has sent before, and that a model goes on with for long."""
    return f"{new_nonce()}\nCounting up and up: {' '.join(str(number) for number in range(1, 33))}"


__all__ = ["Texts", "counting_text"]
