"""What was heard of each host, by whom and when. Those who ask write here, each for itself; who shows reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from kakeya_ops.status.asking import ApiAnswer, PeerAnswer
from kakeya_ops.status.history import History
from kakeya_ops.status.remote_asking import HostAnswer
from kakeya_ops.wire.cards import Card

T = TypeVar("T")
SourceName = Literal["peer", "api", "ssh"]
"""Where something is heard: the node's peer port, the head's API port, the host over SSH."""


@dataclass(frozen=True)
class Look(Generic[T]):
    """The last attempts at one source. `value` is what the last good one brought.

    `error` is what the last one came to grief by, None when it was good; with `no_way` it says nothing of the source
    itself, which could not be reached from here. `looks` are the attempts that have ended.
    `began_at`, in monotonic seconds, is set while one is under way.
    """

    looks: int = 0
    value: T | None = None
    error: str | None = None
    began_at: float | None = None
    no_way: bool = False

    def begin(self, now: float) -> Look[T]:
        """An attempt begins."""
        return replace(self, began_at=now)

    def succeed(self, value: T) -> Look[T]:
        """It brought `value`."""
        return Look(self.looks + 1, value)

    def fail(self, error: str, *, no_way: bool = False) -> Look[T]:
        """It failed."""
        return Look(self.looks + 1, self.value, error, no_way=no_way)

    def fault(self, now: float, patience_seconds: float) -> str | None:
        """Why `value` is of the past: an attempt is under way for longer than that, or else the last one failed."""
        waited = now - self.began_at if self.began_at is not None else 0.0
        return f"no answer for {waited:.0f} s" if waited > patience_seconds else self.error

    def current(self, now: float, patience_seconds: float) -> T | None:
        """What is known by it now."""
        return self.value if self.fault(now, patience_seconds) is None else None


@dataclass(frozen=True)
class Told:
    """The newest card of a node that was seen: when it counted, in monotonic seconds, and who passed it on."""

    card: Card
    at: float
    by: str | None


@dataclass(frozen=True)
class Heard:
    """Everything about one host; a source that is not asked is None."""

    peer: Look[PeerAnswer] = field(default_factory=Look)
    api: Look[ApiAnswer] | None = None
    ssh: Look[HostAnswer] | None = None
    told: Told | None = None
    rates: tuple[float, ...] = ()
    restarts: int = 0
    restarted_at: float | None = None

    def look(self, source: SourceName) -> Look[Any]:
        """The attempts at `source`."""
        return getattr(self, source) or Look()

    def with_look(self, source: SourceName, look: Look[Any]) -> Heard:
        """The same after an attempt at `source`."""
        looks: dict[str, Any] = {source: look}
        return replace(self, **looks)


class Board:
    """Thread-safe."""

    def __init__(self, heard: dict[str, Heard]) -> None:
        self._changed = threading.Condition()
        self._heard = heard
        self._histories = {name: History() for name in heard}

    def read(self) -> dict[str, Heard]:
        """Everything, as it is at this moment."""
        with self._changed:
            return dict(self._heard)

    def change(self, name: str, change: Callable[[Heard], Heard], cards: Iterable[Told] = ()) -> None:
        """Replace what was heard of the host called `name`, and heed `cards`, of whichever nodes."""
        with self._changed:
            self._heard[name] = change(self._heard[name])
            for told in cards:
                self._take(told)
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[dict[str, Heard]], bool], seconds: float) -> bool:
        """Wait until `condition` holds of what was heard; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._heard), seconds)

    def _take(self, told: Told) -> None:
        name = told.card.node
        history, heard = self._histories.get(name), self._heard.get(name)
        if history is None or heard is None or not history.take(told.card, told.at, own=told.by is None):
            return
        last = heard.told
        # The same card told again, or by another, is no younger for it.
        same = last and (last.card.instance, last.card.issued_at) == (told.card.instance, told.card.issued_at)
        newest = Told(told.card, last.at, last.by) if last and same else told
        self._heard[name] = replace(
            heard,
            told=newest,
            rates=history.rates,
            restarts=history.restarts,
            restarted_at=history.restarted_at,
        )


__all__ = ["Board", "Heard", "Look", "SourceName", "Told"]
