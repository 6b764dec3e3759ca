"""A model's configuration as the model file of mlx-lm reads it: typed keys, defaults that are told, nothing guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kakeya_ops.errors import FootprintUnknown

_MOST = 2**31
"""More than any sensible dimension."""


@dataclass(frozen=True)
class Config:
    """One section of ``config.json``. What was missing and has a default, or is there and ignored, goes to `notes`.

    Every method raises `FootprintUnknown`, naming the key, where the value is needed and is missing or not of its kind.
    """

    model_type: str
    values: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)

    def count(self, key: str, default: int | None = None, why: str = "the model file's default") -> int:
        """The positive integer `key`; where it is missing or null, `default`, and a note that says `why`."""
        value = self.optional_count(key)
        if value is not None:
            return value
        if default is None:
            raise self.unknown(f"its config.json does not say {key}")
        self.note(f"{key} is missing: {default}, {why}")
        return default

    def optional_count(self, key: str) -> int | None:
        """The positive integer `key`, or None where it is missing or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST:
            raise self.unknown(f"{key} in its config.json is {value!r:.40}, not a positive whole number")
        return value

    def count_or_zero(self, key: str, default: int = 0) -> int:
        """As `count`, but 0 is a value too, and the default needs no telling."""
        return default if self.values.get(key) is None else 0 if self.values[key] == 0 else self.count(key)

    def flag(self, key: str, default: bool = False) -> bool:
        """The truth value `key`."""
        value = self.values.get(key, default)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.unknown(f"{key} in its config.json is {value!r:.40}, neither true nor false")

    def words(self, key: str) -> tuple[str, ...] | None:
        """The list of words `key`, or None where it is missing or null."""
        value = self._sequence(key)
        if value is None or all(isinstance(word, str) for word in value):
            return None if value is None else tuple(value)
        raise self.unknown(f"{key} in its config.json is not a list of words")

    def indices(self, key: str) -> frozenset[int] | None:
        """The list of whole numbers `key`, or None where it is missing or null."""
        value = self._sequence(key)
        if value is None or all(isinstance(index, int) for index in value):
            return None if value is None else frozenset(value)
        raise self.unknown(f"{key} in its config.json is not a list of whole numbers")

    def section(self, key: str) -> Config | None:
        """The section `key` with the same notes, or None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.unknown(f"{key} in its config.json is not a section")
        return Config(self.model_type, value, self.notes)

    def has(self, key: str) -> bool:
        """Whether `key` is there and not null."""
        return self.values.get(key) is not None

    def note(self, sentence: str) -> None:
        """Tell something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def unknown(self, missing: str) -> FootprintUnknown:
        """The error that says what is missing."""
        return FootprintUnknown(self.model_type, missing)

    def _sequence(self, key: str) -> Sequence[Any] | None:
        value = self.values.get(key)
        if value is None or isinstance(value, list | tuple | str):
            return value
        raise self.unknown(f"{key} in its config.json is not a list")


__all__ = ["Config"]
