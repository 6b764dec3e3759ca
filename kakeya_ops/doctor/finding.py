"""What the doctor says: one finding for each thing that was looked at on a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kakeya_ops.doctor.catalogue import TOPICS, Code

Verdict = Literal["ok", "warning", "failed", "unknown"]


@dataclass(frozen=True)
class Finding:
    """`found` on `host` about the topic `code`; `fix` is what to do, a command wherever one does it.

    *warning*: it works now, and will stop working, or works less well than it could. *unknown*: a fact is missing,
    which `found` names.
    """

    code: Code
    host: str
    verdict: Verdict
    found: str
    fix: str | None = None

    @property
    def anchor(self) -> str:
        """Where the documentation speaks of it."""
        return f"docs/doctor.md#{self.code}"

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return {
            "code": self.code,
            "host": self.host,
            "verdict": self.verdict,
            "title": TOPICS[self.code].title,
            "found": self.found,
            "fix": self.fix,
            "docs": self.anchor,
        }


@dataclass(frozen=True)
class Report:
    """All findings, by host in the inventory's order and by topic within a host."""

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding], hosts: Iterable[str]) -> Report:
        """The findings in order."""
        order, topics = list(hosts), list(TOPICS)
        return cls(tuple(sorted(findings, key=lambda one: (order.index(one.host), topics.index(one.code)))))

    @property
    def failed(self) -> bool:
        """Whether anything failed."""
        return any(finding.verdict == "failed" for finding in self.findings)

    def count(self, verdict: Verdict) -> int:
        """How many findings have this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        counts = {verdict: self.count(verdict) for verdict in get_args(Verdict)}
        return {"counts": counts, "findings": [finding.to_json() for finding in self.findings]}


__all__ = ["Finding", "Report", "Verdict"]
