from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from kakeya_ops.inventory.findings import Finding
from kakeya_ops.inventory.sections import Api, CacheSection, Endpoint, MemorySection, Section


class Pair(Section):
    """Two numbers that must differ."""

    a: int
    b: int

    def contradictions(self) -> Iterator[Finding]:
        """Both are told when they are equal."""
        if self.a == self.b:
            yield Finding(("a",), "equals b")
            yield Finding(("b",), "equals a")


def test_a_section_tells_all_its_contradictions() -> None:
    assert Pair(a=1, b=2).b == 2
    with pytest.raises(ValidationError, match="a: equals b; b: equals a"):
        Pair(a=1, b=1)


@pytest.mark.parametrize(("sink", "window", "fine"), [(4, 64, True), (64, 64, True), (65, 64, False), (4, 63, False)])
def test_a_window_holds_a_block_and_the_sinks(sink: int, window: int, fine: bool) -> None:
    if fine:
        assert CacheSection(sink=sink, window=window).window == window
    else:
        with pytest.raises(ValidationError):
            CacheSection(sink=sink, window=window)


def test_without_a_window_sinks_mean_nothing() -> None:
    assert CacheSection(sink=60_000, block_tokens=512).window is None


@pytest.mark.parametrize(
    ("bind", "keys_file", "fine"),
    [("127.0.0.1", None, True), ("::1", None, True), ("0.0.0.0", None, False), ("0.0.0.0", "~/keys", True)],
)
def test_an_api_for_others_asks_for_a_key(bind: str, keys_file: str | None, fine: bool) -> None:
    if fine:
        assert Api(bind=bind, keys_file=keys_file).bind == bind
    else:
        with pytest.raises(ValidationError, match="keys_file: must name a file"):
            Api(bind=bind, keys_file=keys_file)


@pytest.mark.parametrize(
    ("address", "trusted", "in_clear"),
    [("127.0.0.1", False, True), ("10.0.0.1", False, False), ("10.0.0.1", True, True)],
)
def test_kv_goes_in_clear_only_where_nobody_listens(address: str, trusted: bool, in_clear: bool) -> None:
    assert Endpoint(network="n", address=address, port=1, trusted=trusted).in_clear is in_clear


def test_the_reserve_of_memory_is_counted_in_bytes_or_left_to_the_rule() -> None:
    assert MemorySection().reserve_bytes is None
    assert MemorySection(reserve_gb=1.5).reserve_bytes == 3 * 2**29
    with pytest.raises(ValueError, match="tight_percent"):
        MemorySection(tight_percent=91.0)
