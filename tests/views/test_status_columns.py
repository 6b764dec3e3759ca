from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.status.value import Memory, NodeStatus
from kakeya_ops.views.status_columns import GAP, choose_columns, columns, render_age, sparkline
from status.samples import answering, card, judged, silent, whole

EVERY = columns(judged(whole()).nodes)


def cell(heading: str, node: str = "allens", **changes: object) -> str:
    found = judged(whole(**changes)).node(node)  # type: ignore[arg-type]
    return next(column.cell(found)[0] for column in columns([found]) if column.heading == heading)


@given(st.integers(1, 400))
def test_as_many_columns_are_chosen_as_fit(width: int) -> None:
    count = choose_columns(EVERY, width)
    taken = sum(column.width + GAP for column in EVERY[:count]) - GAP
    assert taken <= width or count == 1
    assert count == len(EVERY) or taken + GAP + EVERY[count].width > width


def test_eighty_columns_hold_what_matters_most() -> None:
    chosen = [column.heading for column in EVERY[: choose_columns(EVERY, 80)]]
    assert chosen == ["node", "role", "serves", "health", "identity", "queue", "jobs", "tokens/s"]


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("serves", "yes"),
        ("identity", "equal"),
        ("queue", "0 + 1"),
        ("jobs", "2"),
        ("tokens/s", "– of 1300"),
        ("pool", "1.0 of 512.0 MiB"),
        ("link", "loopback 500 µs, 953.7 MiB/s"),
        ("service", "not asked"),
        ("uptime", "1 m 40 s"),
        ("memory", "1.0 GiB free"),
        ("model", "tiny"),
    ],
)
def test_a_cell_says_what_is_known(heading: str, said: str) -> None:
    assert cell(heading) == said


@pytest.mark.parametrize("heading", ["queue", "jobs", "tokens/s", "pool", "uptime", "memory", "version", "model"])
def test_of_a_node_that_was_never_heard_of_nothing_is_claimed(heading: str) -> None:
    assert cell(heading, allens=silent()) == "–"


def test_a_cache_has_no_speed_and_a_head_its_own_identity() -> None:
    assert cell("tokens/s", allens=answering(card("allens", "cache"))) in ("– of 1300", "–")
    assert len(cell("identity", "head")) == 8


def test_memory_is_shown_against_its_forecast_where_there_is_one() -> None:
    node = judged(whole()).node("allens")
    column = next(one for one in columns([node]) if one.heading == "memory")
    assert column.cell(_with(node, Memory(2**30, None, None)))[0] == "1.0 GiB used"
    assert column.cell(_with(node, Memory(2**30, None, 2**31)))[0] == "1.0 of 2.0 GiB"


def _with(node: NodeStatus, memory: Memory) -> NodeStatus:
    return dataclasses.replace(node, memory=memory)


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_a_sparkline_has_a_mark_for_each_value(values: list[float]) -> None:
    assert len(sparkline(values)) == len(values)


def test_a_sparkline_is_as_high_as_its_highest_value() -> None:
    assert sparkline([0, 50, 100]) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (59.9, "59 s"), (61, "1 m 1 s"), (7200, "2 h 0 m"), (90000, "1 d 1 h")]
)
def test_long_times_are_said_in_two_units(seconds: float, said: str) -> None:
    assert render_age(seconds) == said
