"""The kind that needs two workers: both hold a prefix and deliver it together, and one of them breaks off."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kakeya_ops.drill.asking import LOCAL
from kakeya_ops.drill.catalogue import Kind
from kakeya_ops.drill.lane import Lane, without_answer
from kakeya_ops.drill.nodes import NodeDoor
from kakeya_ops.drill.report import Result, Seen, judge
from kakeya_ops.errors import PeerError, PeerRefused
from kakeya_ops.wire.drills import MOST_USES, Act, Fault
from kakeya_ops.wire.signing import new_nonce

_HEAD_START_SECONDS = 1.0
"""The other delivers so much later that the one which breaks off is asked at all; with each try twice as much."""
_TRIES = 3


def lose_one(kind: Kind, lane: Lane, other: NodeDoor | None) -> Result:
    """Let the worker of `lane` break off while it and `other` deliver one prefix."""
    if other is None:
        return without_answer(kind, "there is one worker only: nobody else could bring the rest", skipped=True)
    try:
        return lane.recover(_lose(kind, lane, other))
    except PeerRefused as error:
        return without_answer(kind, error.message, skipped=error.code == "refused")
    except PeerError as error:
        return without_answer(kind, error.message)
    finally:
        with suppress(PeerError):  # it has been said, and what is armed ends by itself
            other.disarm()


def _lose(kind: Kind, lane: Lane, other: NodeDoor) -> Result:
    body = lane.scene.inquirer.body()
    late = Fault(act=Act.DELAY, on="fetch", seconds=_HEAD_START_SECONDS, uses=MOST_USES)
    result, tries = _ask_both(kind, lane, other, body, late), 1
    while result.verdict == "unknown" and tries < _TRIES:
        lane.recover(result)
        late = late.model_copy(update={"seconds": 2 * late.seconds})
        result, tries = _ask_both(kind, lane, other, body, late), tries + 1
    return result


def _ask_both(kind: Kind, lane: Lane, other: NodeDoor, body: bytes, late: Fault) -> Result:
    assert kind.fault is not None
    inquirer, worker = lane.scene.inquirer, lane.scene.worker
    for node in (lane.name, other.node):
        inquirer.ask(body, kind.modes, new_nonce(), node)  # it holds what it has computed
    other.arm(late)
    worker.arm(kind.fault)
    try:
        asked = inquirer.ask(body, kind.modes, new_nonce())
    finally:
        met = worker.disarm().met
        with suppress(PeerError):
            other.disarm()
    local = inquirer.ask(body, LOCAL, new_nonce())
    seen = Seen(asked.completion.tokens, local.completion.tokens, asked.receipt, met, {}, asked.seconds)
    return _weigh(judge(kind, seen, lane.undisturbed_seconds), asked.receipt, lane.name)


def _weigh(result: Result, receipt: Mapping[str, Any], lost: str) -> Result:
    """A safe result is one where the receipt tells who failed and who brought the rest."""
    if result.verdict != "safe":
        return result
    sources = {one["node"]: one for one in receipt["remote"].get("sources", ())}
    fault = sources.get(lost, {}).get("fault")
    rest = [node for node, one in sources.items() if node != lost and one["blocks"] and not one["fault"]]
    if not fault or not rest:
        return replace(result, verdict="unknown", detail=f"the receipt does not tell of a loss: {result.detail}")
    return replace(result, detail=f"{lost} failed ({fault}), {' and '.join(rest)} brought the rest")


__all__ = ["lose_one"]
