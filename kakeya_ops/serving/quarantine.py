"""The nodes whose KV was found to be wrong, with the evidence, until a person releases them.

Nothing that was named before such a finding is used again. A wrong block may have been copied to other pools, and
whatever was computed after it is wrong too, wherever that was done; so the head gives all blocks new names (`space`),
under which nobody holds anything yet. A release does not bring the old names back.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pydantic import TypeAdapter

from kakeya_ops.errors import InputError, RefusedError
from kakeya_ops.wire.releases import MOST_REASON_CHARACTERS

MOST_RELEASED = 64
"""How many of those that were released are remembered."""
_GENERATION_CHARACTERS = 32

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evidence:
    """What an audit found, without a word of the prompt: the first part of a block that differs.

    `matching_parts` were compared before it and were equal. The checksums are xxh3-128 in hexadecimal.
    `max_deviation` is the largest difference of two numbers, in standard deviations of this head's; None where what
    had come was no longer at hand, or is not a number. `tolerance` is what would have been let pass, in the same unit:
    nothing, between nodes of equal arithmetic.
    """

    request_id: str
    kind: str
    epoch: int
    instance: str
    block: int
    part: int
    block_tokens: int
    matching_parts: int
    our_checksum: str
    their_checksum: str
    max_deviation: float | None = None
    tolerance: float = 0.0

    @property
    def sentence(self) -> str:
        """The finding in words."""
        first = self.block * self.block_tokens
        tokens = f"tokens {first} to {first + self.block_tokens - 1}"
        by = "" if self.max_deviation is None else f", by up to {self.max_deviation:.3g} standard deviations"
        return f"its KV of {tokens} of request {self.request_id} differs from what this head computes{by}"


@dataclass(frozen=True)
class Held:
    """One node that is not asked for anything; the fields that end in ``_at`` are Unix times."""

    node: str
    held_at: float
    evidence: Evidence
    released_at: float | None = None
    release_reason: str | None = None

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return self.evidence.sentence

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return vars(self) | {"evidence": dict(vars(self.evidence)), "reason": self.reason}


@dataclass(frozen=True)
class State:
    """All that is known; `generation` is part of every block's name, and empty before the first finding."""

    generation: str = ""
    held: tuple[Held, ...] = ()
    released: tuple[Held, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """A plain value, which `from_json` reads."""
        held, released = ([one.to_json() for one in some] for some in (self.held, self.released))
        return {"generation": self.generation, "held": held, "released": released}

    @classmethod
    def from_json(cls, document: Any) -> State:
        """The state of which `to_json` gave `document`. Raises `ValueError` for anything else."""
        state = _STATE.validate_python(document)
        if len({one.node for one in state.held}) < len(state.held):
            raise ValueError("a node is held twice")
        return state


_STATE = TypeAdapter(State)


class Storage(Protocol):
    """Where the state outlives the process."""

    def save(self, state: State) -> None:
        """Keep `state` in the place of what was kept before. A fault of the disk is told, not raised."""


class Quarantine:
    """Thread-safe. `storage` is written by `save` and `release`, never by `hold`, which returns at once."""

    def __init__(
        self, state: State = State(), storage: Storage | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._lock = threading.Lock()
        self._state = state
        self._storage = storage
        self._clock = clock

    @property
    def state(self) -> State:
        """Everything, as it is now."""
        return self._state

    def holds(self, node: str) -> Held | None:
        """Why `node` must not be asked, None where it may be."""
        return next((one for one in self._state.held if one.node == node), None)

    def space(self, tenant: str) -> str:
        """Under whose name the blocks of `tenant` are known from now on. No tenant's own name has a control character.

        Two heads have equal spaces only when they found the same instances wrong, in the same order.
        """
        generation = self._state.generation
        return f"{tenant}\x1f{generation}" if generation else tenant

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that are held now."""
        return tuple(one.node for one in self._state.held)

    def hold(self, node: str, evidence: Evidence) -> bool:
        """Ask `node` for nothing any more, and give all blocks new names; False when it is held already."""
        with self._lock:
            state = self._state
            if self.holds(node):
                return False
            held = (*state.held, Held(node, self._clock(), evidence))
            self._state = replace(state, generation=_next_generation(state, node, evidence), held=held)
            return True

    def complete(self, node: str, max_deviation: float | None) -> None:
        """Write into the evidence against `node` how far its KV is off."""
        with self._lock:
            found = tuple(_measured(one, max_deviation) if one.node == node else one for one in self._state.held)
            self._state = replace(self._state, held=found)

    def release(self, node: str, reason: str) -> Held:
        """Let `node` be asked again; its first KV is audited as that of a new process is.

        Raises `RefusedError` for a node that is not held, and `InputError` for a reason that is empty or too long.
        """
        reason = " ".join(reason.split())
        if not reason or len(reason) > MOST_REASON_CHARACTERS or not reason.isprintable():
            raise InputError(f"a release needs a reason of 1 to {MOST_REASON_CHARACTERS} printable characters")
        with self._lock:
            held = self.holds(node)
            if held is None:
                names = ", ".join(self.names) or "none"
                raise RefusedError(f"{node[:60]!r} is not in quarantine", hint=f"nodes that are: {names}")
            freed = replace(held, released_at=self._clock(), release_reason=reason)
            others = tuple(one for one in self._state.held if one is not held)
            released = (*self._state.released, freed)[-MOST_RELEASED:]
            self._state = replace(self._state, held=others, released=released)
        self.save()
        fields = {"worker": node, "epoch": freed.evidence.epoch, "reason": reason, "held_at": freed.held_at}
        _logger.warning("released from quarantine", extra=fields)
        return freed

    def save(self) -> None:
        """Write the state to the storage, if there is one."""
        if self._storage is not None:
            with self._lock:
                self._storage.save(self._state)


def _measured(held: Held, max_deviation: float | None) -> Held:
    return replace(held, evidence=replace(held.evidence, max_deviation=max_deviation))


def _next_generation(state: State, node: str, evidence: Evidence) -> str:
    text = f"{state.generation}\n{node}\n{evidence.epoch}\n{evidence.instance}"
    return hashlib.sha256(text.encode()).hexdigest()[:_GENERATION_CHARACTERS]


__all__ = ["MOST_REASON_CHARACTERS", "MOST_RELEASED", "Evidence", "Held", "Quarantine", "State", "Storage"]
