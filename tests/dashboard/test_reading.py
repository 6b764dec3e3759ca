"""However many look, what they look at is read about once a second for each tenant."""

from __future__ import annotations

from typing import Any

from dashboard.hostile import HostileHead
from kakeya_ops.dashboard.reading import FRESH_SECONDS, SHOWN_REQUESTS, Reader


class CountedHead(HostileHead):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def requests(self, tenant: str, count: int = 50) -> list[dict[str, Any]]:
        self.asked.append(tenant)
        assert count == SHOWN_REQUESTS
        return [{"tenant": tenant}]


def test_a_reading_is_shared_while_it_is_fresh() -> None:
    head, now = CountedHead(), [0.0]
    reader = Reader(head, lambda: now[0])
    first = reader.read("one")
    now[0] += FRESH_SECONDS / 2
    assert reader.read("one") is first
    now[0] += FRESH_SECONDS
    assert reader.read("one") is not first
    assert head.asked == ["one", "one"]


def test_tenants_do_not_see_each_others_requests() -> None:
    reader = Reader(CountedHead(), lambda: 0.0)
    assert reader.read("one").requests == [{"tenant": "one"}]
    assert reader.read("two").requests == [{"tenant": "two"}]
    assert reader.read("one").requests == [{"tenant": "one"}]
