"""Payloads that turned out to be not trusted leave a pool, whoever uses them at the moment."""

from __future__ import annotations

from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.units import BlockHash

KEYS = [PartKey(BlockHash(bytes([block]) * 32), 0) for block in range(6)]


def make_part(nbytes: int) -> StoredPart:
    return StoredPart.of(bytes(nbytes))


def held_keys(pool: BlockPool) -> set[PartKey]:
    return {key for key in KEYS if pool.holds(key)}


def test_what_is_dropped_goes_at_once_or_with_its_last_lease() -> None:
    pool = BlockPool(100)
    parts = {key: make_part(10) for key in KEYS[:4]}
    assert pool.put_all(parts)
    pool.promote(KEYS[:2])
    leases = [pool.pin(KEYS[1:3]) for _ in range(2)]
    pool.drop({key: parts[key] for key in KEYS[:2]} | {KEYS[3]: make_part(10), KEYS[5]: make_part(10)})
    assert held_keys(pool) == set(KEYS[1:4])  # of another payload under the same key nothing was said
    leases.pop().release()
    assert pool.holds(KEYS[1])
    leases.pop().release()
    assert held_keys(pool) == set(KEYS[2:4])
    stats = pool.stats()
    assert (stats.used_bytes, stats.pinned_bytes, stats.evictions) == (20, 0, 0)
    again = {key: make_part(10) for key in KEYS[:2]}
    assert pool.put_all(again)
    with pool.pin(KEYS[:2]):
        pass
    assert held_keys(pool) == set(KEYS[:4])
