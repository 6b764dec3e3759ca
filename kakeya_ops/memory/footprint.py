"""What a node needs in memory, term by term, each with the formula and the figures that it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["head", "worker", "cache"]
TermGroup = Literal["weights", "kv", "transient", "fixed", "pool", "buffers"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What a node is to do: `concurrency` conversations of `context_tokens` each, in its `role`.

    `block_tokens`, `sink` and `window` are the cache section of the inventory; a window of None keeps all rows.
    `step_tokens` is how many tokens a prefill computes at once: None means `block_tokens`, Kakeya's own grid.
    `stored_caches` are whole caches kept beside, as mlx_lm.server does and Kakeya, which has a pool, does not.
    """

    role: Role
    context_tokens: int
    concurrency: int = 1
    block_tokens: int = 64
    sink: int = 4
    window: int | None = None
    pool_bytes: int = 0
    step_tokens: int | None = None
    stored_caches: int = 0

    @property
    def step(self) -> int:
        """Tokens of one prefill chunk."""
        return self.block_tokens if self.step_tokens is None else self.step_tokens


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the need. `source` is its formula with configuration keys and values, for people to check.

    `on_gpu` says whether it counts against the GPU's working set, or against the machine's memory alone.
    """

    name: str
    nbytes: int
    source: str
    group: TermGroup
    on_gpu: bool


@dataclass(frozen=True)
class Footprint:
    """The whole need. `largest_buffer_bytes` is the largest single allocation, and `largest_buffer` what it is."""

    terms: tuple[Term, ...]
    largest_buffer_bytes: int
    largest_buffer: str

    @property
    def gpu_bytes(self) -> int:
        """What counts against the GPU's working set."""
        return sum(term.nbytes for term in self.terms if term.on_gpu)

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(term.nbytes for term in self.terms)


__all__ = ["Footprint", "Role", "Term", "TermGroup", "Workload"]
