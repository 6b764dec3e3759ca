"""Interleaved rounds of directed requests: each new prompt all ways, one right after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from kakeya_ops.bench.asking import Asker
from kakeya_ops.bench.gaps import STREAM_TOKENS, Directed, measure_interruption
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.report import JitterLine
from kakeya_ops.bench.samples import Kind, NotMeasured, Sample
from kakeya_ops.bench.texts import counting_text

Tell = Callable[[str], None]

_WITH_WORKER: Sequence[Kind] = ("remote", "remote_hit", "hot_hit", "local")
"""In this order each finds the prompt where it should be; the last one reads no pool."""
_ALONE: Sequence[Kind] = ("local", "hot_hit")
_NEWCOMER_TOKENS = 2


@dataclass
class Rounds:
    """What is measured of `workers` and of the head, until `deadline` by `time.monotonic`.

    `live` are counts of others' requests that were seen under way between rounds.
    """

    plan: BenchPlan
    asker: Asker
    workers: Sequence[str]
    deadline: float
    tell: Tell
    samples: list[Sample] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _troubles: Counter[str] = field(default_factory=Counter)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be measured, and why."""
        return (*self._notes, *(f"{what} ({count} ×)" for what, count in self._troubles.items()))

    def warm_up(self) -> None:
        """Prompts that do not count: they tell how long a word is, and have done what is done at first use only."""
        for length in dict.fromkeys((self.plan.lengths[0], self.plan.lengths[-1])):
            if self._time_is_up("the second warm-up"):
                return
            self.tell(f"warming up with {length} tokens")
            for worker in self.workers:
                self._try("remote", self.asker.texts.make(length), length, worker)
            self._try("local", self.asker.texts.make(length), length, None)
        self.samples.clear()
        self._troubles.clear()

    def run(self) -> int:
        """All rounds, or those that there is time for; how many were completed."""
        for number in range(1, self.plan.rounds + 1):
            for length, worker in product(self.plan.lengths, self.workers or (None,)):
                what = f"round {number} of {self.plan.rounds}"
                if self._time_is_up(what):
                    return number - 1
                self.tell(f"{what}: {length} tokens{f', {worker}' if worker else ''}")
                self._measure(length, worker)
            self.look_around(self.asker.summary())
        return self.plan.rounds

    def jitter(self) -> tuple[JitterLine, ...]:
        """A stream alone, and beside a cold prompt that the head or each worker computes."""
        lines: list[JitterLine] = []
        for node in (None, *self.workers):
            if self._time_is_up("decode jitter"):
                break
            lines += self._beside(node)
        calm = [line for line in lines if line.beside is None]
        quietest = sorted(calm, key=lambda line: line.gaps.median_seconds)[:1]
        return (*quietest, *(line for line in lines if line.beside is not None))

    def look_around(self, summary: Mapping[str, Any]) -> None:
        """Note how many requests of others are under way; only where there is none of our own."""
        self.live.append(int(summary.get("live") or 0))

    def _measure(self, length: int, worker: str | None) -> None:
        text = self.asker.texts.make(length)
        for kind in _WITH_WORKER if worker else _ALONE:
            self._try(kind, text, length, worker if kind in ("remote", "remote_hit") else None)

    def _try(self, kind: Kind, text: str, length: int, node: str | None) -> None:
        try:
            self.samples.append(self.asker.ask(kind, text, length, node))
        except NotMeasured as reason:
            what = f"{kind.replace('_', ' ')}{f' of {node}' if node else ''} at {length} tokens"
            self._troubles[f"{what} was not measured: {reason}"] += 1

    def _beside(self, node: str | None) -> Iterable[JitterLine]:
        length = self.plan.lengths[-1]
        beside = f"{length} tokens computed by {node or 'the head itself'}"
        self.tell(f"decode beside {beside}")

        kind: Kind = "remote" if node else "local"

        def arrive() -> Directed:
            return self.asker.stream_request(self.asker.texts.make(length), _NEWCOMER_TOKENS, kind, node)

        running = self.asker.stream_request(counting_text(), STREAM_TOKENS, "local")
        try:
            found = measure_interruption(self.asker.stream_server(), running, arrive)
            self.asker.sample(kind, length, found.newcomer.request_id)
        except NotMeasured as reason:
            self._troubles[f"decode beside {beside} was not measured: {reason}"] += 1
            return ()
        return JitterLine(None, found.before), JitterLine(beside, found.during)

    def _time_is_up(self, what: str) -> bool:
        if time.monotonic() <= self.deadline:
            return False
        self._notes.append(f"time was up before {what}")
        return True


__all__ = ["Rounds", "Tell"]
