"""The head and ``mlx_lm.server`` side by side on one machine: the same prompts, one right after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from kakeya_ops.bench.gaps import STREAM_TOKENS, Directed, Interruption, measure_interruption
from kakeya_ops.bench.samples import NotMeasured
from kakeya_ops.bench.spread import Spread, spread
from kakeya_ops.bench.streams import StreamServer, TimedStream, encode_stream_request, read_stream
from kakeya_ops.bench.targets import KINDS, Target
from kakeya_ops.bench.texts import Texts, counting_text
from kakeya_ops.errors import PeerRefused

GAP_TOKENS = (2048, 6144)
_COLD_TOKENS = 4
_DECODED_TOKENS = 64


@dataclass(frozen=True)
class Comparison:
    """One measure on both sides, and the median of the rounds' ratios, ours ÷ theirs."""

    name: str
    unit: str
    ours: Spread
    theirs: Spread
    ratio: float


@dataclass
class Comparing:
    """Both servers. `requests` counts those to `ours`, `notes` says what could not be measured."""

    ours: StreamServer
    texts: Texts
    tell: Callable[[str], None]
    requests: int = 0
    notes: list[str] = field(default_factory=list)
    _pairs: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)

    def warm_up(self, theirs: StreamServer, length: int) -> None:
        """One prompt on either side that does not count: what is done at first use only."""
        self.tell(f"warming up mlx-lm with {length} tokens")
        text = self.texts.make(length)
        for server in (self.ours, theirs):
            self._read(server, text, _COLD_TOKENS)

    def first_tokens(self, theirs: StreamServer, length: int, rounds: int) -> None:
        """Cold and repeated prompts of about `length` tokens, and decoding."""
        for number in range(1, rounds + 1):
            self.tell(f"mlx-lm side by side, round {number} of {rounds}: {length} tokens")
            text = self.texts.make(length)
            for name in (f"first token, {length} tokens cold", f"first token, {length} tokens again"):
                self._add(name, "s", theirs, partial(self._first_seconds, text))
            self._add("decode", "tokens/s", theirs, partial(self._decode_rate, counting_text()))

    def gaps(self, theirs: StreamServer, tokens: int, rounds: int, *, of: str) -> None:
        """A running stream while a cold prompt of about `tokens` tokens arrives; `of` says which server theirs is."""
        for number in range(1, rounds + 1):
            self.tell(f"{of}, round {number} of {rounds}: a stream beside {tokens} cold tokens")
            text, running = self.texts.make(tokens), counting_text()
            try:
                ours, other = (self._interrupt(server, running, text) for server in (self.ours, theirs))
            except (NotMeasured, PeerRefused) as reason:
                self.notes.append(f"a stream beside {tokens} cold tokens, {of}: not measured: {reason}")
                return
            pairs = ((one.during.longest_seconds, one.during.p99_seconds) for one in (ours, other))
            longest, p99 = zip(*pairs, strict=True)
            self._keep(f"longest gap beside {tokens} cold tokens, {of}", "s", *longest)
            self._keep(f"99 % of gaps beside {tokens} cold tokens, {of}", "s", *p99)

    def in_time(self, deadline: float) -> bool:
        """Whether it is not yet `deadline` by `time.monotonic`; else it is noted, once, that not all was compared."""
        if time.monotonic() <= deadline:
            return True
        note = "time was up before all was compared with mlx-lm"
        self.notes += [] if note in self.notes else [note]
        return False

    def comparisons(self) -> tuple[Comparison, ...]:
        """All that was measured."""
        found = []
        for (name, unit), pairs in self._pairs.items():
            ours, theirs = spread(one for one, _ in pairs), spread(one for _, one in pairs)
            ratios = [one / other for one, other in pairs if other]
            if ours and theirs and ratios:
                found.append(Comparison(name, unit, ours, theirs, median(ratios)))
        return tuple(found)

    def _add(self, name: str, unit: str, theirs: StreamServer, measure: Callable[[StreamServer], float]) -> None:
        try:
            self._keep(name, unit, measure(self.ours), measure(theirs))
        except (NotMeasured, PeerRefused) as reason:
            self.notes.append(f"{name}: not measured: {reason}")

    def _keep(self, name: str, unit: str, ours: float, theirs: float) -> None:
        self._pairs.setdefault((name, unit), []).append((ours, theirs))

    def _read(self, server: StreamServer, text: str, max_tokens: int) -> TimedStream:
        self._count(server)
        stream = read_stream(server, encode_stream_request(server.model, {"prompt": text, "max_tokens": max_tokens}))
        if not stream.arrivals:
            raise NotMeasured(f"{server.url} answered with no text")
        return stream

    def _first_seconds(self, text: str, server: StreamServer) -> float:
        return self._read(server, text, _COLD_TOKENS).first_seconds

    def _decode_rate(self, text: str, server: StreamServer) -> float:
        rate = self._read(server, text, _DECODED_TOKENS).pieces_per_second
        if rate is None:
            raise NotMeasured(f"{server.url} answered with too little text")
        return rate

    def _interrupt(self, server: StreamServer, running: str, cold: str) -> Interruption:
        self._count(server, 2)
        body = encode_stream_request(server.model, {"prompt": running, "max_tokens": STREAM_TOKENS})
        newcomer = encode_stream_request(server.model, {"prompt": cold, "max_tokens": 2})
        return measure_interruption(server, Directed(body), lambda: Directed(newcomer))

    def _count(self, server: StreamServer, requests: int = 1) -> None:
        if server is self.ours:
            self.requests += requests


def judge_comparisons(found: tuple[Comparison, ...], defaults: str, chunked: str) -> tuple[Target, ...]:
    """The targets about gaps: the longest against mlx-lm's `defaults`, the 99th percentile against `chunked`."""
    wanted = (("gap", "longest gap", defaults), ("gap_p99", "99 % of gaps", chunked))
    return tuple(
        Target(KINDS[name], one.name.removeprefix(f"{begin} "), one.ratio)
        for (name, begin, of), one in ((want, one) for want in wanted for one in found)
        if one.name.startswith(begin) and one.name.endswith(f", {of}")
    )


__all__ = ["GAP_TOKENS", "Comparing", "Comparison", "judge_comparisons"]
