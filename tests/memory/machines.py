"""Hosts and needs of tests, made by hand: sizes in GiB unless they say otherwise."""

from __future__ import annotations

import dataclasses
from typing import Any

from kakeya_ops.memory.footprint import Footprint, Term
from kakeya_ops.memory.host import Figure, HostMemory, Process

GIB = 2**30
ABSENT = Figure(None, "absent", "the host did not tell")


def size(gib: float | None, origin: Any = "read", source: str = "as given") -> Figure:
    return Figure(None, "absent", source) if gib is None else Figure(int(gib * GIB), origin, source)


def mac(total: float = 16, working_set: float | None = None, **changes: Any) -> HostMemory:
    """A Mac of which everything was read; without a `working_set`, two thirds of its memory."""
    limit = total * 2 / 3 if working_set is None else working_set
    free = int(total * 0.9 * GIB)
    host = HostMemory(
        system="macos",
        total_bytes=size(total),
        working_set_bytes=size(limit),
        max_buffer_bytes=size(limit * 0.75),
        wired_limit_bytes=0,
        page_bytes=16384,
        immediate_bytes=free,
        optimistic_bytes=free,
        swap_used_bytes=0,
        compressor_bytes=0,
    )
    return dataclasses.replace(host, **changes)


def linux(total: float = 16, **changes: Any) -> HostMemory:
    """A Linux machine, which has no GPU working set."""
    free = int(total * 0.9 * GIB)
    host = HostMemory(
        system="linux",
        total_bytes=size(total),
        working_set_bytes=ABSENT,
        max_buffer_bytes=ABSENT,
        immediate_bytes=free,
        optimistic_bytes=free,
    )
    return dataclasses.replace(host, **changes)


def process(gib: float, pid: int = 77, name: str = "mlx_lm.server", **changes: Any) -> Process:
    made = Process(pid, name, int(gib * GIB), "footprint", is_mlx_server=True, is_kakeya=False)
    return dataclasses.replace(made, **changes)


def need(weights: float, *, pool: float = 0, largest: float = 0.1) -> Footprint:
    """Weights on the GPU, and a pool beside it."""
    terms = (
        Term("weights", int(weights * GIB), "as given", "weights", on_gpu=True),
        Term("pool", int(pool * GIB), "as given", "pool", on_gpu=False),
    )
    return Footprint(terms, int(largest * GIB), "a buffer")
