from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kakeya_ops.errors import PoolFull
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.kv.pool import BlockPool, Lease, PartKey, Reservation, StoredPart
from kakeya_ops.units import BlockHash

KEYS = [PartKey(BlockHash(bytes([block]) * 32), part) for block in range(6) for part in range(2)]
SIZES = {key: 1 + 3 * index % 11 for index, key in enumerate(KEYS)}
PARTS = {key: StoredPart.of(bytes([index]) * SIZES[key]) for index, key in enumerate(KEYS)}


def make_part(nbytes: int) -> StoredPart:
    return StoredPart.of(bytes(nbytes))


def held_keys(pool: BlockPool) -> set[PartKey]:
    return {key for key in KEYS if pool.holds(key)}


def test_a_stored_part_views_read_only_bytes_without_a_copy() -> None:
    buffer = bytearray(b"kakeya")
    part = StoredPart.of(memoryview(buffer).cast("B", (2, 3)))
    assert part.data.obj is buffer
    assert (part.data.readonly, part.data.format, part.nbytes) == (True, "B", 6)
    assert part.checksum == content_checksum(b"kakeya")


def test_least_recently_used_goes_first() -> None:
    pool = BlockPool(30)
    first, second, third, fourth = KEYS[:4]
    for key in (first, second, third):
        assert pool.put(key, make_part(10))
    assert pool.get(first) is not None
    assert pool.put(fourth, make_part(10))
    assert held_keys(pool) == {first, third, fourth}
    assert pool.stats().evictions == 1


def test_asking_what_is_held_is_not_a_use() -> None:
    pool = BlockPool(20)
    pool.put(KEYS[0], make_part(10))
    pool.put(KEYS[1], make_part(10))
    assert pool.holds(KEYS[0])
    pool.put(KEYS[2], make_part(10))
    assert held_keys(pool) == {KEYS[1], KEYS[2]}
    assert (pool.stats().hits, pool.stats().misses) == (0, 0)


def test_the_same_key_is_counted_once_and_keeps_its_bytes() -> None:
    pool = BlockPool(30)
    original = make_part(10)
    assert pool.put(KEYS[0], original)
    assert pool.put(KEYS[1], make_part(10))
    assert pool.put(KEYS[0], make_part(10))
    assert pool.used_bytes == 20
    assert pool.get(KEYS[0]) is original
    pool.put(KEYS[2], make_part(20))
    assert held_keys(pool) == {KEYS[0], KEYS[2]}


def test_what_can_never_fit_changes_nothing_and_is_counted() -> None:
    pool = BlockPool(30)
    pool.put(KEYS[0], make_part(10))
    assert not pool.put(KEYS[1], make_part(31))
    assert not pool.put_all({KEYS[0]: make_part(10), KEYS[1]: make_part(21)})
    assert held_keys(pool) == {KEYS[0]}
    assert pool.stats().rejected == 2
    assert pool.stats().evictions == 0


def test_putting_several_does_not_evict_those_of_them_that_are_here() -> None:
    pool = BlockPool(30)
    for key in KEYS[:3]:
        pool.put(key, make_part(10))
    assert pool.put_all({KEYS[3]: make_part(10), KEYS[0]: make_part(10)})
    assert held_keys(pool) == {KEYS[0], KEYS[2], KEYS[3]}


def test_the_head_of_a_chain_outlives_its_tail() -> None:
    pool = BlockPool(40)
    for key in KEYS[:4]:
        pool.put(key, make_part(10))
    pool.touch_prefix(KEYS[:4])
    pool.put(KEYS[4], make_part(20))
    assert held_keys(pool) == {KEYS[0], KEYS[1], KEYS[4]}


def test_the_head_of_a_chain_outlives_its_tail_after_a_lease_too() -> None:
    pool = BlockPool(40)
    for key in KEYS[:4]:
        pool.put(key, make_part(10))
    with pool.pin(KEYS[:4]):
        pass
    pool.put(KEYS[4], make_part(20))
    assert held_keys(pool) == {KEYS[0], KEYS[1], KEYS[4]}


def test_what_is_pinned_stays_until_its_last_lease_ends() -> None:
    pool = BlockPool(20)
    pool.put(KEYS[0], make_part(20))
    with pool.pin([KEYS[0], KEYS[1]]) as parts:
        assert list(parts) == [KEYS[0]]
        with pool.pin([KEYS[0], KEYS[0]]):
            assert pool.stats().pinned_bytes == 20
        assert not pool.put(KEYS[2], make_part(1))
        pool.clear()
        assert held_keys(pool) == {KEYS[0]}
    assert pool.stats().pinned_bytes == 0
    assert pool.put(KEYS[2], make_part(1))
    assert held_keys(pool) == {KEYS[2]}


def test_a_lease_ends_once() -> None:
    pool = BlockPool(20)
    pool.put(KEYS[0], make_part(10))
    lease, other = pool.pin([KEYS[0]]), pool.pin([KEYS[0]])
    lease.release()
    lease.release()
    assert pool.stats().pinned_bytes == 10
    other.release()
    assert pool.stats().pinned_bytes == 0


