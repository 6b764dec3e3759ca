"""A request's receipt for people: the gain in a sentence, the steps as bars, every number, and the signatures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.serving.timeline import Span
from kakeya_ops.units import render_bytes, render_rate, render_seconds
from kakeya_ops.verify.explain import Explanation
from kakeya_ops.views.printer import visible

_BAR_CHARACTERS = 14
_SHORTEST_SECONDS = 1e-9
_SEAL_STYLES = {"valid": "green", "wrong": "bold red", "unsigned": "yellow", "unchecked": "yellow"}


def explanation(found: Explanation) -> list[RenderableType]:
    """All of it, to be printed one below the other."""
    return [Text(visible(found.gain)), timeline_table(found), numbers_table(found), seals_table(found)]


def timeline_table(found: Explanation) -> Table:
    """The steps with the time each took, drawn over the time to the first token."""
    table = _table("step", "on", "began", "took", "", "what happened")
    for column in table.columns[:5]:
        column.no_wrap = True
    whole = max((span.began_seconds + span.seconds for span in found.spans), default=0.0)
    for span in found.spans:
        began, took = render_seconds(span.began_seconds), render_seconds(span.seconds)
        table.add_row(span.step, _text(span.node), began, took, bar(span, whole), _text(span.detail))
    return table


def bar(span: Span, whole_seconds: float) -> str:
    """`span` as a stretch of a line that stands for `whole_seconds`; at least one character wide."""
    scale = _BAR_CHARACTERS / whole_seconds if whole_seconds > _SHORTEST_SECONDS else 0.0
    first = min(int(span.began_seconds * scale), _BAR_CHARACTERS - 1)
    last = max(min(round((span.began_seconds + span.seconds) * scale), _BAR_CHARACTERS), first + 1)
    return "·" * first + "█" * (last - first) + "·" * (_BAR_CHARACTERS - last)


def numbers_table(found: Explanation) -> Table:
    """What the receipt says besides the times."""
    table = _table("of the request", "")
    for name, value in _numbers(found.receipt):
        table.add_row(name, _text(value))
    table.add_row("receipt", _text(found.digest))
    return table


def seals_table(found: Explanation) -> Table:
    """Whose signature holds."""
    table = _table("signed by", "signature", "")
    for seal in found.seals:
        table.add_row(_text(seal.whose), Text(seal.verdict, style=_SEAL_STYLES[seal.verdict]), _text(seal.detail))
    return table


def _numbers(receipt: Receipt) -> Iterator[tuple[str, Any]]:
    decision = receipt.decision
    yield "request", receipt.request_id
    yield "head", f"{receipt.node}, started {receipt.epoch / 1e9:.0f}"
    yield "received at", f"{receipt.started_at:.3f} (Unix time)"
    yield "tenant", receipt.tenant
    yield "decision", f"{decision.kind.replace('_', ' ')}{f' by {decision.node}' if decision.node else ''}"
    yield "because", decision.reason
    for course, seconds in sorted(decision.predicted_seconds.items(), key=lambda item: item[1]):
        yield f"predicted: {course.replace('_', ' ')}", render_seconds(seconds)
    yield "prompt tokens", receipt.prompt_tokens
    yield "from the head's pool", receipt.local_pool_tokens
    yield "computed by the head", receipt.local_computed_tokens
    yield "not computed by the head", receipt.cached_tokens
    yield "forgotten by the window", receipt.forgotten_tokens
    yield "block", f"{receipt.block_tokens} tokens"
    yield from _remote_numbers(receipt)
    if fallback := receipt.fallback:
        yield "fell back from", f"{fallback.worker}: {fallback.reason}, {fallback.kept_blocks} blocks kept"
    yield "cache identity", receipt.identity


def _remote_numbers(receipt: Receipt) -> Iterator[tuple[str, Any]]:
    if (remote := receipt.remote) is None:
        return
    yield f"computed by {remote.node}", f"{remote.computed_tokens} tokens, job {remote.job or 'none'}"
    yield f"from the pool of {remote.node}", f"{remote.pool_tokens} tokens"
    rate = remote.payload_bytes / remote.transfer_seconds if remote.transfer_seconds else 0.0
    size = f"{remote.blocks} blocks, {render_bytes(remote.payload_bytes)} ({remote.payload_bytes} bytes)"
    yield "transferred", f"{size} in {render_seconds(remote.transfer_seconds)}, {render_rate(rate)}"
    for source in remote.sources:
        broke = f", broke: {source.fault}" if source.fault else ""
        size = f"{source.blocks} blocks, {render_bytes(source.payload_bytes)}"
        yield f"of that from {source.node}", f"{size} in {render_seconds(source.transfer_seconds)}{broke}"
    rtt, network = remote.link.get("rtt_seconds"), remote.link.get("network", "")
    away = f", {render_seconds(rtt)} away" if isinstance(rtt, int | float) else ""
    yield "over", f"{network} {remote.link.get('address')}:{remote.link.get('port')}{away}".strip()
    yield "blocks' digest", remote.blocks_digest


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _text(value: object) -> Text:
    return Text(visible(str(value)))


__all__ = ["bar", "explanation", "numbers_table", "seals_table", "timeline_table"]
