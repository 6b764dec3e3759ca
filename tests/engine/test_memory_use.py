"""What MLX holds: as much as is accounted for after many requests, little while a prefix is imported, nothing of those
who went away.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import mlx.core as mx
import psutil
import pytest

from engine_bench import BLOCK_TOKENS, memory_comes_back_to, prompt
from kakeya_ops.engine.contract import BlockSink, DecodeRequest
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.units import BlockHash
from listeners import Listener

OpenEngine = Callable[..., Engine]
TOKENS = 2 * BLOCK_TOKENS + 3


@pytest.fixture
def engine(open_engine: OpenEngine) -> Engine:
    engine = open_engine(queue_limit=64, together=4)
    ended = Listener()
    engine.decode(DecodeRequest("warm", prompt(20), 2), ended)
    ended.wait_for_end()
    return engine


def keep_in(pool: BlockPool, request: int) -> BlockSink:
    def keep(block: int, parts: tuple[StoredPart | None, ...]) -> None:
        for part, stored in enumerate(parts):
            if stored is not None:
                name = request.to_bytes(16, "big") + block.to_bytes(16, "big")
                pool.put(PartKey(BlockHash(name), part), stored)

    return keep


def active_bytes() -> int:
    gc.collect()
    return mx.get_active_memory()


def test_after_four_hundred_requests_the_pool_holds_what_it_says(engine: Engine) -> None:
    block_bytes = sum(part.nbytes for part in engine.layout.parts)
    pool = BlockPool(200 * block_bytes)
    before = active_bytes()
    for first in range(0, 400, 20):
        listeners = []
        for number in range(first, first + 20):
            listeners.append(Listener())
            request = DecodeRequest(str(number), prompt(TOKENS, seed=number), 2)
            engine.decode(request, listeners[-1], on_block=keep_in(pool, number))
        for listener in listeners:
            listener.wait_for_end()
    assert pool.stats().evictions > 500
    assert pool.used_bytes > 0.9 * pool.budget_bytes
    assert memory_comes_back_to(before + 1.2 * pool.used_bytes)
    assert active_bytes() - before >= 0.8 * pool.used_bytes


def test_five_hundred_prompts_half_of_them_given_up_leave_nothing(engine: Engine) -> None:
    process = psutil.Process()
    before = active_bytes()
    threads, files = threading.active_count(), process.num_fds()
    for first in range(0, 500, 20):
        pairs = []
        for number in range(first, first + 20):
            listener = Listener()
            ticket = engine.decode(DecodeRequest(str(number), prompt(TOKENS, seed=number), 4), listener)
            pairs.append((number, ticket, listener))
        for number, ticket, listener in pairs:
            if number % 4 == 0:
                listener.wait_for(lambda listener=listener: bool(listener.events))
            if number % 2 == 0:
                ticket.cancel()
        for _, _, listener in pairs:
            listener.wait_for(lambda listener=listener: listener.ended)
    assert memory_comes_back_to(before + 20_000)
    assert threading.active_count() <= threads + 5
    assert process.num_fds() <= files + 5  # other tests of the process may have some of their own
    assert (engine.queued, engine.decoding) == (0, 0)


def test_an_import_takes_little_more_than_the_snapshot(engine: Engine) -> None:
    """From the first buffer to the first token, with nobody else decoding; the payloads come one by one, as they do."""
    blocks = 1024
    snapshot_bytes = blocks * sum(part.nbytes for part in engine.layout.parts)
    payload = bytes(engine.layout.parts[0].nbytes)
    before = active_bytes()
    mx.reset_peak_memory()
    assembly = engine.open_import(blocks)
    for block, part in engine.layout.needed(blocks):
        assembly.place(block, part, payload)
    listener = Listener()
    engine.decode(DecodeRequest("r", prompt(blocks * BLOCK_TOKENS + 1), 2), listener, prefix=assembly)
    del assembly
    listener.wait_for_end()
    assert mx.get_peak_memory() - before <= 1.3 * snapshot_bytes
    assert memory_comes_back_to(before + 20_000)
