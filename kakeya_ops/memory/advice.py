"""What would make a model fit: single changes, each found by judging again, so that none is printed that does not help.

A number is always rounded to the safe side, and what is printed is exactly what was judged: fed back, it says *fits* or
*tight*. Where the answer is *tight* already, only what makes it *fit* is worth telling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from kakeya_ops.errors import KakeyaError
from kakeya_ops.memory.footprint import Footprint, Workload, estimate
from kakeya_ops.memory.host import HostMemory, Process
from kakeya_ops.memory.scores import CPU, METAL
from kakeya_ops.memory.shape import ModelShape
from kakeya_ops.memory.verdict import Answer, MemoryVerdict, Thresholds, judge, other_servers
from kakeya_ops.memory.working_set import with_wired_limit
from kakeya_ops.units import render_bytes

ChangeKind = Literal[
    "close apps", "context", "window", "pool", "concurrency", "wired limit", "cache peer", "quantization"
]

_MIB = 2**20
_LEAST_CONTEXT_TOKENS = 64
_POOL_STEP_BYTES = 2**30 // 4
_LEAST_CLOSED_BYTES = 256 * _MIB
_BITS = (8, 6, 5, 4, 3, 2)
"""Widths that mlx-lm converts to."""


@dataclass(frozen=True)
class Question:
    """Everything that a verdict follows from. `shape` is None where there is no model, as for a cache peer."""

    shape: ModelShape | None
    load: Workload
    host: HostMemory
    thresholds: Thresholds = field(default_factory=Thresholds)
    leaving: frozenset[int] = frozenset()

    def need(self) -> Footprint | KakeyaError:
        """What is needed, or why that is not known."""
        try:
            return estimate(self.shape, self.load, CPU if self.host.system == "linux" else METAL)
        except KakeyaError as error:
            return error

    def judge(self) -> MemoryVerdict:
        """The answer. Never raises."""
        return judge(self.need(), self.host, self.thresholds, leaving=self.leaving)

    def loaded(self, **changes: object) -> Question:
        """The same with another workload."""
        return dataclasses.replace(self, load=dataclasses.replace(self.load, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Change:
    """One thing to do, with the `answer` that it leads to. `question` is what was judged, as it would then be.

    `command` does it where one command does, and `risk` is what a person should know before.
    """

    kind: ChangeKind
    sentence: str
    answer: Answer
    question: Question
    command: str | None = None
    risk: str | None = None


def advise(question: Question) -> tuple[Change, ...]:
    """What would help, the least intrusive first; nothing where it fits, or where the answer is unknown."""
    answer = question.judge().answer
    if answer in ("fits", "unknown"):
        return ()
    search = _Search(question, frozenset({"fits"} if answer == "tight" else {"fits", "tight"}))
    return tuple(search.changes())


@dataclass(frozen=True)
class _Search:
    question: Question
    wanted: frozenset[Answer]

    def changes(self) -> Iterator[Change]:
        first = (self._close_apps, self._context, self._concurrency, self._window, self._pool)
        second = (self._wired_limit, self._cache_peer, self._quantization)
        found = [change for attempt in (*first, *second) if (change := attempt())]
        yield from found
        if all(change.kind == "cache peer" for change in found):
            yield from self._with_a_smaller_pool()

    def _with_a_smaller_pool(self) -> Iterator[Change]:
        """Where nothing helps by itself: the same with the least pool, which is then enlarged as far as it goes."""
        pool = self.question.load.pool_bytes
        if pool <= _POOL_STEP_BYTES or "tight" not in self.wanted:
            return
        search = _Search(self.question.loaded(pool_bytes=_POOL_STEP_BYTES), self.wanted)
        for attempt in (
            search._context,
            search._concurrency,
            search._window,
            search._wired_limit,
            search._quantization,
        ):
            change = attempt()
            if change is None:
                continue
            found = self._largest(pool // _POOL_STEP_BYTES, partial(_with_pool, change.question)) or change.question
            sentence = f"{change.sentence}, and {_pool_words(found.load.pool_bytes, pool)}"
            yield dataclasses.replace(change, sentence=sentence, answer=found.judge().answer, question=found)

    def _close_apps(self) -> Change | None:
        host, leaving = self.question.host, self.question.leaving
        closable = [one for one in host.processes if one.pid not in leaving and one.footprint_bytes]
        closed: list[Process] = []
        for process in closable:
            if process.footprint_bytes < _LEAST_CLOSED_BYTES:
                break
            closed.append(process)
            question = dataclasses.replace(self.question, host=_without(host, closed))
            if (answer := question.judge().answer) in self.wanted:
                named = ", ".join(f"{one.name} (pid {one.pid}, {render_bytes(one.footprint_bytes)})" for one in closed)
                return Change("close apps", f"end {named}", answer, question)
        return None

    def _context(self) -> Change | None:
        load = self.question.load
        step = max(load.block_tokens, _LEAST_CONTEXT_TOKENS)
        found = self._largest(load.context_tokens // step, lambda n: self.question.loaded(context_tokens=n * step))
        if load.role == "cache" or found is None:
            return None
        now = f"instead of {load.context_tokens}"
        return self._change("context", f"model_serving.context: {found.load.context_tokens} {now}", found)

    def _concurrency(self) -> Change | None:
        load = self.question.load
        found = self._largest(load.concurrency, lambda n: self.question.loaded(concurrency=n))
        if load.role == "cache" or found is None:
            return None
        now = f"instead of {load.concurrency}"
        return self._change("concurrency", f"model_serving.concurrency: {found.load.concurrency} {now}", found)

    def _window(self) -> Change | None:
        load = self.question.load
        most = load.context_tokens if load.window is None else min(load.window, load.context_tokens)
        step = load.block_tokens
        least = max(step, load.sink)
        found = self._largest(most // step, lambda n: self.question.loaded(window=max(n * step, least)))
        if load.role == "cache" or found is None or found.load.window == load.window:
            return None
        now = "instead of the whole context" if load.window is None else f"instead of {load.window}"
        change = self._change("window", f"cache.window: {found.load.window} {now}", found)
        return dataclasses.replace(change, risk="a window forgets: answers no longer see what fell out of it")

    def _pool(self) -> Change | None:
        pool = self.question.load.pool_bytes
        found = self._largest(pool // _POOL_STEP_BYTES, partial(_with_pool, self.question))
        if found is None or found.load.pool_bytes >= pool:
            return None
        return self._change("pool", _pool_words(found.load.pool_bytes, pool), found)

    def _wired_limit(self) -> Change | None:
        """The lowest limit that makes it fit with ease, or as near to that as the machine's memory lets."""
        host, need, thresholds = self.question.host, self.question.need(), self.question.thresholds
        limit, total = host.working_set_bytes.nbytes, host.total_bytes.nbytes
        if host.system != "macos" or isinstance(need, KakeyaError) or not limit or not total:
            return None
        taken = sum(one.footprint_bytes for one in other_servers(host, self.question.leaving))
        most = (total - thresholds.reserve_of(total)) // _MIB
        for spared in (_with_ease(need.gpu_bytes, thresholds), -(-need.gpu_bytes // _MIB)):
            mebibytes = spared + -(-taken // _MIB)
            if limit < mebibytes * _MIB and mebibytes <= most:
                question = dataclasses.replace(self.question, host=with_wired_limit(host, mebibytes))
                if (answer := question.judge().answer) in self.wanted:
                    return _wired_change(question, answer, mebibytes, total)
        return None

    def _cache_peer(self) -> Change | None:
        if self.question.load.role == "cache" or "tight" not in self.wanted:
            return None
        question = self.question.loaded(role="cache")
        answer = question.judge().answer
        if answer not in self.wanted:
            return None
        pool = render_bytes(question.load.pool_bytes)
        return Change(
            "cache peer", f"role: cache: it keeps {pool} of KV for the others, without a model", answer, question
        )

    def _quantization(self) -> Change | None:
        shape = self.question.shape
        if shape is None or self.question.load.role == "cache" or "tight" not in self.wanted:
            return None
        for bits in _BITS:
            weights_bytes = _requantized(shape, bits)
            if weights_bytes >= shape.weights_bytes:
                continue
            smaller = dataclasses.replace(shape, weights_bytes=weights_bytes)
            found = dataclasses.replace(self.question, shape=smaller)
            if found.judge().answer in self.wanted:
                sizes = f"about {render_bytes(weights_bytes)} of weights instead of {render_bytes(shape.weights_bytes)}"
                return self._change("quantization", f"the model in {bits} bits: {sizes}", found)
        return None

    def _largest(self, most: int, make: Callable[[int], Question]) -> Question | None:
        """The question of the largest count from 1 to `most` whose answer is wanted, or None."""
        low, high, best = 1, most, None
        while low <= high:
            middle = (low + high) // 2
            question = make(middle)
            if question.judge().answer in self.wanted:
                best, low = question, middle + 1
            else:
                high = middle - 1
        return best

    def _change(self, kind: ChangeKind, sentence: str, question: Question) -> Change:
        return Change(kind, sentence, question.judge().answer, question)


def _with_pool(question: Question, steps: int) -> Question:
    return question.loaded(pool_bytes=steps * _POOL_STEP_BYTES)


def _pool_words(now_bytes: int, before_bytes: int) -> str:
    return f"pool_gb: {now_bytes / 2**30:g} instead of {before_bytes / 2**30:g}"


def _without(host: HostMemory, closed: list[Process]) -> HostMemory:
    """The host once `closed` have ended; what they held is free then."""
    freed = sum(one.footprint_bytes for one in closed)
    immediate, optimistic = host.immediate_bytes, host.optimistic_bytes
    return dataclasses.replace(
        host,
        processes=tuple(one for one in host.processes if one not in closed),
        immediate_bytes=None if immediate is None else immediate + freed,
        optimistic_bytes=None if optimistic is None else optimistic + freed,
    )


def _with_ease(need_bytes: int, thresholds: Thresholds) -> int:
    """The least limit in MiB of which enough is left that the fit is not called tight."""
    limit = -(-need_bytes // _MIB)
    while thresholds.is_narrow(need_bytes, limit * _MIB):
        limit += max(1, limit // 64)
    return limit


def _requantized(shape: ModelShape, bits: int) -> int:
    """The weights in `bits`, in groups of 64 with a scale and a bias of 16 bits each; what is not packed stays so."""
    packed, elements = shape.quantized_bytes, shape.quantized_elements
    if not elements:
        packed, elements = shape.weights_bytes, shape.weights_bytes // max(shape.element_bytes, 1)
    return shape.weights_bytes - packed + elements * (2 * bits + 1) // 16


def _wired_change(question: Question, answer: Answer, mebibytes: int, total_bytes: int) -> Change:
    left = render_bytes(total_bytes - mebibytes * _MIB)
    return Change(
        "wired limit",
        f"raise the GPU's wired limit to {mebibytes} MiB",
        answer,
        question,
        command=f"sudo sysctl iogpu.wired_limit_mb={mebibytes}",
        risk=f"{left} are left that macOS can be sure of, less than it plans for: too little ends in swap or a panic; "
        "a restart of the Mac undoes it",
    )


__all__ = ["Change", "ChangeKind", "Question", "advise"]
