"""The cache identity: everything that KV depends on, compared by digest, explained by first differing field."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from kakeya_ops.kv.layout import KvLayout

MASK_VERSION = 1
"""Meaning of sink and window: a key at position p is seen from q when p <= q and (p < sink or p > q - window)."""
WIRE_VERSION = 1


@dataclass(frozen=True)
class CacheIdentity:
    """The exact tuple that KV depends on. Fields are in the order in which a difference is looked for.

    `weights`, `tokenizer` and `chat_template` are SHA-256 digests in hexadecimal; `geometry`, `rope` and
    `quantization` are plain values from the model's ``config.json``; `layout` is what the model's cache really is.
    `sink` and `window` come from the inventory (a window of None keeps the whole context).
    """

    model_type: str
    weights: str
    quantization: dict[str, Any] | None
    geometry: dict[str, Any]
    rope: dict[str, Any]
    kv_dtype: str
    block_tokens: int
    sink: int
    window: int | None
    layout: KvLayout
    tokenizer: str
    chat_template: str
    mask_version: int = MASK_VERSION
    wire_version: int = WIRE_VERSION

    def to_json(self) -> dict[str, Any]:
        """A plain value, the identity document that lies beside the fleet key of a cache peer."""
        value = {field.name: getattr(self, field.name) for field in fields(self)}
        return value | {"layout": self.layout.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CacheIdentity:
        """The identity that `to_json` wrote. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        names = {field.name for field in fields(cls)}
        if set(value) != names:
            raise ValueError(f"identity document lacks or adds {sorted(names ^ set(value))}")
        return cls(**(value | {"layout": KvLayout.from_json(value["layout"])}))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON (sorted keys, no spaces), in hexadecimal."""
        return hashlib.sha256(_canonical(self.to_json()).encode("ascii")).hexdigest()

    def first_difference(self, other: CacheIdentity) -> tuple[str, object, object] | None:
        """``(field, ours, theirs)`` of the first field that differs, or None when the digests are equal."""
        ours, theirs = self.to_json(), other.to_json()
        for name, value in ours.items():
            if _canonical(value) != _canonical(theirs[name]):
                return name, getattr(self, name), getattr(other, name)
        return None


def _canonical(value: object) -> str:
    """The text that digests are over; it tells apart 1, 1.0 and True, which are equal in Python."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True)
class Runtime:
    """What the arithmetic itself depends on: where it differs, equal identities give KV that is only close."""

    mlx: str
    mlx_lm: str
    backend: str
    device: str
    threads: str

    def to_json(self) -> dict[str, str]:
        """A plain value for the card."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, value: dict[str, str]) -> Runtime:
        """The runtime that `to_json` wrote. Raises `TypeError` for anything else."""
        return cls(**value)

    def first_difference(self, other: Runtime) -> tuple[str, object, object] | None:
        """``(field, ours, theirs)`` of the first field that differs, or None when equal."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            if ours != theirs:
                return field.name, ours, theirs
        return None


__all__ = ["MASK_VERSION", "WIRE_VERSION", "CacheIdentity", "Runtime"]
