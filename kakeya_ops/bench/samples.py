"""One request of the bench, as the head's receipt tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kakeya_ops.verify.evidence import Facts, MissingFact

Kind = Literal["local", "remote", "remote_hit", "hot_hit"]
"""Computed by the head; computed by a worker; held by a worker; held by the head itself."""

MODES: Mapping[Kind, frozenset[str]] = {
    "local": frozenset({"local"}),
    "remote": frozenset({"remote"}),
    "remote_hit": frozenset({"remote", "skip-local-pool"}),
    "hot_hit": frozenset(),
}
"""The directive under which each is asked for; a hot hit needs none."""


class NotMeasured(Exception):
    """The request was answered, but not in the way that was to be measured; the message says what happened."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Times are seconds on the head's clock, from the request's arrival there.

    `first_token_seconds` leaves out the question who holds what (`lookup_seconds`): a request without a directive pays
    for it whichever way it then goes. `compute_seconds` is the pure prefill of `computed_tokens`, wherever it was.
    """

    kind: Kind
    node: str | None
    epoch: int | None
    length: int
    prompt_tokens: int
    first_token_seconds: float
    lookup_seconds: float
    computed_tokens: int
    compute_seconds: float | None
    payload_bytes: int
    transfer_seconds: float | None
    import_seconds: float | None

    @property
    def tokens_per_second(self) -> float | None:
        """Prefill speed, None where nothing was computed or the time was not told."""
        return self.computed_tokens / self.compute_seconds if self.compute_seconds and self.computed_tokens else None

    @property
    def bytes_per_second(self) -> float | None:
        """Payload received, checked and placed per second, None where nothing came from a peer."""
        return self.payload_bytes / self.transfer_seconds if self.transfer_seconds and self.payload_bytes else None


def read_sample(kind: Kind, length: int, receipt: Mapping[str, Any]) -> Sample:
    """The sample in `receipt`, of a prompt that was to have `length` tokens.

    Raises `NotMeasured` if the request went another way than a sample of this `kind` does.
    """
    facts = Facts("the receipt", receipt)
    try:
        _check_way(kind, facts)
        return _read(kind, length, facts)
    except MissingFact as missing:
        raise NotMeasured(str(missing)) from missing


def _check_way(kind: Kind, facts: Facts) -> None:
    if fallback := facts.value("fallback"):
        raise NotMeasured(f"the head fell back to itself: {Facts('fallback', fallback).get('message')}")
    remote = facts.value("remote")
    if kind in ("remote", "remote_hit") and remote is None:
        raise NotMeasured(f"nothing came from another node: {facts.get('decision', 'reason')}")
    if kind == "remote" and facts.number("remote", "computed_tokens") == 0:
        raise NotMeasured("the worker held the prompt already")
    if kind == "remote_hit" and facts.number("remote", "computed_tokens"):
        raise NotMeasured("the worker computed again what it had held")
    if kind in ("local", "hot_hit") and remote is not None:
        raise NotMeasured("another node helped")
    if kind == "hot_hit" and not facts.number("local_pool_tokens"):
        raise NotMeasured("the head's own pool did not keep the prompt")


def _read(kind: Kind, length: int, facts: Facts) -> Sample:
    times = facts.within("times")
    lookup_seconds = _seconds(times, "lookup") or 0.0
    remote = facts.within("remote") if kind in ("remote", "remote_hit") else None
    computed_tokens, compute_seconds = _computed(kind, facts, times)
    return Sample(
        kind=kind,
        node=str(remote.get("node")) if remote else None,
        epoch=int(remote.number("epoch")) if remote else None,
        length=length,
        prompt_tokens=int(facts.number("prompt_tokens")),
        first_token_seconds=times.number("first_token") - lookup_seconds,
        lookup_seconds=lookup_seconds,
        computed_tokens=computed_tokens,
        compute_seconds=compute_seconds,
        payload_bytes=int(remote.number("payload_bytes")) if remote else 0,
        transfer_seconds=_seconds(times, "transfer"),
        import_seconds=_seconds(times, "import"),
    )


def _computed(kind: Kind, facts: Facts, times: Facts) -> tuple[int, float | None]:
    """Tokens, and the seconds that their prefill alone took."""
    if kind == "remote":
        work = facts.within("remote", "worker_receipt")
        return int(work.number("computed_tokens")), _seconds(work, "compute_seconds")
    prefilled, gathered = _seconds(times, "prefilled"), _seconds(times, "gathered")
    seconds = prefilled - gathered if prefilled is not None and gathered is not None else None
    # The prompt's last token is computed by the first decode step.
    return int(facts.number("local_computed_tokens")) - 1, seconds


def _seconds(facts: Facts, name: str) -> float | None:
    return None if facts.value(name) is None else facts.number(name)


__all__ = ["MODES", "Kind", "NotMeasured", "Sample", "read_sample"]
