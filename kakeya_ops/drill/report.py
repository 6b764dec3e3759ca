"""What a drill found. Pure: from what was seen of each request to a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from kakeya_ops.drill.catalogue import Kind

Verdict = Literal["safe", "failed", "unknown", "skipped"]


@dataclass(frozen=True)
class Seen:
    """One request that met a fault: its tokens and those of a forced local prefill, and its receipt.

    `met` is how many requests met the fault, None where that cannot be counted. `counted` are the fallback reasons
    that the head's counters grew by meanwhile.
    """

    tokens: tuple[str, ...]
    local_tokens: tuple[str, ...]
    receipt: Mapping[str, Any]
    met: int | None
    counted: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class Result:
    """What became of one kind, tried on `worker`. `lost_seconds` is against an undisturbed request.

    `outcome` is a fallback reason, ``remote`` or ``avoided``; None where there was no answer.
    """

    kind: str
    verdict: Verdict
    outcome: str | None
    tokens_equal: bool | None
    lost_seconds: float | None
    detail: str
    request_id: str | None = None
    recovered_seconds: float | None = None
    worker: str | None = None


@dataclass(frozen=True)
class DrillReport:
    """A whole drill of `workers` through `head`; `undisturbed_seconds` is the median of requests that met nothing."""

    url: str
    head: str
    workers: tuple[str, ...]
    undisturbed_seconds: float
    results: tuple[Result, ...]

    def count(self, verdict: Verdict) -> int:
        """How many kinds ended so."""
        return sum(result.verdict == verdict for result in self.results)

    @property
    def passed(self) -> bool:
        """True if some kind was tried, and whatever was tried is safe: what is unknown is not."""
        return self.count("safe") > 0 and not self.count("failed") and not self.count("unknown")

    def to_json(self) -> dict[str, Any]:
        """A plain value for ``--json``."""
        return {
            "passed": self.passed,
            "url": self.url,
            "head": self.head,
            "workers": list(self.workers),
            "undisturbed_seconds": self.undisturbed_seconds,
            "results": [asdict(result) for result in self.results],
        }


def judge(kind: Kind, seen: Seen, undisturbed_seconds: float) -> Result:
    """The verdict on a request that was answered."""
    outcome = outcome_of(seen.receipt)
    equal = seen.tokens == seen.local_tokens
    verdict, detail = _weigh(kind, seen, outcome, equal)
    lost_seconds = seen.seconds - undisturbed_seconds
    request_id = str(seen.receipt.get("request_id"))
    return Result(kind.name, verdict, outcome, equal, lost_seconds, detail, request_id)


def outcome_of(receipt: Mapping[str, Any]) -> str:
    """What became of the remote part, as the receipt tells it."""
    if fallback := receipt.get("fallback"):
        return str(fallback.get("reason"))
    return "remote" if receipt.get("remote") else "avoided"


def _weigh(kind: Kind, seen: Seen, outcome: str, equal: bool) -> tuple[Verdict, str]:
    fallback = seen.receipt.get("fallback")
    said = str(fallback.get("message")) if fallback else str((seen.receipt.get("decision") or {}).get("reason"))
    if not equal:
        return "failed", f"WRONG TOKENS: they differ from those of a local prefill; {said}"
    if _rather_alone(kind, seen):
        return "skipped", f"the head did not ask for such a prompt, or not long enough: {said}"
    if seen.met == 0:
        return "unknown", f"no request met the fault: {said}"
    if outcome not in kind.expected:
        return "unknown", f"ended as {outcome}, not {' or '.join(sorted(kind.expected))}: {said}"
    if fallback and seen.counted.get(outcome, 0) < 1:
        return "failed", f"the fallback is in the receipt and not in the counters: {said}"
    return "safe", said


def _rather_alone(kind: Kind, seen: Seen) -> bool:
    """Whether a head that was free to choose did not send the request that was to meet the fault."""
    return kind.fault is not None and kind.fault.on == "prefill" and "remote" not in kind.modes and seen.met == 0


def recount(results: Iterable[Result], counted: Mapping[str, float]) -> list[Result]:
    """The same `results`, failed where the head counted fewer fallbacks of their reason than there were in all.

    Where several workers are drilled at once one may have been counted in another's place: the sum tells.
    """
    found = list(results)
    told = Counter(result.outcome for result in found)
    return [
        replace(result, verdict="failed", detail=f"not all fallbacks of its reason were counted: {result.detail}")
        if result.verdict == "safe"
        and _is_fallback(result)
        and counted.get(str(result.outcome), 0) < told[result.outcome]
        else result
        for result in found
    ]


def _is_fallback(result: Result) -> bool:
    return result.outcome not in ("remote", "avoided", None)


__all__ = ["DrillReport", "Result", "Seen", "Verdict", "judge", "outcome_of", "recount"]
