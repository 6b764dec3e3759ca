"""How a check of the inventory says what it found, so that one check can say several things at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pydantic_core import PydanticCustomError

Location = tuple[str | int, ...]
"""Keys and list indices from the root of a document to a place in it."""

FINDINGS = "findings"
"""Type of the pydantic error that carries findings in its context under the same name."""


class Finding(NamedTuple):
    """A fault at `location`, which is relative to what was checked."""

    location: Location
    message: str


def refuse(findings: Iterable[Finding]) -> None:
    """Raise all `findings` as one error that pydantic collects; return if there are none."""
    if found := list(findings):
        summary = "; ".join(f"{render_location(location)}: {message}" for location, message in found)
        raise PydanticCustomError(FINDINGS, "{summary}", {"summary": summary, FINDINGS: found})


def render_location(location: Location) -> str:
    """`location` as people write it: ``hosts.allens.endpoints[0].port``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "".join(steps).removeprefix(".")


__all__ = ["FINDINGS", "Finding", "Location", "refuse", "render_location"]
