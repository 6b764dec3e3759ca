"""Requests to a running engine, and a way to hold it up between two steps."""

from __future__ import annotations

import threading
from typing import Any

from engine_bench import Parts
from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.contract import DecodeRequest, Sampling
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from listeners import DEADLINE_SECONDS, Blocks, Listener


def ask(engine: Engine, tokens: tuple[int, ...], count: int = 6, **options: Any) -> Listener:
    """Start a greedy request, or one with `sampling`."""
    listener = Listener()
    sampling = options.pop("sampling", Sampling())
    engine.decode(DecodeRequest("r", tokens, count, sampling), listener, **options)
    return listener


def export(engine: Engine, tokens: tuple[int, ...], blocks: int) -> Parts:
    """Blocks computed by a job, every state among them."""
    kept = Blocks()
    engine.prefill(PrefillJob(tokens, blocks, kept.keep, kept.done, keep_states=frozenset(range(blocks))))
    assert kept.wait() is None
    return kept.parts


def assemble(engine: Engine, parts: Parts, blocks: int) -> Assembly:
    assembly = engine.open_import(blocks)
    for block, part in engine.layout.needed(blocks):
        assembly.place(block, part, parts[block][part].data)  # type: ignore[union-attr]
    return assembly


class Gate:
    """Holds the compute thread up between two steps, so that what a test does next finds it there."""

    def __init__(self, engine: Engine) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()
        threading.Thread(target=lambda: engine.call(self._hold)).start()
        assert self._reached.wait(DEADLINE_SECONDS)

    def _hold(self) -> None:
        self._reached.set()
        assert self._opened.wait(DEADLINE_SECONDS)

    def open(self) -> None:
        self._opened.set()


def settle(engine: Engine) -> None:
    """Wait until a whole round has followed everything so far."""
    engine.call(lambda: None)
    engine.call(lambda: None)


__all__ = ["Gate", "ask", "assemble", "export", "settle"]