def test_a_lease_ends_with_an_error_too() -> None:
    pool = BlockPool(20)
    pool.put(KEYS[0], make_part(10))
    with pytest.raises(ZeroDivisionError), pool.pin([KEYS[0]]):
        raise ZeroDivisionError
    assert pool.stats().pinned_bytes == 0


def test_reserved_bytes_are_not_given_to_others() -> None:
    pool = BlockPool(30)
    pool.put(KEYS[0], make_part(20))
    with pool.reserve(25) as reservation:
        assert not pool.holds(KEYS[0])
        assert pool.stats().reserved_bytes == reservation.left_bytes == 25
        assert not pool.put(KEYS[1], make_part(6))
        with pytest.raises(PoolFull) as caught:
            pool.reserve(6)
        assert (caught.value.needed_bytes, caught.value.budget_bytes) == (6, 30)
    assert pool.stats().reserved_bytes == 0
    assert pool.put(KEYS[1], make_part(6))


def test_a_reservation_pays_for_what_it_was_made_for() -> None:
    pool = BlockPool(30)
    with pool.reserve(20) as reservation:
        assert reservation.put_all({KEYS[0]: make_part(15)})
        assert (reservation.left_bytes, pool.used_bytes) == (5, 15)
        assert reservation.put_all({KEYS[1]: make_part(15)})
        assert (reservation.left_bytes, pool.used_bytes) == (0, 30)
        assert not reservation.put_all({KEYS[2]: make_part(31)})
    assert pool.stats().reserved_bytes == 0
    assert pool.used_bytes == 30


@pytest.mark.parametrize("nbytes", [-1, 31])
def test_a_reservation_that_cannot_be_kept_evicts_nothing(nbytes: int) -> None:
    pool = BlockPool(30)
    pool.put(KEYS[0], make_part(20))
    with pytest.raises(PoolFull):
        pool.reserve(nbytes)
    assert pool.holds(KEYS[0])


def test_a_smaller_budget_is_met_as_soon_as_leases_and_reservations_end() -> None:
    pool = BlockPool(40)
    pool.put(KEYS[0], make_part(10))
    pool.put(KEYS[1], make_part(10))
    lease, reservation = pool.pin([KEYS[0]]), pool.reserve(10)
    pool.resize(5)
    assert held_keys(pool) == {KEYS[0]}
    assert pool.stats().budget_bytes == pool.budget_bytes == 5
    assert reservation.put_all({KEYS[2]: make_part(10)})
    reservation.release()
    assert held_keys(pool) == {KEYS[0]}
    lease.release()
    assert held_keys(pool) == set()


