"""Writes the catalogue in ``docs/drill.md`` from the kinds themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from kakeya_ops.drill.catalogue import CATALOGUE, Kind

BEGIN, END = "<!-- catalogue: made by make docs -->", "<!-- end of the catalogue -->"


def render_catalogue(kinds: Iterable[Kind] = CATALOGUE) -> str:
    """The kinds as a Markdown table."""
    rows = [_row(kind) for kind in kinds]
    return "\n".join(
        ["| kind | what goes wrong | where it is armed | a request ends as | undone |", "|---|---|---|---|---|", *rows]
    )


def fill(page: str) -> str:
    """`page` with the catalogue of now between its two marks. Raises `ValueError` if it lacks them."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{render_catalogue()}\n{END}{after}"


def _row(kind: Kind) -> str:
    ends = " or ".join(f"`{outcome}`" for outcome in sorted(kind.expected))
    return f"| `{kind.name}` | {kind.what} | {_where(kind)} | {ends} | {kind.undone} |"


def _where(kind: Kind) -> str:
    if kind.fault is None:
        return "a card told to the head" if kind.claim else "a call to the worker"
    if kind.trial == "head":
        return "the head"
    request = {"lookup": "its next lookup", "fetch": "its next fetch"}.get(kind.fault.on, "the drill's own prefill")
    return f"the worker, {request}"


__all__ = ["BEGIN", "END", "fill", "render_catalogue"]

if __name__ == "__main__":
    sys.stdout.write(fill(sys.stdin.read()))
