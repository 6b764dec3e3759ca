from __future__ import annotations

import gc
import threading
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.peer.room import Room

SIZE = 64 * 1024


def address(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).__array_interface__["data"][0])


def test_what_nobody_refers_to_is_handed_out_again() -> None:
    room = Room()
    first = room.take(SIZE)
    place = address(first)
    del first
    assert room.waiting_bytes == SIZE
    second = room.take(SIZE)
    assert (address(second), len(second), second.readonly, room.waiting_bytes) == (place, SIZE, False, 0)


def test_any_view_keeps_it() -> None:
    room = Room()
    buffer = room.take(SIZE)
    view = np.frombuffer(buffer[5:].toreadonly(), np.uint8)
    view_place = address(buffer)
    del buffer
    other = room.take(SIZE)
    assert address(other) != view_place
    del view
    assert room.waiting_bytes == SIZE


def test_only_equal_sizes_are_reused_and_small_ones_not_kept() -> None:
    room = Room()
    del_me = room.take(SIZE)
    del del_me
    assert len(room.take(SIZE + 1)) == SIZE + 1
    small = room.take(100)
    assert len(small) == 100
    before = room.waiting_bytes
    del small
    assert room.waiting_bytes == before


def test_what_waits_is_bounded_and_old_sizes_give_way() -> None:
    room = Room(kept_bytes=3 * SIZE)
    old = room.take(SIZE)
    del old
    lent = [room.take(SIZE + 8) for _ in range(2)]
    lent.clear()
    assert room.waiting_bytes == 3 * SIZE - (3 * SIZE - 2 * (SIZE + 8))
    huge = room.take(4 * SIZE)
    del huge
    assert room.waiting_bytes <= 3 * SIZE


def test_what_waits_can_be_given_up() -> None:
    room = Room()
    lent = [room.take(SIZE), room.take(SIZE + 8)]
    last = lent.pop()
    del lent[:]
    assert room.waiting_bytes == SIZE
    room.release()
    assert room.waiting_bytes == 0
    del last  # what was lent comes back as ever
    assert room.waiting_bytes == SIZE + 8


@given(st.lists(st.tuples(st.sampled_from([SIZE, SIZE + 64, 3 * SIZE]), st.booleans()), max_size=40))
def test_two_that_are_lent_never_overlap(steps: list[tuple[int, bool]]) -> None:
    room = Room(kept_bytes=2 * SIZE)
    lent: list[memoryview] = []
    for size, drop in steps:
        lent.append(room.take(size))
        if drop:
            lent.pop(0)
        places = sorted((address(one), len(one)) for one in lent)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(places))
        assert room.waiting_bytes <= 2 * SIZE


def test_threads_may_take_and_give_back_at_once() -> None:
    room = Room()
    broken: list[int] = []

    def work(mark: int) -> None:
        for _ in range(300):
            buffer = room.take(SIZE)
            buffer[0] = buffer[-1] = mark
            if (buffer[0], buffer[-1]) != (mark, mark):
                broken.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert broken == []
    assert room.waiting_bytes <= 4 * SIZE
