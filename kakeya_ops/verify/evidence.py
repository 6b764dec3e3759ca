"""What one probe saw, as it was told: nothing here has been believed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_ops.secret import Secret


class MissingFact(Exception):
    """A check cannot be judged; the message names the fact that is missing."""


@dataclass(frozen=True)
class Facts:
    """A JSON document from elsewhere, called `name` in messages."""

    name: str
    document: Mapping[str, Any] | None

    def get(self, *path: str) -> Any:
        """The value at `path`. Raises `MissingFact` if there is none, or it is null."""
        value: Any = self.document
        if value is None:
            raise MissingFact(f"there is no {self.name}")
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
            if value is None:
                raise MissingFact(f"{self.name} has no {'.'.join(path)}")
        return value

    def value(self, name: str) -> Any:
        """The value of `name`; None if it is null or there is none."""
        return (self.document or {}).get(name)

    def number(self, *path: str) -> float:
        """The number at `path`. Raises `MissingFact` if there is none."""
        value = self.get(*path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MissingFact(f"{self.name} has no number at {'.'.join(path)}")
        return value

    def within(self, *path: str) -> Facts:
        """The document at `path`. Raises `MissingFact` if there is none."""
        value = self.get(*path)
        if not isinstance(value, Mapping):
            raise MissingFact(f"{self.name} has no {'.'.join(path)}")
        return Facts(f"{self.name}'s {path[-1]}", value)


@dataclass(frozen=True)
class Answer:
    """One of the probe's requests: what it asked (`nonce`), what it was told, and the receipt it then fetched."""

    label: str
    nonce: str
    request_id: str
    prompt_tokens: int
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    receipt: Mapping[str, Any] | None

    @property
    def facts(self) -> Facts:
        """The receipt."""
        return Facts(f"receipt of the {self.label} request", self.receipt)


@dataclass(frozen=True)
class Evidence:
    """All that one probe saw. `head` and the worker's `card` are what the head said before and after the requests."""

    keys: Sequence[Secret]
    min_tokens: int
    head: Facts
    head_after: Facts
    card: Facts
    card_after: Facts
    cold: Answer
    again: Answer
    local: Answer

    @property
    def block_tokens(self) -> int:
        """P, the step of the prefill grid, as the cold receipt has it. Raises `MissingFact` if it makes no sense."""
        value = self.cold.facts.number("block_tokens")
        if not isinstance(value, int) or value < 1:
            raise MissingFact(f"a block of {value} tokens makes no sense")
        return value

    @property
    def floor_blocks(self) -> int:
        """The whole blocks before the prompt's last token. Raises `MissingFact` if there are none to judge by."""
        blocks = (self.cold.prompt_tokens - 1) // self.block_tokens
        if blocks < 1:
            raise MissingFact(f"a prompt of {self.cold.prompt_tokens} tokens has no whole block before its last token")
        return blocks

    @property
    def floor_tokens(self) -> int:
        """The least that the worker must have computed."""
        return self.floor_blocks * self.block_tokens


__all__ = ["Answer", "Evidence", "Facts", "MissingFact"]
