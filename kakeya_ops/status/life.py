"""Whether a node is alive, and how that is known: by itself, by its own host, or by another node that has its card."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.observe.state import Health
from kakeya_ops.status.board import Heard
from kakeya_ops.status.value import State

LIVELY_SECONDS = 6.0
"""A node shows its card to the others every two seconds: one that is passed on and no older than this is alive."""
PATIENCE_SECONDS = 8.0
"""A node that has not answered for so long does not answer."""
SSH_SECONDS = 90.0
"""Nor does a host that was asked over SSH for so long; until then, what it said before counts."""


@dataclass(frozen=True)
class Life:
    """The state, why it is no better, and what is worth knowing of how it was found."""

    state: State
    reason: str | None = None
    note: str | None = None


def judge_life(heard: Heard, now: float) -> Life:
    """Whether the node is alive at `now`, in monotonic seconds."""
    peer = heard.peer
    error = peer.fault(now, PATIENCE_SECONDS)
    if error is not None:
        return _judge_elsewhere(heard, now, error)
    return Life("asking") if peer.value is None else _from_health(peer.value.health)


def _judge_elsewhere(heard: Heard, now: float, error: str) -> Life:
    """Of a node that does not answer here: what its own host says, or else whoever has its card."""
    not_here = f"not reached from here: {error}"
    api = heard.api.current(now, PATIENCE_SECONDS) if heard.api else None
    if heard.peer.no_way and api:
        reason = api.head.get("reason")
        life = _from_health(Health(api.head.get("healthy") is True, str(reason) if reason else None))
        return Life(life.state, life.reason, f"{not_here}; asked at its API")
    host = heard.ssh.current(now, SSH_SECONDS) if heard.ssh else None
    if host:
        health = host.state.health
        if isinstance(health, Health):
            life = _from_health(health)
            return Life(life.state, life.reason, f"{not_here}; asked on its own host")
        if health is None:
            return Life("unreachable", f"nothing answers on its own host, and it is {not_here}")
    told = heard.told
    if heard.peer.no_way and told and told.by and now - told.at < LIVELY_SECONDS:
        life = _from_health(Health(told.card.healthy, told.card.reason))
        return Life(life.state, life.reason, f"{not_here}; {told.by} has its card")
    return Life("unreachable", error)


def _from_health(health: Health) -> Life:
    return Life("healthy") if health.healthy else Life("failing", health.reason or "it does not say why")


__all__ = ["LIVELY_SECONDS", "PATIENCE_SECONDS", "SSH_SECONDS", "Life", "judge_life"]
