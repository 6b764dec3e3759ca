"""What is at hand of one prompt: the blocks of the head's own pool, and those that have arrived for this request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.serving.prompts import Prompt


class Holdings:
    """Of one request, used by one thread; only `take` may be called by several.

    Without `use_pool` the pool is written to, but not read. `import_seconds` is the time spent placing payloads into
    buffers so far.
    """

    def __init__(self, engine: Engine, pool: BlockPool, prompt: Prompt, *, use_pool: bool) -> None:
        self.prompt = prompt
        self.import_seconds = 0.0
        self._engine = engine
        self._pool = pool
        self._use_pool = use_pool
        self._lock = threading.Lock()
        self._received: dict[tuple[int, int], StoredPart] = {}
        self._discarded_bytes = 0

    @property
    def local_blocks(self) -> int:
        """How many blocks the own pool lets the prompt resume after; they are the last to be evicted from now on."""
        if not self._use_pool:
            return 0
        layout, hashes = self.prompt.layout, self.prompt.hashes
        blocks = longest_resume(layout, hashes, self._pool.holds, self.prompt.blocks)
        self._pool.touch_prefix(self.prompt.key(*pair) for pair in layout.needed(blocks))
        return blocks

    @property
    def received_checksums(self) -> dict[tuple[int, int], bytes]:
        """The checksum of all that has arrived, by block and part."""
        return {place: stored.checksum for place, stored in self._received.items()}

    @property
    def received_blocks(self) -> int:
        """Of how many blocks something has arrived."""
        return len({block for block, _ in self._received})

    @property
    def received_bytes(self) -> int:
        """Bytes of all that has arrived, whatever became of them."""
        return self._discarded_bytes + sum(stored.nbytes for stored in self._received.values())

    @property
    def received_digest(self) -> str:
        """The `blocks_digest` of all that has arrived."""
        return blocks_digest((block, part, stored.checksum) for (block, part), stored in self._received.items())

    @contextmanager
    def opened(self, blocks: int) -> Iterator[tuple[Assembly, int]]:
        """Buffers for a prefix of `blocks` blocks, and how many of these the own pool has filled.

        What it holds of the others stays in the pool until the end of the ``with``.
        """
        with self._pin() as own:
            held = self._resume_after(own)
            assembly = self._engine.open_import(blocks)
            self._place_all(assembly, own, [pair for pair in self.prompt.layout.needed(blocks) if pair[0] < held])
            yield assembly, held

    def take(self, assembly: Assembly, block: int, part: int, stored: StoredPart) -> None:
        """Keep and place one payload that has arrived; each only once."""
        self._received[block, part] = stored
        self._pool.put(self.prompt.key(block, part), stored)
        began = time.monotonic()
        assembly.place(block, part, stored.data)
        seconds = time.monotonic() - began
        with self._lock:
            self.import_seconds += seconds

    def discard(self) -> None:
        """Keep nothing of what has arrived, also not in the own pool."""
        self._discarded_bytes = self.received_bytes
        self._pool.drop({self.prompt.key(*place): stored for place, stored in self._received.items()})
        self._received.clear()

    def assemble(self) -> tuple[int, Assembly | None]:
        """The longest prefix that the pool and the arrivals hold together, put together; None if it has no block."""
        with self._pin() as own:
            arrived = {self.prompt.key(block, part): stored for (block, part), stored in self._received.items()}
            parts = own | arrived
            blocks = self._resume_after(parts)
            if blocks == 0:
                return 0, None
            assembly = self._engine.open_import(blocks)
            self._place_all(assembly, parts, self.prompt.layout.needed(blocks))
        return blocks, assembly

    @contextmanager
    def _pin(self) -> Iterator[dict[PartKey, StoredPart]]:
        """What the own pool holds of this prompt, safe from eviction meanwhile; nothing where it must not be read."""
        prompt = self.prompt
        wanted = prompt.blocks if self._use_pool else 0
        parts = range(len(prompt.layout.parts))
        with self._pool.pin(prompt.key(block, part) for block in range(wanted) for part in parts) as held:
            yield held

    def _resume_after(self, parts: Mapping[PartKey, StoredPart]) -> int:
        return longest_resume(self.prompt.layout, self.prompt.hashes, parts.__contains__, self.prompt.blocks)

    def _place_all(
        self, assembly: Assembly, parts: Mapping[PartKey, StoredPart], pairs: Iterable[tuple[int, int]]
    ) -> None:
        began = time.monotonic()
        for block, part in pairs:
            assembly.place(block, part, parts[self.prompt.key(block, part)].data)
        self.import_seconds += time.monotonic() - began


__all__ = ["Holdings"]