class PoolMachine(RuleBasedStateMachine):
    """The pool against a model that keeps a plain list of keys, the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.budget_bytes = 30
        self.pool = BlockPool(self.budget_bytes)
        self.order: list[PartKey] = []
        self.pinned: dict[PartKey, int] = {}
        self.leases: list[tuple[Lease, list[PartKey]]] = []
        self.reservations: list[Reservation] = []
        self.reserved_bytes = 0

    def used_bytes(self) -> int:
        return sum(SIZES[key] for key in [*self.order, *self.pinned])

    def holds(self, key: PartKey) -> bool:
        return key in self.order or key in self.pinned

    def use(self, keys: list[PartKey]) -> None:
        for key in reversed(keys):
            if key in self.order:
                self.order.remove(key)
                self.order.append(key)

    def shrink(self, budget_bytes: int) -> None:
        while self.order and self.used_bytes() + self.reserved_bytes > budget_bytes:
            self.order.pop(0)

    def fits(self, nbytes: int, keep: list[PartKey]) -> bool:
        stays = sum(SIZES[key] for key in {*self.pinned, *(key for key in keep if key in self.order)})
        return nbytes == 0 or stays + self.reserved_bytes + nbytes <= self.budget_bytes

    def store(self, keys: list[PartKey], nbytes: int) -> bool:
        """What `put_all` is to do when `nbytes` of it are not paid by a reservation."""
        if not self.fits(nbytes, keys):
            return False
        if nbytes:
            self.use(keys)
            self.shrink(self.budget_bytes - nbytes)
        self.order += [key for key in keys if not self.holds(key)]
        self.use(keys)
        return True

    def fresh_bytes(self, keys: list[PartKey]) -> int:
        return sum(SIZES[key] for key in keys if not self.holds(key))

    @rule(key=st.sampled_from(KEYS))
    def put(self, key: PartKey) -> None:
        assert self.pool.put(key, PARTS[key]) == self.store([key], self.fresh_bytes([key]))

    @rule(keys=st.lists(st.sampled_from(KEYS), unique=True, max_size=6))
    def put_all(self, keys: list[PartKey]) -> None:
        before = {key for key in KEYS if self.holds(key)}
        stored = self.pool.put_all({key: PARTS[key] for key in keys})
        assert stored == self.store(keys, self.fresh_bytes(keys))
        assert held_keys(self.pool) >= set(keys) if stored else held_keys(self.pool) == before

    @rule(key=st.sampled_from(KEYS))
    def get(self, key: PartKey) -> None:
        assert self.pool.get(key) == (PARTS[key] if self.holds(key) else None)
        self.use([key])

    @rule(keys=st.lists(st.sampled_from(KEYS), unique=True, max_size=6))
    def touch_prefix(self, keys: list[PartKey]) -> None:
        self.pool.touch_prefix(keys)
        self.use(keys)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=4))
    def pin(self, keys: list[PartKey]) -> None:
        lease = self.pool.pin(keys)
        held = [key for key in dict.fromkeys(keys) if self.holds(key)]
        assert lease.parts == {key: PARTS[key] for key in held}
        for key in held:
            self.pinned[key] = self.pinned.get(key, 0) + 1
        self.order = [key for key in self.order if key not in self.pinned]
        self.leases.append((lease, held))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        lease, keys = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        lease.release()
        for key in reversed(keys):
            self.pinned[key] -= 1
            if not self.pinned[key]:
                del self.pinned[key]
                self.order.append(key)
        self.shrink(self.budget_bytes)

    @rule(nbytes=st.integers(0, 20))
    def reserve(self, nbytes: int) -> None:
        fits = self.fits(nbytes, [])
        try:
            self.reservations.append(self.pool.reserve(nbytes))
        except PoolFull:
            assert not fits
            return
        assert fits
        if nbytes:
            self.shrink(self.budget_bytes - nbytes)
        self.reserved_bytes += nbytes

    @precondition(lambda self: self.reservations)
    @rule(keys=st.lists(st.sampled_from(KEYS), unique=True, max_size=4))
    def put_reserved(self, keys: list[PartKey]) -> None:
        fresh_bytes = self.fresh_bytes(keys)
        reservation = self.reservations[-1]
        paid_bytes = min(reservation.left_bytes, fresh_bytes)
        expected = self.store(keys, fresh_bytes - paid_bytes)
        assert reservation.put_all({key: PARTS[key] for key in keys}) == expected
        if expected:
            self.reserved_bytes -= paid_bytes

    @precondition(lambda self: self.reservations)
    @rule()
    def unreserve(self) -> None:
        reservation = self.reservations.pop()
        self.reserved_bytes -= reservation.left_bytes
        reservation.release()
        self.shrink(self.budget_bytes)

    @rule(budget_bytes=st.integers(0, 60))
    def resize(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.pool.resize(budget_bytes)
        self.shrink(budget_bytes)

    @rule()
    def clear(self) -> None:
        self.pool.clear()
        self.order.clear()

    @invariant()
    def agrees(self) -> None:
        stats = self.pool.stats()
        assert held_keys(self.pool) == {*self.order, *self.pinned}
        assert list(self.pool._idle) == self.order
        assert stats.entries == len(self.order) + len(self.pinned)
        assert stats.used_bytes == self.pool.used_bytes == self.used_bytes()
        assert stats.pinned_bytes == sum(SIZES[key] for key in self.pinned)
        assert stats.reserved_bytes == self.reserved_bytes

    @invariant()
    def keeps_to_its_budget(self) -> None:
        stats = self.pool.stats()
        bound = stats.pinned_bytes > 0 or bool(self.reservations)
        assert stats.used_bytes + stats.reserved_bytes <= stats.budget_bytes or bound


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40)


def test_many_threads_leave_the_books_right() -> None:
    pool = BlockPool(60)
    start = threading.Barrier(8)

    def hammer(seed: int) -> None:
        choice = random.Random(seed)
        start.wait(timeout=30)
        for _ in range(300):
            keys = choice.sample(KEYS, 3)
            pool.put_all({key: PARTS[key] for key in keys})
            with pool.pin(keys) as parts:
                assert all(
                    pool.holds(key) and bytes(part.data) == bytes(PARTS[key].data) for key, part in parts.items()
                )
            try:
                with pool.reserve(choice.randrange(20)) as reservation:
                    reservation.put_all({keys[0]: PARTS[keys[0]]})
            except PoolFull:
                pool.touch_prefix(keys)
            stats = pool.stats()
            assert stats.used_bytes + stats.reserved_bytes <= stats.budget_bytes

    with ThreadPoolExecutor(8) as executor:
        for done in [executor.submit(hammer, seed) for seed in range(8)]:
            done.result(timeout=60)
    stats = pool.stats()
    assert (stats.pinned_bytes, stats.reserved_bytes) == (0, 0)
    assert stats.used_bytes == sum(SIZES[key] for key in held_keys(pool))
    assert stats.entries == len(held_keys(pool))


def test_several_are_seen_all_at_once() -> None:
    pool = BlockPool(1000)
    items = {key: PARTS[key] for key in KEYS}
    stop = threading.Event()

    def look() -> set[int]:
        seen = set()
        while not stop.is_set():
            with pool.pin(KEYS) as parts:
                seen.add(len(parts))
        return seen

    with ThreadPoolExecutor(1) as executor:
        looking = executor.submit(look)
        for _ in range(200):
            pool.put_all(items)
            pool.clear()
        stop.set()
        assert looking.result(timeout=30) <= {0, len(KEYS)}
