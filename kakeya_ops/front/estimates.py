"""What the head's scheduler believes, as plain values: each machine's speed, the ways between, who helps from where.

Everything is said of idle machines: what waits now is on the cards, and comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kakeya_ops.serving.fleet import Fleet, Known
from kakeya_ops.serving.head import HeadService
from kakeya_ops.serving.scheduler import Candidate, Local, crossover_tokens
from kakeya_ops.serving.sources import make_candidate

_UNMEASURED: Mapping[str, Any] = {"rtt_seconds": None, "bytes_per_second": None}


def describe_estimates(head: HeadService, fleet: Fleet) -> dict[str, Any]:
    """The head, and every other node whose card counts now."""
    return {
        "local": {"node": head.node.id, **_describe_speed(head.idle())},
        "peers": [_describe_peer(head, fleet, known) for known in fleet.known() if known.card and known.role != "head"],
    }


def _describe_peer(head: HeadService, fleet: Fleet, known: Known) -> dict[str, Any]:
    assert known.card is not None
    expected = fleet.expected(known.node)
    link = fleet.describe_way(known.card, known.link) if known.link else _UNMEASURED
    peer = replace(make_candidate(known.card, link, expected), queue_seconds=0.0, doubt=0.0)
    return {
        "node": known.node,
        "role": known.role,
        "usable": known.usable,
        **_describe_speed(peer),
        "overhead_seconds": peer.overhead_seconds,
        "compute_factor": expected.compute_factor,
        "queue_factor": expected.queue_factor,
        "doubt": expected.doubt,
        "bytes_per_second": link["bytes_per_second"],
        "packing": link.get("packing"),
        "packed_share": link.get("packed_share"),
        "rtt_seconds": link["rtt_seconds"],
        "links": [way.to_json() | {"priority": way.priority} for way in fleet.ways(known.node)],
        "crossover_tokens": crossover_tokens(
            head.identity.layout, head.idle(), peer, head.rules, context_tokens=head.context_tokens
        ),
    }


def _describe_speed(machine: Local | Candidate) -> dict[str, Any]:
    """The rate of the last chunks, and the curve: seconds of n tokens are the first times n and the second times n²."""
    curve = machine.curve
    return {
        "prefill_tokens_per_second": machine.tokens_per_second,
        "prefill_seconds_per_token": curve.seconds_per_token if curve else None,
        "prefill_seconds_per_square": curve.seconds_per_square if curve else None,
    }


__all__ = ["describe_estimates"]
