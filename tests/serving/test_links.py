from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.links import PACKS_BYTES_PER_SECOND, Link, best_link, packed_rate

CABLE = Link(Endpoint("169.254.1.1", 1, "thunderbolt"), 0.001, 1e9, None, priority=100)
LAN = Link(Endpoint("10.0.0.1", 1, "lan"), 0.001, 1e8, None, priority=50)
DOWN = {"last_error": "refused"}


def test_of_no_ways_none_is_best() -> None:
    assert best_link([]) is None


@pytest.mark.parametrize(
    ("cable", "lan", "best"),
    [
        ({}, {}, CABLE),
        ({"priority": 0}, {}, CABLE),  # measured much quicker, whatever is preferred
        ({"bytes_per_second": 1e7}, {}, LAN),
        ({"bytes_per_second": 8e7}, {}, CABLE),  # about as quick as the other
        ({"bytes_per_second": 6e7}, {}, LAN),
        ({"rtt_seconds": 0.1}, {}, LAN),
        ({"bytes_per_second": None, "rtt_seconds": 0.1}, {"bytes_per_second": None}, CABLE),  # no rate is known
        ({"bytes_per_second": None, "priority": 0}, {"bytes_per_second": None}, LAN),
        ({"bytes_per_second": None}, {"bytes_per_second": 5e8}, CABLE),  # or it would never be measured
        ({"bytes_per_second": 1e7}, {"bytes_per_second": None}, LAN),  # known to be slower than what is usual
        ({"priority": 50, "bytes_per_second": 1.1e8}, {}, CABLE),
        (DOWN, {"bytes_per_second": 1e3}, LAN),
        ({"rtt_seconds": None}, {}, LAN),
        (DOWN, DOWN, CABLE),
        (DOWN | {"bytes_per_second": 1e3}, DOWN, CABLE),
    ],
)
def test_which_way_is_best(cable: dict[str, float], lan: dict[str, float], best: Link) -> None:
    ways = [replace(CABLE, **cable), replace(LAN, **lan)]
    for order in (ways, ways[::-1]):
        found = best_link(order)
        assert found is not None
        assert found.endpoint == best.endpoint


measured = st.none() | st.floats(1e-4, 1e10)
links = st.builds(
    Link,
    st.builds(Endpoint, st.just("10.0.0.1"), st.integers(1, 65535)),
    measured,
    measured,
    st.none() | st.just("refused"),
    st.integers(0, 3),
)
several = st.lists(links, min_size=1, max_size=5, unique_by=lambda link: link.endpoint)


@given(several, st.randoms(use_true_random=False))
def test_the_order_decides_nothing_and_what_works_comes_first(ways: list[Link], random: Random) -> None:
    best = best_link(ways)
    assert best in ways
    assert best.up == any(way.up for way in ways)
    shuffled = list(ways)
    random.shuffle(shuffled)
    assert best_link(shuffled) == best


def test_packing_pays_on_slow_links_that_were_measured() -> None:
    assert packed_rate(None, 0.7) is None
    assert packed_rate(1e9, 0.7) is None
    assert packed_rate(95e6, 0.7) is None  # the packer would hold it up
    assert packed_rate(7e6, 0.7) == pytest.approx(10e6)
    assert packed_rate(80e6, 0.5) == PACKS_BYTES_PER_SECOND
    assert packed_rate(7e6, 0.95) is None  # for so little no core is worth it


@given(st.floats(1e3, 1e11), st.floats(0.01, 1))
def test_packing_never_makes_a_link_slower(rate: float, share: float) -> None:
    packed = packed_rate(rate, share)
    assert packed is None or packed > rate
