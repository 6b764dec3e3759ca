"""What a step works with: one host, the connection to it, and the stack of what would take its effects back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from kakeya_ops.deploy.errors import Interrupted
from kakeya_ops.deploy.guard import Guard
from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState
from kakeya_ops.remote.runner import Runner

Tell = Callable[[str], None]
Transfer = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows that something of so many bytes is being sent; what it yields is told how many have arrived."""


@contextlib.contextmanager
def unseen_transfer(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Shows nothing."""
    yield lambda done_bytes: None


@dataclass(frozen=True)
class Timing:
    """How long is waited for what, in seconds. Loading a model of 16 GB from a cold disk takes a minute or two.

    `restored` is for the old service to be healthy again, `call` for one call of launchctl, which has been seen never
    to return, `gone` for a service to go, more than its `ExitTimeOut`, and `silence` for the host to hear nothing from
    here before it puts the old service back itself: more than `call` and `gone`, the longest that is waited unheard.
    """

    healthy: float = 300.0
    restored: float = 300.0
    poll: float = 0.5
    gone: float = 30.0
    retry: float = 1.0
    retries: int = 10
    pid: float = 10.0
    call: float = 20.0
    silence: float = 60.0

    def pause_after(self, waited_seconds: float) -> float:
        """The pause before the next look at something that was waited for so long: short at first, `poll` at most."""
        return min(self.poll, max(self.poll / 20, waited_seconds / 4))


@dataclass
class HostContext:
    """One host while it is changed. `before` is what was observed; `cancelled` is set when the person gives up."""

    host: ResolvedHost
    runner: Runner
    places: Places
    before: HostState
    tell: Tell = lambda text: None
    transfer: Transfer = unseen_transfer
    cancelled: threading.Event = field(default_factory=threading.Event)
    timing: Timing = field(default_factory=Timing)
    undoing: bool = False
    guard: Guard | None = None
    _undos: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def check(self) -> None:
        """Raise `Interrupted` once the person has given up, unless things are being put back."""
        if self.cancelled.is_set() and not self.undoing:
            raise Interrupted

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than until the person gives up."""
        if self.guard is not None:
            self.guard.beat()
        if self.undoing:
            time.sleep(seconds)
        else:
            self.cancelled.wait(seconds)
        self.check()

    def undo(self, title: str, action: Callable[[], None]) -> None:
        """Note how an effect is taken back, before it is made; `action` must be right even if it never was.

        A title that is noted already is not noted twice: the first knows the older state.
        """
        if all(noted != title for noted, _ in self._undos):
            self._undos.append((title, action))

    def settle(self) -> None:
        """From here on nothing of what was done is taken back."""
        self._undos.clear()

    def stand_down(self) -> bool:
        """Send the guard over the service away, where there is one; False when it has acted already."""
        guard, self.guard = self.guard, None
        return guard is None or guard.stand_down()

    def put_back(self) -> list[KakeyaError]:
        """Take everything back, the last effect first; what could not be, as errors."""
        failures: list[KakeyaError] = []
        self.undoing = True
        while self._undos:
            title, action = self._undos.pop()
            self.tell(f"taking back: {title}")
            try:
                action()
            except KakeyaError as error:
                failures.append(error)
        return failures


class Step(Protocol):
    """One change to a host: a frozen value with a title for people, and what makes the change.

    Before an effect is made, the step tells the context how it is taken back.
    """

    @property
    def title(self) -> str:
        """What it does, as in a list of things to do."""
        ...

    def apply(self, context: HostContext) -> None:
        """Do it. Raises `KakeyaError`; what was noted with `HostContext.undo` is taken back then."""
        ...


__all__ = ["HostContext", "Step", "Tell", "Timing", "Transfer", "unseen_transfer"]
