"""The targets that Kakeya sets itself, and what a user demands of a run with ``--expect``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kakeya_ops.errors import InputError

Bound = Literal["<=", ">="]

_EXPECTATION = re.compile(r"(?P<name>[a-z_]+)\s*(?:(?P<bound><=|>=)\s*(?P<limit>\d+(?:\.\d+)?))?", re.ASCII)


@dataclass(frozen=True)
class TargetKind:
    """A ratio that is to be `bound` to `limit`; what it is of is in `description`."""

    name: str
    description: str
    bound: Bound
    limit: float


KINDS: Mapping[str, TargetKind] = {
    kind.name: kind
    for kind in (
        TargetKind("hit", "first token of a prefix that the worker holds ÷ cold local first token", "<=", 0.02),
        TargetKind(
            "hit_floor",
            "the same ÷ (1.3 × (bytes ÷ raw link rate + memcpy) + one decode step + 20 ms)",
            "<=",
            1.0,
        ),
        TargetKind("transfer", "KV received, checked and placed per second ÷ raw link rate", ">=", 0.8),
        TargetKind("overlap", "remote cold first token ÷ the worker's pure prefill time", "<=", 1.1),
        TargetKind(
            "prediction", "error of the predicted length from which the worker helps ÷ the measured", "<=", 0.15
        ),
        TargetKind("gap", "longest gap of a stream beside a cold prompt ÷ the same on mlx_lm.server", "<=", 0.01),
        TargetKind("gap_p99", "99th percentile of the gaps ÷ mlx_lm.server --prefill-step-size 128", "<=", 0.2),
    )
}


@dataclass(frozen=True)
class Target:
    """A `value` of `kind` that was measured `of` a worker or a prompt length; None where it is not known.

    `demanded` is whether the user set it.
    """

    kind: TargetKind
    of: str
    value: float | None
    demanded: bool = False

    @property
    def met(self) -> bool | None:
        """None where the value is not known."""
        if self.value is None:
            return None
        return self.value <= self.kind.limit if self.kind.bound == "<=" else self.value >= self.kind.limit


def parse_expectation(text: str) -> TargetKind:
    """The target in ``NAME``, or ``NAME<=NUMBER`` or ``NAME>=NUMBER`` for another limit. Raises `InputError`."""
    found = _EXPECTATION.fullmatch(text.strip())
    kind = KINDS.get(found["name"]) if found else None
    if found is None or kind is None:
        raise InputError(
            f"{text!r} is no expectation", hint=f"NAME, NAME<=NUMBER or NAME>=NUMBER of {', '.join(KINDS)}"
        )
    if found["bound"] is None:
        return kind
    return replace(kind, bound="<=" if found["bound"] == "<=" else ">=", limit=float(found["limit"]))


def demand(targets: Sequence[Target], expected: Sequence[TargetKind]) -> tuple[Target, ...]:
    """`targets` with the user's limits in place of the own ones; what is expected and was not measured is added."""
    wanted = {kind.name: kind for kind in expected}
    held = tuple(
        replace(target, kind=wanted[target.kind.name], demanded=True) if target.kind.name in wanted else target
        for target in targets
    )
    known = {target.kind.name for target in targets}
    return (*held, *(Target(kind, "", None, demanded=True) for name, kind in wanted.items() if name not in known))


__all__ = ["KINDS", "Bound", "Target", "TargetKind", "demand", "parse_expectation"]
