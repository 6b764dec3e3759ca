"""What is to be measured, and for how long at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya_ops.bench.targets import TargetKind
from kakeya_ops.errors import InputError
from kakeya_ops.secret import Secret

DEFAULT_LENGTHS = (256, 1024, 2048)
_MOST_LENGTHS = 16
_LONGEST_TOKENS = 1_000_000


@dataclass(frozen=True)
class BenchPlan:
    """The head at `url`, prompts of about each of `lengths` tokens, `rounds` times, within about `limit_seconds`.

    Of several workers only `worker` is measured if it is given. The first of `fleet_keys` signs the directives.
    `link_bytes_per_second` is what the operator measured of the link by other means, to judge transfers by; `expected`
    are targets that must be met. With a `compared_model`, a directory, ``mlx_lm.server`` runs beside the head.
    """

    url: str
    fleet_keys: Sequence[Secret]
    lengths: tuple[int, ...] = DEFAULT_LENGTHS
    rounds: int = 3
    limit_seconds: float = 600.0
    worker: str | None = None
    api_key: Secret | None = None
    link_bytes_per_second: float | None = None
    expected: tuple[TargetKind, ...] = ()
    compared_model: Path | None = None


def parse_lengths(text: str) -> tuple[int, ...]:
    """Prompt lengths such as ``256,1024``, ascending. Raises `InputError` for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words) or len(words) > _MOST_LENGTHS:
        raise InputError(f"{text!r} is no list of at most {_MOST_LENGTHS} prompt lengths", hint="such as 256,1024,2048")
    lengths = sorted({int(word) for word in words})
    if not 0 < lengths[0] <= lengths[-1] <= _LONGEST_TOKENS:
        raise InputError(f"prompt lengths are 1 to {_LONGEST_TOKENS} tokens, not {text!r}")
    return tuple(lengths)


__all__ = ["DEFAULT_LENGTHS", "BenchPlan", "parse_lengths"]
