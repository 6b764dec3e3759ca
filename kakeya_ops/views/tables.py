"""Values of the library as tables. Every word that carries meaning is there without colour too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from kakeya_ops.units import render_bytes, render_seconds
from kakeya_ops.verify.report import VerifyReport
from kakeya_ops.views.printer import visible

_VERDICT_STYLES = {"ok": "green", "failed": "bold red", "unknown": "yellow"}


def checks_table(report: VerifyReport) -> Table:
    """The checks of a probe, one a row, with their numbers."""
    table = _table("verdict", "check", "found")
    table.columns[0].no_wrap = True
    for check in report.checks:
        verdict = Text(check.verdict, style=_VERDICT_STYLES[check.verdict])
        table.add_row(verdict, _text(check.name), _text(check.detail))
    return table


def verdict_line(report: VerifyReport) -> Text:
    """A probe's result in one sentence."""
    bad = sum(check.verdict != "ok" for check in report.checks)
    if report.passed:
        return Text(
            f"PASSED: {visible(str(report.worker))} computed the prefix, the head decoded from it", style="green"
        )
    return Text(f"FAILED: {bad} of {len(report.checks)} checks are not ok", style="bold red")


def fleet_table(head: Mapping[str, Any], cards: Iterable[Mapping[str, Any]]) -> Table:
    """The head and the nodes it knows."""
    table = _table("node", "role", "state", "cache identity", "prefill", "pool")
    table.add_row(_text(head.get("node")), "head", "answers", _short(head.get("identity")), "", "")
    for card in cards:
        rate = card.get("prefill_tokens_per_second")
        table.add_row(
            _text(card.get("node")),
            _text(card.get("role")),
            _state(card),
            _either(card.get("identity_match"), "equal", "differs"),
            f"{rate:.0f} tokens/s" if isinstance(rate, int | float) else "not measured",
            _pool(card.get("pool")),
        )
    return table


def receipt_timeline(receipt: Mapping[str, Any]) -> Table:
    """How one request's prefix came to be, in the order in which it happened."""
    table = _table("step", "what happened", "took")
    times = receipt.get("times") or {}
    for step, what, seconds in _steps(receipt, times):
        table.add_row(step, _text(what), render_seconds(seconds) if isinstance(seconds, int | float) else "")
    return table


def _steps(receipt: Mapping[str, Any], times: Mapping[str, Any]) -> Iterable[tuple[str, str, Any]]:
    decision = receipt.get("decision") or {}
    yield "received", f"{receipt.get('prompt_tokens')} prompt tokens by {receipt.get('node')}", None
    yield "decided", f"{str(decision.get('kind')).replace('_', ' ')}: {decision.get('reason')}", times.get("lookup")
    if pool_tokens := receipt.get("local_pool_tokens"):
        yield "own pool", f"{pool_tokens} tokens", None
    if remote := receipt.get("remote"):
        what = (
            f"{remote['computed_tokens']} tokens computed and {remote['pool_tokens']} from the pool of {remote['node']}"
        )
        size = f"{remote['blocks']} blocks, {render_bytes(remote['payload_bytes'])}"
        helped = "".join(f"; {one['blocks']} from {one['node']}" for one in remote.get("sources", ()))
        yield "other node", f"{what}; {size}{helped}", remote.get("transfer_seconds")
    if fallback := receipt.get("fallback"):
        yield "fell back", f"{fallback.get('worker')}: {fallback.get('message')}", times.get("wasted")
    yield "computed", f"{receipt.get('local_computed_tokens')} tokens by the head itself", times.get("prefill")
    yield "first token", f"gain: {receipt.get('gain')}", times.get("first_token")


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _text(value: object) -> Text:
    return Text(visible(str(value)))


def _short(digest: object) -> Text:
    return _text(f"{str(digest)[:12]}…" if digest else "unknown")


def _state(card: Mapping[str, Any]) -> Text:
    if not card.get("reachable"):
        return Text("unreachable", style="bold red")
    healthy = card.get("healthy")
    style = "yellow" if healthy is None else "green" if healthy else "bold red"
    return Text(_either(healthy, "healthy", "not healthy"), style=style)


def _either(value: object, yes: str, no: str) -> str:
    return "unknown" if value is None else yes if value else no


def _pool(pool: object) -> str:
    if not isinstance(pool, Mapping):
        return "unknown"
    return f"{render_bytes(pool['used_bytes'])} of {render_bytes(pool['budget_bytes'])}"


__all__ = ["checks_table", "fleet_table", "receipt_timeline", "verdict_line"]
