"""The columns of a fleet's status: what each says of a node, how wide it is, and which go first where there is no room.

Widths are fixed, so that nothing moves while figures grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kakeya_ops.status import NodeStatus
from kakeya_ops.units import render_bytes, render_rate, render_seconds

GAP = 2
"""Spaces between two columns."""
NOTHING = "–"
_BARS = " ▁▂▃▄▅▆▇█"
_BARS_ASCII = " .:-=+*#@"
_TREND = 12
_GOOD, _BAD, _DOUBTFUL = "green", "bold red", "yellow"
_SERVES = {True: ("yes", _GOOD), False: ("no", _BAD), None: ("unknown", _DOUBTFUL)}
_STATES = {"healthy": _GOOD, "failing": _BAD, "unreachable": _BAD, "asking": _DOUBTFUL}


@dataclass(frozen=True)
class Column:
    """One column; `cell` gives a node's text and its style."""

    heading: str
    width: int
    cell: Callable[[NodeStatus], tuple[str, str]]
    right: bool = False


def columns(nodes: Sequence[NodeStatus], *, ascii_only: bool = False) -> tuple[Column, ...]:
    """All columns for these nodes, the most important first; the first is the node's name."""
    bars = _BARS_ASCII if ascii_only else _BARS
    name_width = min(max((len(node.node) for node in nodes), default=4), 24)
    return (
        Column("node", max(name_width, 4), lambda node: (node.node, "bold")),
        Column("role", 6, lambda node: (node.role, "")),
        Column("serves", 7, lambda node: _SERVES[node.serves]),
        Column("health", 11, lambda node: (node.state, _STATES[node.state])),
        Column("identity", 8, _identity),
        Column("queue", 7, _queue, right=True),
        Column("jobs", 6, lambda node: (_number(node.card.jobs_done if node.card else None), _dim(node)), right=True),
        Column("tokens/s", 11, _speed, right=True),
        Column("pool", 17, _pool, right=True),
        Column("link", 38, _link),
        Column("prefill", _TREND, lambda node: (sparkline(node.prefill_history[-_TREND:], bars), "cyan")),
        Column("service", 14, _service),
        Column("uptime", 8, lambda node: (render_age(node.card.uptime_seconds) if node.card else NOTHING, _dim(node))),
        Column("memory", 20, _memory),
        Column("version", 8, lambda node: (node.card.version if node.card else NOTHING, _dim(node))),
        Column("model", 24, lambda node: (node.model or NOTHING, "")),
    )


def choose_columns(every: Sequence[Column], width: int) -> int:
    """How many of `every` fit side by side into `width`, from the most important on; one at least."""
    taken = 0
    for count, column in enumerate(every):
        taken += column.width + (GAP if count else 0)
        if taken > width:
            return max(count, 1)
    return len(every)


def sparkline(values: Sequence[float], bars: str = _BARS) -> str:
    """One character for each of `values`, as high as it is against the highest; blank for nothing."""
    top = max(values, default=0.0)
    if top <= 0:
        return bars[1] * len(values)
    return "".join(bars[1 + round(value / top * (len(bars) - 2))] for value in values)


def render_age(seconds: float) -> str:
    """A long time in its two largest units: ``'3 d 4 h'``."""
    rest = int(seconds)
    for unit_seconds, unit, below_seconds, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if rest >= unit_seconds:
            return f"{rest // unit_seconds} {unit} {rest % unit_seconds // below_seconds} {below}"
    return f"{rest} s"


def _dim(node: NodeStatus) -> str:
    """Figures that are of the past are shown as such."""
    return "dim" if node.card is None or node.card.stale or node.state == "unreachable" else ""


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def _identity(node: NodeStatus) -> tuple[str, str]:
    identity = node.identity
    if identity.equal is None:
        return (identity.digest[:8], "") if identity.digest and node.role == "head" else ("unknown", _DOUBTFUL)
    return ("equal", _GOOD) if identity.equal else ("differs", _BAD)


def _queue(node: NodeStatus) -> tuple[str, str]:
    return (f"{node.card.queued} + {node.card.running}" if node.card else NOTHING), _dim(node)


def _speed(node: NodeStatus) -> tuple[str, str]:
    if node.card is None or node.role == "cache":
        return NOTHING, "dim"
    return f"{_number(node.prefill_now_tokens_per_second)} of {_number(node.card.prefill_tokens_per_second)}", _dim(
        node
    )


def _pool(node: NodeStatus) -> tuple[str, str]:
    if node.card is None:
        return NOTHING, "dim"
    return _share(node.card.pool_used_bytes, node.card.pool_budget_bytes), _dim(node)


def _share(used_bytes: int, limit_bytes: int) -> str:
    """Both in the unit of the limit."""
    limit, unit = render_bytes(limit_bytes).split(" ")
    factor = limit_bytes / float(limit) if float(limit) else 1.0
    return f"{used_bytes / factor:.1f} of {limit} {unit}"


def _link(node: NodeStatus) -> tuple[str, str]:
    if not node.reaches:
        return NOTHING, ""
    reach = next((one for one in node.reaches if one.to_node), node.reaches[0])
    if not reach.to_node:
        return (f"only {node.node} to {reach.head}" if reach.one_way else "down"), _BAD
    if reach.one_way:
        return f"only {reach.head} to {node.node}", _BAD
    rtt = render_seconds(reach.rtt_seconds) if reach.rtt_seconds is not None else "RTT unknown"
    rate = render_rate(reach.bytes_per_second) if reach.bytes_per_second is not None else "rate not measured"
    way = f"{(reach.network or '')[:11]} {reach.security or ''}".strip()
    return f"{way} {rtt}, {rate}", ""


def _service(node: NodeStatus) -> tuple[str, str]:
    service = node.service
    style = {"running": _GOOD, "not asked": "", "asking": ""}.get(service.state, _DOUBTFUL)
    return (f"{service.state} {service.pid}" if service.pid else service.state), style


def _memory(node: NodeStatus) -> tuple[str, str]:
    memory = node.memory
    if memory.footprint_bytes is None:
        return (f"{render_bytes(node.card.free_memory_bytes)} free" if node.card else NOTHING), _dim(node)
    if memory.forecast_bytes is None:
        return f"{render_bytes(memory.footprint_bytes)} used", _dim(node)
    return _share(memory.footprint_bytes, memory.forecast_bytes), _dim(node)


__all__ = ["GAP", "NOTHING", "Column", "choose_columns", "columns", "render_age", "sparkline"]
