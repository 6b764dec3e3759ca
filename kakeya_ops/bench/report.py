"""What a bench found, as plain values: the same for the tables and for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from kakeya_ops.bench.compare import Comparison
from kakeya_ops.bench.crossover import Crossover, Point, find_crossover
from kakeya_ops.bench.gaps import Gaps
from kakeya_ops.bench.samples import Kind, Sample
from kakeya_ops.bench.spread import Spread, spread
from kakeya_ops.bench.targets import Target


@dataclass(frozen=True)
class LocalLine:
    """Prompts of about `length` tokens that the head computed itself; `hot_first_token` of those that it held."""

    length: int
    prompt_tokens: float
    tokens_per_second: Spread | None
    first_token: Spread | None
    hot_first_token: Spread | None


@dataclass(frozen=True)
class WorkerLine:
    """The same with one worker; `hit_first_token` of prompts that it held, `hit_bytes` what it sent of one then."""

    length: int
    prompt_tokens: float
    tokens_per_second: Spread | None
    first_token: Spread | None
    hit_first_token: Spread | None
    hit_bytes: float | None


@dataclass(frozen=True)
class LinkLine:
    """The way to a worker that was in use. Rates are bytes per second.

    `estimated` is the head's running estimate, `measured` payload received, checked and placed by this bench's hits,
    and `raw` what the path itself carries, None where nobody measured it (`raw_source` says who did).
    """

    network: str
    address: str
    port: int | None
    rtt_seconds: float | None
    estimated: float | None
    measured: Spread | None
    raw: float | None = None
    raw_source: str = "not measured"


@dataclass(frozen=True)
class WorkerResult:
    """One worker. `predicts` tells whether the head predicts at all; then `predicted_tokens` None means never."""

    node: str
    epoch: int
    lines: tuple[WorkerLine, ...]
    link: LinkLine
    crossover: Crossover | None
    predicts: bool = False
    predicted_tokens: int | None = None
    prediction_ratio: float | None = None


@dataclass(frozen=True)
class JitterLine:
    """How steadily a stream decoded `beside` something, None beside nothing."""

    beside: str | None
    gaps: Gaps


@dataclass(frozen=True)
class BenchReport:
    """One run. `bystanders` say what others did meanwhile, `notes` what could not be measured and why."""

    url: str
    head: str
    rounds: int
    lengths: tuple[int, ...]
    seconds: float
    local: tuple[LocalLine, ...]
    workers: tuple[WorkerResult, ...]
    jitter: tuple[JitterLine, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()
    bystanders: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether anything was."""
        return any(line.first_token for line in self.local) or any(worker.lines for worker in self.workers)

    @property
    def passed(self) -> bool:
        """Whether anything was measured, and every target that the user set is met."""
        return self.measured and all(target.met is True for target in self.targets if target.demanded)

    def to_json(self) -> dict[str, Any]:
        """A plain value for ``--json``."""
        return {"passed": self.passed, **asdict(self)}


def summarize_local(samples: Iterable[Sample]) -> tuple[LocalLine, ...]:
    """One line for each length at which the head computed or held a prompt."""
    return tuple(
        LocalLine(
            length=length,
            prompt_tokens=median(sample.prompt_tokens for sample in found),
            tokens_per_second=spread(sample.tokens_per_second for sample in _of(found, "local")),
            first_token=spread(sample.first_token_seconds for sample in _of(found, "local")),
            hot_first_token=spread(sample.first_token_seconds for sample in _of(found, "hot_hit")),
        )
        for length, found in _by_length(samples, "local", "hot_hit").items()
    )


def summarize_worker(samples: Iterable[Sample]) -> tuple[WorkerLine, ...]:
    """One line for each length at which a worker computed or held a prompt; `samples` are of this worker alone."""
    return tuple(
        WorkerLine(
            length=length,
            prompt_tokens=median(sample.prompt_tokens for sample in found),
            tokens_per_second=spread(sample.tokens_per_second for sample in _of(found, "remote")),
            first_token=spread(sample.first_token_seconds for sample in _of(found, "remote")),
            hit_first_token=spread(sample.first_token_seconds for sample in _of(found, "remote_hit")),
            hit_bytes=_middle(sample.payload_bytes for sample in _of(found, "remote_hit")),
        )
        for length, found in _by_length(samples, "remote", "remote_hit").items()
    )


def summarize_link(link: Mapping[str, Any] | None, hits: Iterable[Sample]) -> LinkLine:
    """The way that the head uses, as ``/v1/network/nodes`` tells it, and the rate of `hits` over it."""
    known = link or {}
    return LinkLine(
        network=str(known.get("network") or ""),
        address=str(known.get("address") or ""),
        port=known.get("port"),
        rtt_seconds=known.get("rtt_seconds"),
        estimated=known.get("bytes_per_second"),
        measured=spread(sample.bytes_per_second for sample in hits),
    )


def measured_crossover(local: Iterable[LocalLine], lines: Iterable[WorkerLine]) -> Crossover | None:
    """From which length on the worker of `lines` helps, by the medians of both sides."""
    own = {line.length: line for line in local}
    return find_crossover(
        [
            Point(line.prompt_tokens, here.first_token.median, line.first_token.median)
            for line in lines
            if (here := own.get(line.length)) and here.first_token and line.first_token
        ]
    )


def _of(samples: Iterable[Sample], kind: Kind) -> list[Sample]:
    return [sample for sample in samples if sample.kind == kind]


def _by_length(samples: Iterable[Sample], *kinds: Kind) -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    for sample in sorted(samples, key=lambda sample: sample.length):
        if sample.kind in kinds:
            found.setdefault(sample.length, []).append(sample)
    return found


def _middle(values: Iterable[float]) -> float | None:
    known: Sequence[float] = list(values)
    return median(known) if known else None


__all__ = [
    "BenchReport",
    "JitterLine",
    "LinkLine",
    "LocalLine",
    "WorkerLine",
    "WorkerResult",
    "measured_crossover",
    "summarize_link",
    "summarize_local",
    "summarize_worker",
]
