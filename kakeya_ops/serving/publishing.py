"""Finished prefixes on their way to the peers that are to keep them, in the background.

A request never waits for any of this. One thread decides who is to have what; each peer has a thread of its own for as
long as something waits for it, so that a slow one holds up nobody else. A peer is asked what it holds, and gets what it
lacks in pieces, of which only the present one is pinned. What cannot be delivered is dropped and counted: the next
request with the same prefix offers it again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kakeya_ops.errors import PeerError
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.backlog import Backlog, Chain, Consignment
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.placement import Member, choose_peers, root_of
from kakeya_ops.serving.standing import Standing
from kakeya_ops.serving.supply import explain_fallback
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.bodies import LookupReply

MOST_ENTRIES = 64
_SMALLEST_PIECE_BYTES = 256 * 1024
_LARGEST_PIECE_BYTES = 4 * 1024 * 1024
_PIECE_SECONDS = 1.0
"""About how long one piece may take: by this its size follows the link."""
_JOIN_SECONDS = 10.0

_logger = logging.getLogger(__name__)


class Shelf(Protocol):
    """A peer that can keep blocks."""

    @property
    def node(self) -> str:
        """Its node id."""

    @property
    def capacity_bytes(self) -> int:
        """The budget of its pool."""

    def ask_held(self, hashes: Sequence[BlockHash], stop: StopFlag) -> LookupReply:
        """What it holds of these blocks. Raises `PeerError`."""

    def store(self, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag) -> None:
        """Have it keep `parts`. Raises `PeerError`."""


@dataclass(frozen=True)
class PublishRules:
    """In how many pools a prefix is kept (0: in none but the own), and from how many tokens on it is worth it."""

    replicas: int = 1
    min_tokens: int = 128
    most_entries: int = MOST_ENTRIES


class Publisher:
    """Runs from the first offer to `close`. Thread-safe; `clock` gives monotonic seconds.

    `find_shelves` names the peers that can keep the node's blocks now. No more bytes wait than the node's pool has.
    """

    def __init__(
        self,
        node: Node,
        find_shelves: Callable[[], Iterable[Shelf]],
        rules: PublishRules,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._find_shelves = find_shelves
        self._rules = rules
        self._clock = clock
        self._standing = Standing(clock)
        self._stop = StopFlag()
        self._changed = threading.Condition()
        self._offers: dict[bytes, Chain] = {}
        self._backlog = Backlog(rules.most_entries, node.pool.budget_bytes)
        self._shelves: dict[str, Shelf] = {}
        self._carriers: dict[str, threading.Thread] = {}
        self._piece_bytes: dict[str, int] = {}
        self._planner: threading.Thread | None = None
        self._planning = False

    def offer(self, chain: Chain) -> None:
        """Let `chain`, which is in the node's pool, come to the peers that are to keep it. Returns at once."""
        worth = chain.blocks * chain.prompt.layout.block_tokens >= self._rules.min_tokens
        if self._rules.replicas == 0 or chain.blocks == 0 or not worth:
            return
        with self._changed:
            if self._stop.stopped:
                return
            self._offers.pop(chain.prompt.hashes[chain.blocks - 1], None)
            self._offers[chain.prompt.hashes[chain.blocks - 1]] = chain
            while len(self._offers) > self._rules.most_entries:
                self._drop(self._offers.pop(next(iter(self._offers))).blocks, "full")
            if self._planner is None:
                self._planner = self._start(self._plan_all, "publisher")
            self._changed.notify_all()

    def close(self) -> None:
        """Send nothing more, breaking off what is under way."""
        self._stop.stop()
        with self._changed:
            self._changed.notify_all()
            threads = [*self._carriers.values(), *([self._planner] if self._planner else [])]
        for thread in threads:
            thread.join(_JOIN_SECONDS)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing is offered, waiting or under way; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._offers or self._planning or len(self._backlog) or self._carriers), seconds
            )

    def _start(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _plan_all(self) -> None:
        while (chain := self._next_offer()) is not None:
            try:
                self._plan(chain)
            except Exception:
                _logger.exception("publishing failed")
                self._drop(chain.blocks, "internal")

    def _plan(self, chain: Chain) -> None:
        """Let `chain` wait for those who are to keep it."""
        shelves = [shelf for shelf in self._find_shelves() if self._standing.usable(shelf.node)]
        members = [Member(shelf.node, max(shelf.capacity_bytes, 1)) for shelf in shelves]
        chosen = choose_peers(members, root_of(chain.prompt.hashes[: chain.blocks]), self._rules.replicas)
        with self._changed:
            for shelf in shelves:
                if shelf.node in chosen:
                    self._entrust(shelf, chain)

    def _next_offer(self) -> Chain | None:
        with self._changed:
            self._planning = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._offers) or self._stop.stopped)
            if self._stop.stopped:
                return None
            self._planning = True
            return self._offers.pop(next(iter(self._offers)))

    def _entrust(self, shelf: Shelf, chain: Chain) -> None:
        """Let `chain` wait for `shelf`, and somebody carry it. Under the lock."""
        for dropped in self._backlog.put(Consignment(shelf.node, chain)):
            self._drop(dropped.chain.blocks, "full", dropped.node)
        self._shelves[shelf.node] = shelf
        if shelf.node not in self._carriers and not self._stop.stopped:
            self._carriers[shelf.node] = self._start(lambda: self._carry(shelf.node), f"publish-{shelf.node}")

    def _carry(self, node: str) -> None:
        while (chain := self._next_for(node)) is not None:
            try:
                self._deliver(self._shelves[node], chain)
            except Exception:
                _logger.exception("publishing failed")
                self._drop(chain.blocks, "internal", node)

    def _next_for(self, node: str) -> Chain | None:
        with self._changed:
            consignment = None if self._stop.stopped else self._backlog.take(node)
            if consignment is not None:
                return consignment.chain
            del self._carriers[node]
            self._changed.notify_all()
            return None

    def _deliver(self, shelf: Shelf, chain: Chain) -> None:
        """Bring `shelf` what it lacks of `chain`, as far as the own pool has it and nothing goes wrong."""
        sent_blocks = 0
        try:
            if not self._standing.usable(shelf.node):
                self._drop(chain.blocks, "paused", shelf.node)
                return
            places = find_lacking(chain, shelf.ask_held(chain.prompt.hashes[: chain.blocks], self._stop), self._holds)
            sent_blocks = chain.blocks - len({block for block, _ in places})
            for piece in self._pieces(shelf.node, chain, places):
                sent_blocks += self._send(shelf, chain, piece)
            self._standing.succeeded(shelf.node)
        except CallAborted:
            return
        except PeerError as error:
            self._standing.failed(shelf.node)
            self._drop(max(chain.blocks - sent_blocks, 1), explain_fallback(error).reason, shelf.node)

    def _holds(self, key: PartKey) -> bool:
        return self._node.pool.holds(key)

    def _pieces(
        self, node: str, chain: Chain, places: Sequence[tuple[int, int]]
    ) -> Iterator[Sequence[tuple[int, int]]]:
        """Runs of `places` that are about as large as the link to `node` takes in a second, each at least one."""
        piece: list[tuple[int, int]] = []
        nbytes = 0
        for place in places:
            size = chain.prompt.layout.parts[place[1]].nbytes
            if piece and nbytes + size > self._piece_bytes.get(node, _SMALLEST_PIECE_BYTES):
                yield piece
                piece, nbytes = [], 0
            piece.append(place)
            nbytes += size
        if piece:
            yield piece

    def _send(self, shelf: Shelf, chain: Chain, places: Sequence[tuple[int, int]]) -> int:
        """Send one piece; how many blocks it had. What has left the pool meanwhile is dropped."""
        wanted = {chain.prompt.key(*place): place[0] for place in places}
        with self._node.pool.pin(wanted) as held:
            if gone := len(set(wanted.values()) - {wanted[key] for key in held}):
                self._drop(gone, "evicted", shelf.node)
            if not held:
                return 0
            began = self._clock()
            shelf.store(list(held.items()), self._stop)
            self._adapt(shelf.node, self._clock() - began)
            nbytes = sum(part.nbytes for part in held.values())
        self._node.counters.add(CounterName.BYTES_PUBLISHED, nbytes, worker=shelf.node)
        return len(set(wanted.values()))

    def _adapt(self, node: str, seconds: float) -> None:
        size = self._piece_bytes.get(node, _SMALLEST_PIECE_BYTES)
        size = size * 2 if seconds < _PIECE_SECONDS / 2 else size // 2 if seconds > _PIECE_SECONDS * 2 else size
        self._piece_bytes[node] = min(max(size, _SMALLEST_PIECE_BYTES), _LARGEST_PIECE_BYTES)

    def _drop(self, blocks: int, reason: str, node: str = "") -> None:
        self._node.counters.add(CounterName.BLOCKS_DROPPED, blocks, worker=node, reason=reason)


def find_lacking(chain: Chain, reply: LookupReply, holds: Callable[[PartKey], bool]) -> list[tuple[int, int]]:
    """Every ``(block, part)`` of `chain` that is at hand here and that a peer with this `reply` may lack, in order.

    Also what is not needed to resume at the end is sent, since another prompt may branch off before. A peer surely
    holds what it needs to resume where it says; of other payloads it tells only how many it holds.
    """
    prompt = chain.prompt
    parts = range(len(prompt.layout.parts))
    own = [(block, part) for block in range(chain.blocks) for part in parts if holds(prompt.key(block, part))]
    if reply.parts_held >= len(own) and reply.resume_blocks >= chain.blocks:
        return []
    before = [place for place in own if place[0] < reply.resume_blocks]
    sure = set(prompt.layout.needed(reply.resume_blocks))
    all_before = reply.parts_held >= len(before)
    return [place for place in own if place[0] >= reply.resume_blocks or not (all_before or place in sure)]


__all__ = ["MOST_ENTRIES", "PublishRules", "Publisher", "Shelf", "find_lacking"]
