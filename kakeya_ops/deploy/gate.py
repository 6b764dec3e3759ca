"""Where something may say that a host cannot carry its role, before anything is changed: the memory verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kakeya_ops.errors import RefusedError
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe.state import HostState

Answer = Literal["fits", "tight", "does not fit", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """What a gate found: `answer` in one word, `reason` in one sentence, `remedy` as what would change it."""

    answer: Answer
    reason: str
    remedy: str | None = None

    @property
    def refuses(self) -> bool:
        """Whether the host must not be deployed to without being forced."""
        return self.answer == "does not fit"

    def record(self, forced: str | None) -> str:
        """The verdict as it is noted on the host, with the reason for which a refusal was overruled."""
        overruled = f" (forced: {forced})" if self.refuses and forced is not None else ""
        return f"{self.answer}: {self.reason}{overruled}"

    def refusal(self, host: str) -> RefusedError:
        """The error that says so."""
        hint = self.remedy or "kakeya deploy --force REASON does it all the same, and notes the reason on the host"
        return RefusedError(f"{host}: {self.answer}: {self.reason}", hint=hint)


Gate = Callable[[ResolvedHost, HostState], Verdict | None]
"""None: nothing to say about this host."""


def no_gate(host: ResolvedHost, state: HostState) -> Verdict | None:
    """Lets everything pass."""
    return None


__all__ = ["Answer", "Gate", "Verdict", "no_gate"]
