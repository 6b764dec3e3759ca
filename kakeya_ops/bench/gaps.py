"""How steadily a stream decodes, alone and while somebody's cold prompt arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kakeya_ops.bench.samples import NotMeasured
from kakeya_ops.bench.spread import quantile
from kakeya_ops.bench.streams import (
    BackgroundStream,
    StreamServer,
    TimedStream,
    read_stream,
)

SETTLED_PIECES = 8
"""Of a stream's pieces the first so many are not measured."""
STREAM_TOKENS = 4096
"""The most that a running stream is asked for."""
_CALM_PIECES = 64
_WAIT_SECONDS = 120.0
_AFTER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """The times between pieces of a stream: half of them are at most `median_seconds`, 99 % `p99_seconds`."""

    count: int
    median_seconds: float
    p99_seconds: float
    longest_seconds: float


@dataclass(frozen=True)
class Directed:
    """A streaming request: its body, and the headers that direct it."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Interruption:
    """A running stream before and during a newcomer's time to the first token; how the `newcomer` was answered."""

    before: Gaps
    during: Gaps
    newcomer: TimedStream


def measure_interruption(
    server: StreamServer, long_running: Directed, newcomer: Callable[[], Directed]
) -> Interruption:
    """Let one stream run, and have a cold prompt arrive beside it.

    `newcomer` is called when it is due, since a directive is good for a minute only. Raises `NotMeasured` when the
    stream ended too early to tell, and what `read_stream` raises.
    """
    with BackgroundStream(server, long_running.body, long_running.headers) as running:
        _await(running, lambda timed: len(timed.arrivals) >= SETTLED_PIECES + _CALM_PIECES)
        arrival = newcomer()
        other = read_stream(server, arrival.body, arrival.headers)
        if not other.arrivals:
            raise NotMeasured("the cold prompt was answered with no text")
        heard = len(running.timed.arrivals)
        running.wait(lambda timed: len(timed.arrivals) > heard, _AFTER_SECONDS)
        arrivals = list(running.timed.arrivals)
    if arrivals[-1] < other.arrivals[0]:
        raise NotMeasured("the running stream ended before the cold prompt had its first token")
    return Interruption(
        before=summarize_gaps(gaps_between(arrivals[SETTLED_PIECES:], arrivals[SETTLED_PIECES], other.began)),
        during=summarize_gaps(gaps_between(arrivals, other.began, other.arrivals[0])),
        newcomer=other,
    )


def gaps_between(arrivals: Sequence[float], began: float, ended: float) -> list[float]:
    """The times between arrivals that lie at least in part within ``[began, ended]``."""
    return [later - earlier for earlier, later in pairwise(arrivals) if later > began and earlier < ended]


def summarize_gaps(gaps: Sequence[float]) -> Gaps:
    """Raises `NotMeasured` without any."""
    if not gaps:
        raise NotMeasured("there were no two pieces of text to measure between")
    return Gaps(len(gaps), quantile(gaps, 0.5), quantile(gaps, 0.99), max(gaps))


def _await(running: BackgroundStream, enough: Callable[[TimedStream], bool]) -> None:
    if running.wait(enough, _WAIT_SECONDS):
        return
    if running.error:
        raise running.error
    raise NotMeasured(f"the stream ended after {len(running.timed.arrivals)} pieces, too few to measure between")


__all__ = [
    "SETTLED_PIECES",
    "STREAM_TOKENS",
    "Directed",
    "Gaps",
    "Interruption",
    "gaps_between",
    "measure_interruption",
    "summarize_gaps",
]
