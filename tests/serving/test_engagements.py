from __future__ import annotations

from kakeya_ops.serving.engagements import Engagements


def test_what_was_ordered_of_a_worker_is_waited_for_by_the_next() -> None:
    now = [1000.0]
    engagements = Engagements(lambda: now[0])
    assert engagements.queue_seconds("a") == 0
    with engagements.engaged("a", 5.0), engagements.engaged("a", 8.0):
        now[0] += 2
        assert engagements.queue_seconds("a") == 6
        assert engagements.queue_seconds("b") == 0
        now[0] += 10
        assert engagements.queue_seconds("a") == 0
    assert engagements.queue_seconds("a") == 0
