"""What is at hand of a prompt: the pool's blocks and the arrivals, together, each placed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import BlockPool, StoredPart
from kakeya_ops.serving.holdings import Holdings
from kakeya_ops.serving.prompts import Prompt
from listeners import Blocks
from serving.running import hash_prompt

BLOCKS = 4
Stored = dict[int, StoredPart]


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    engine = Engine.load(tiny_llama, SETTINGS)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def named(engine: Engine) -> Prompt:
    return hash_prompt(engine.identity, prompt(BLOCKS * BLOCK_TOKENS + 1))


@pytest.fixture(scope="module")
def stored(engine: Engine, named: Prompt) -> Stored:
    kept = Blocks()
    engine.prefill(PrefillJob(named.tokens, BLOCKS, kept.keep, kept.done))
    assert kept.wait() is None
    return {block: parts[0] for block, parts in kept.parts.items() if parts[0] is not None}


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(2**22)


def test_nothing_at_hand(engine: Engine, named: Prompt, pool: BlockPool) -> None:
    holdings = Holdings(engine, pool, named, use_pool=True)
    assert (holdings.local_blocks, holdings.received_blocks, holdings.received_bytes) == (0, 0, 0)
    assert holdings.assemble() == (0, None)


def test_the_pool_fills_what_it_holds_and_keeps_it_meanwhile(
    engine: Engine, named: Prompt, pool: BlockPool, stored: Stored
) -> None:
    for block in (0, 1, 3):
        pool.put(named.key(block, 0), stored[block])
    with Holdings(engine, pool, named, use_pool=True).opened(BLOCKS) as (assembly, held):
        assert held == 2
        assert pool.stats().pinned_bytes == 3 * stored[0].nbytes
        assert not assembly.complete
    assert pool.stats().pinned_bytes == 0


def test_arrivals_are_kept_placed_and_counted(engine: Engine, named: Prompt, pool: BlockPool, stored: Stored) -> None:
    pool.put(named.key(0, 0), stored[0])
    holdings = Holdings(engine, pool, named, use_pool=True)
    with holdings.opened(BLOCKS) as (assembly, held):
        for block in range(held, BLOCKS):
            holdings.take(assembly, block, 0, stored[block])
        assert assembly.complete
    assert (holdings.received_blocks, holdings.received_bytes) == (3, 3 * stored[0].nbytes)
    assert holdings.received_digest == blocks_digest((block, 0, stored[block].checksum) for block in (1, 2, 3))
    assert holdings.local_blocks == BLOCKS
    assert holdings.import_seconds > 0


def test_a_pool_that_must_not_be_read_still_learns(
    engine: Engine, named: Prompt, pool: BlockPool, stored: Stored
) -> None:
    pool.put(named.key(0, 0), stored[0])
    holdings = Holdings(engine, pool, named, use_pool=False)
    with holdings.opened(BLOCKS) as (assembly, held):
        assert held == 0
        holdings.take(assembly, 1, 0, stored[1])
    assert holdings.assemble() == (0, None)
    assert pool.holds(named.key(1, 0))


def test_pool_and_arrivals_make_one_prefix(engine: Engine, named: Prompt, pool: BlockPool, stored: Stored) -> None:
    holdings = Holdings(engine, pool, named, use_pool=True)
    with holdings.opened(BLOCKS) as (assembly, _):
        holdings.take(assembly, 1, 0, stored[1])
    pool.clear()
    pool.put(named.key(0, 0), stored[0])
    blocks, whole = holdings.assemble()
    assert blocks == 2
    assert whole is not None
    assert whole.complete
