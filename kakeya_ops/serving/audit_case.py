"""One import that is being audited: what came, what the head computes, and where the two first differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.deviation import relative_deviation
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.serving.division import Place
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.quarantine import Evidence


@dataclass(frozen=True)
class Imported:
    """What one process of a node sent for a prompt: the checksum of each payload. Their bytes are not kept for this."""

    node: str
    epoch: int
    instance: str
    kind: str
    prompt: Prompt
    checksums: Mapping[Place, bytes]


@dataclass(frozen=True)
class _Difference:
    place: Place
    ours: StoredPart
    theirs: StoredPart | None
    """None where it has left the pool."""


@dataclass(eq=False)
class Case:
    """`first` of a process. Written by the compute thread while a job runs, else by the auditor's."""

    imported: Imported
    first: bool
    _computed: dict[Place, bytes] = field(default_factory=dict)
    _difference: _Difference | None = None

    @property
    def blocks(self) -> int:
        """How many blocks are to be computed: up to the last that came."""
        return max(block for block, _ in self.imported.checksums) + 1

    @property
    def states(self) -> frozenset[int]:
        """The blocks whose recurrent state came too."""
        parts = self.imported.prompt.layout.parts
        return frozenset(block for block, part in self.imported.checksums if parts[part].kind == "state")

    @property
    def failed(self) -> bool:
        """Whether something differs."""
        return self._difference is not None

    def compare(self, block: int, parts: Sequence[StoredPart | None], pool: BlockPool) -> Evidence | None:
        """Compare one block that was computed here; the evidence if it is the first that differs."""
        for part, ours in enumerate(parts):
            place = (block, part)
            came = self.imported.checksums.get(place)
            if ours is None or self.failed:
                continue
            if came is not None and came != ours.checksum:
                self._difference = _Difference(place, ours, self._at_hand(place, came, pool))
                return self._evidence(self._difference, came)
            self._computed[place] = ours.checksum
        return None

    def deviation(self) -> float | None:
        """How far the difference goes, as `Evidence.max_deviation`. Reads every number of the two payloads."""
        found = self._difference
        if found is None or found.theirs is None:
            return None
        part = self.imported.prompt.layout.parts[found.place[1]]
        deviation = relative_deviation(part, found.ours.data, found.theirs.data)
        return deviation if math.isfinite(deviation) else None

    def resume(self, engine: Engine, pool: BlockPool) -> Assembly | None:
        """Where an earlier attempt was broken off, as far as the pool holds the very bytes that it computed."""
        prompt = self.imported.prompt
        held = {
            prompt.key(*place): stored
            for place, checksum in self._computed.items()
            if (stored := self._at_hand(place, checksum, pool)) is not None
        }
        blocks = longest_resume(prompt.layout, prompt.hashes, held.__contains__, self.blocks)
        if blocks == 0:
            return None
        assembly = engine.open_import(blocks)
        for place in prompt.layout.needed(blocks):
            assembly.place(*place, held[prompt.key(*place)].data)
        return assembly

    def _at_hand(self, place: Place, checksum: bytes, pool: BlockPool) -> StoredPart | None:
        """The payload with `checksum`, if the pool has it; not a use of it."""
        key: PartKey = self.imported.prompt.key(*place)
        stored = pool.peek(key)
        return stored if stored is not None and stored.checksum == checksum else None

    def _evidence(self, found: _Difference, came: bytes) -> Evidence:
        imported, (block, part) = self.imported, found.place
        return Evidence(
            request_id=imported.prompt.request_id,
            kind=imported.kind,
            epoch=imported.epoch,
            instance=imported.instance,
            block=block,
            part=part,
            block_tokens=imported.prompt.layout.block_tokens,
            matching_parts=len(self._computed.keys() & imported.checksums.keys()),
            our_checksum=found.ours.checksum.hex(),
            their_checksum=came.hex(),
        )


__all__ = ["Case", "Imported"]
