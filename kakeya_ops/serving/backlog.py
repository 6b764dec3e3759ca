"""What waits to be sent to peers: one queue, bounded by entries and bytes, that drops the oldest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kakeya_ops.serving.prompts import Prompt


@dataclass(frozen=True)
class Chain:
    """The first `blocks` blocks of a prompt."""

    prompt: Prompt
    blocks: int

    @property
    def nbytes(self) -> int:
        """The most that its payloads can have."""
        return self.blocks * sum(part.nbytes for part in self.prompt.layout.parts)


@dataclass(frozen=True)
class Consignment:
    """A chain for the peer called `node`."""

    node: str
    chain: Chain


class Backlog:
    """Oldest first. A longer chain takes the place of one that it goes on from, since it brings all of that along.

    Only keys wait, no payloads: what leaves the pool meanwhile is not sent. A single one is taken however large.
    """

    def __init__(self, most_entries: int, most_bytes: int) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._waiting: dict[tuple[str, bytes], Consignment] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nbytes(self) -> int:
        """The most bytes that all that waits can have."""
        return self._bytes

    def put(self, consignment: Consignment) -> list[Consignment]:
        """Add `consignment`; what is dropped for it, oldest first."""
        chain = consignment.chain
        for hash in chain.prompt.hashes[: chain.blocks]:
            self._remove((consignment.node, hash))
        self._waiting[_name(consignment)] = consignment
        self._bytes += chain.nbytes
        return list(self._surplus())

    def take(self, node: str) -> Consignment | None:
        """The oldest for `node`, which waits no longer; None when there is none."""
        name = next((name for name in self._waiting if name[0] == node), None)
        return None if name is None else self._remove(name)

    def _surplus(self) -> Iterator[Consignment]:
        while len(self._waiting) > 1 and (len(self) > self._most_entries or self._bytes > self._most_bytes):
            oldest = self._remove(next(iter(self._waiting)))
            assert oldest is not None
            yield oldest

    def _remove(self, name: tuple[str, bytes]) -> Consignment | None:
        found = self._waiting.pop(name, None)
        if found is not None:
            self._bytes -= found.chain.nbytes
        return found


def _name(consignment: Consignment) -> tuple[str, bytes]:
    chain = consignment.chain
    return consignment.node, chain.prompt.hashes[chain.blocks - 1]


__all__ = ["Backlog", "Chain", "Consignment"]
