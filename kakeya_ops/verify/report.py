"""What a probe found: checks with verdicts, and whether they add up to a yes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["ok", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `detail` holds the numbers it rests on. Where the verdict is ``unknown`` it names the missing fact."""

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class VerifyReport:
    """The checks of one run against the head at `url`, by `worker` if one was found.

    `receipts` are the signed receipts they rest on, by request: ``cold``, ``again``, ``local``.
    """

    url: str
    head: str
    worker: str | None
    checks: tuple[Check, ...]
    receipts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True only if there are checks and every one is ok: what is unknown is not a yes."""
        return bool(self.checks) and all(check.verdict == "ok" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """A plain value for ``--json``."""
        return {
            "passed": self.passed,
            "url": self.url,
            "head": self.head,
            "worker": self.worker,
            "checks": [asdict(check) for check in self.checks],
            "receipts": dict(self.receipts),
        }


__all__ = ["Check", "Verdict", "VerifyReport"]
