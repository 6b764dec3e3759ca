"""One host as the doctor sees it: what it shall be, and everything that was read of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kakeya_ops.deploy.material import ModelSource
from kakeya_ops.doctor.catalogue import Code
from kakeya_ops.doctor.facts import HostFacts
from kakeya_ops.doctor.finding import Finding, Verdict
from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.memory.assessment import Assessment
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import Fact, HostState, Unknown
from kakeya_ops.wire.cards import Card

if TYPE_CHECKING:
    from kakeya_ops.certificates.authority import Authority

T = TypeVar("T")


@dataclass(frozen=True)
class Expected:
    """What hosts are compared with: this machine's model, or why it has none, the digest of its fleet key, and the
    authority of its certificates, None where it has none.
    """

    model: ModelSource | KakeyaError
    key_digest: str | None
    authority: Authority | None = None


@dataclass(frozen=True)
class Patient:
    """`facts` are the doctor's own, `known` the cards that the node on it holds, `notes` how SSH gets there.

    `memory` is None where no verdict could be had for want of a model.
    """

    inventory: Inventory
    host: ResolvedHost
    expected: Expected
    state: HostState
    facts: Fact[HostFacts]
    notes: tuple[str, ...] = ()
    known: tuple[Card, ...] = ()
    memory: Assessment | None = None

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host.name

    @property
    def places(self) -> Places:
        """Where everything of its service lies."""
        return Places.of(self.inventory, self.host, self.state.home)

    @property
    def is_mac(self) -> bool:
        """Whether it runs macOS."""
        return not isinstance(self.state.macos, Unknown)

    @property
    def card(self) -> Card | None:
        """What its node says of itself, None where it says nothing."""
        return self.state.card if isinstance(self.state.card, Card) else None

    def say(self, code: Code, verdict: Verdict, found: str, fix: str | None = None) -> Finding:
        """A finding about this host."""
        return Finding(code, self.name, verdict, found, fix)

    def about(self, code: Code, fact: Fact[T], judge: Callable[[T], Finding]) -> Finding:
        """What `judge` says of the fact; *unknown* with its reason where there is none."""
        if isinstance(fact, Unknown):
            return self.say(code, "unknown", fact.reason, f"ssh {self.host.ssh_host}, and look there")
        return judge(fact)

    def fact(self, read: Callable[[HostFacts], Fact[T]]) -> Fact[T]:
        """One of the doctor's own facts."""
        return self.facts if isinstance(self.facts, Unknown) else read(self.facts)


__all__ = ["Expected", "Patient"]
