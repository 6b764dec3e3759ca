"""One import under audit: what is compared, what differs first, and where a broken attempt is taken up again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import export
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.pool import BlockPool, StoredPart
from kakeya_ops.serving.audit_case import Case, Imported
from serving.running import hash_prompt

BLOCKS = 4
Parts = dict[int, tuple[StoredPart | None, ...]]


@pytest.fixture(scope="module")
def engine(tiny_family) -> Iterator[Engine]:  # type: ignore[no-untyped-def]
    """A model with rows and with recurrent states."""
    engine = Engine.load(tiny_family("qwen3_next"), SETTINGS)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def parts(engine: Engine) -> Parts:
    return dict(export(engine, prompt(BLOCKS * BLOCK_TOKENS + 1, seed=1), BLOCKS))


def make_case(engine: Engine, parts: Parts, *places: tuple[int, int]) -> Case:
    """Of an import of `places`, by default of all that is needed to resume after all blocks."""
    whole = hash_prompt(engine.identity, prompt(BLOCKS * BLOCK_TOKENS + 1, seed=1))
    came = {}
    for block, part in places or whole.layout.needed(BLOCKS):
        stored = parts[block][part]
        assert stored is not None
        came[block, part] = stored.checksum
    return Case(Imported("worker", 7, "ab" * 16, "remote_compute", whole, came), first=True)


def spoil(stored: StoredPart | None, by: float) -> StoredPart:
    """The same with its first number changed."""
    assert stored is not None
    numbers = np.frombuffer(stored.data, "<f4").copy()
    numbers[0] += by
    return StoredPart.of(numbers.tobytes())


def rows(engine: Engine) -> int:
    """The part of which every block comes."""
    return next(index for index, part in enumerate(engine.layout.parts) if part.kind == "full")


def spoil_block(engine: Engine, parts: Parts, block: int, by: float) -> tuple[StoredPart | None, ...]:
    """A block whose rows are not what they were."""
    spoiled = rows(engine)
    return tuple(spoil(part, by) if index == spoiled else part for index, part in enumerate(parts[block]))


def keep(case: Case, parts: Parts, *blocks: int) -> BlockPool:
    pool = BlockPool(2**24)
    for block in blocks:
        for part, stored in enumerate(parts[block]):
            if stored is not None:
                pool.put(case.imported.prompt.key(block, part), stored)
    return pool


def test_it_ends_with_the_last_block_that_came_and_has_its_states(engine: Engine, parts: Parts) -> None:
    state = next(index for index, part in enumerate(engine.layout.parts) if part.kind == "state")
    assert (make_case(engine, parts).blocks, make_case(engine, parts).states) == (BLOCKS, {BLOCKS - 1})
    assert (
        make_case(engine, parts, (1, rows(engine)), (2, state)).blocks,
        make_case(engine, parts, (1, rows(engine))).states,
    ) == (3, set())


def test_what_is_equal_is_no_evidence(engine: Engine, parts: Parts) -> None:
    case, pool = make_case(engine, parts), BlockPool(2**20)
    assert [case.compare(block, parts[block], pool) for block in range(BLOCKS)] == [None] * BLOCKS
    assert not case.failed


def test_the_first_difference_is_the_evidence(engine: Engine, parts: Parts) -> None:
    case = make_case(engine, parts)
    pool = keep(case, parts, 2)
    ours = spoil_block(engine, parts, 2, by=3.0)
    assert case.compare(0, parts[0], pool) is None
    evidence = case.compare(2, ours, pool)
    assert evidence is not None
    assert (evidence.request_id, evidence.epoch, evidence.instance) == ("request", 7, "ab" * 16)
    assert (evidence.block, evidence.block_tokens, evidence.matching_parts) == (2, BLOCK_TOKENS, 1)
    part = rows(engine)
    assert (evidence.part, evidence.our_checksum) == (part, ours[part].checksum.hex())  # type: ignore[union-attr]
    assert evidence.their_checksum == parts[2][part].checksum.hex()  # type: ignore[union-attr]
    assert case.failed
    assert case.compare(3, ours, pool) is None
    deviation = case.deviation()
    assert deviation is not None
    assert deviation > 1


def test_what_did_not_come_is_not_judged(engine: Engine, parts: Parts) -> None:
    case = make_case(engine, parts, (3, rows(engine)))
    wrong = tuple(spoil(stored, by=1.0) if stored else None for stored in parts[1])
    assert case.compare(1, wrong, BlockPool(2**20)) is None
    assert not case.failed


def test_without_the_payload_it_is_not_known_how_far_it_is_off(engine: Engine, parts: Parts) -> None:
    case = make_case(engine, parts)
    assert case.compare(0, spoil_block(engine, parts, 0, by=1.0), BlockPool(2**20)) is not None
    assert case.deviation() is None


def test_what_is_no_number_has_no_distance(engine: Engine, parts: Parts) -> None:
    broken = {**parts, 0: spoil_block(engine, parts, 0, by=float("nan"))}
    case = make_case(engine, broken)
    assert case.compare(0, parts[0], keep(case, broken, 0)) is not None
    assert case.deviation() is None


def test_nothing_computed_is_nothing_to_resume_after(engine: Engine, parts: Parts) -> None:
    case = make_case(engine, parts)
    assert case.resume(engine, keep(case, parts, 0, 1, 2, 3)) is None


def test_it_is_taken_up_where_the_pool_holds_what_it_computed(engine: Engine, parts: Parts) -> None:
    case = make_case(engine, parts)
    pool = keep(case, parts, 0, 1, 2)
    before = pool.stats()
    for block in range(2):
        case.compare(block, parts[block], pool)
    prefix = case.resume(engine, pool)
    assert prefix is not None
    assert (prefix.blocks, prefix.complete) == (2, True)
    assert pool.stats() == before


def test_other_bytes_under_the_same_name_are_not_taken(engine: Engine, parts: Parts) -> None:
    case = make_case(engine, parts, (3, rows(engine)))
    pool = keep(case, {**parts, 1: spoil_block(engine, parts, 1, by=1.0)}, 0, 1)
    for block in range(2):
        case.compare(block, parts[block], pool)
    prefix = case.resume(engine, pool)
    assert prefix is not None
    assert prefix.blocks == 1
