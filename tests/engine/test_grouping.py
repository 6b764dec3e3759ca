"""Which rows share a batch: what a change must save, and that changes come to an end at a partition that is good."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.engine.grouping import Change, Group, Merge, Split, StepCost, next_change
from kv.layouts import FULL, HYBRID, WINDOW

COST = StepCost(100, ((1.0, None),))
Groups = list[list[int]]
lengths = st.lists(st.lists(st.integers(1, 2000), min_size=1, max_size=4), max_size=5)


def changed(groups: Groups, change: Change) -> Groups:
    rest = [list(group) for group in groups]
    if isinstance(change, Merge):
        joining = rest.pop(change.second)
        rest[change.first] += joining
        return rest
    whole = rest.pop(change.group)
    return [*rest, [n for n in whole if n <= change.tokens], [n for n in whole if n > change.tokens]]


def settled(groups: Groups, cost: StepCost) -> Groups:
    while change := next_change(groups, cost):
        cheaper = changed(groups, change)
        assert cost.total(cheaper) <= cost.total(groups) - cost.group_bytes / 2
        groups = cheaper
    return groups


def cheapest(rows: Group, cost: StepCost) -> float:
    """The best partition of `rows`: one into runs of their sorted lengths."""
    ordered = sorted(rows)
    best = float("inf")
    for count in range(len(ordered)):
        for cuts in combinations(range(1, len(ordered)), count):
            ends = [0, *cuts, len(ordered)]
            best = min(best, cost.total(ordered[low:high] for low, high in pairwise(ends)))
    return best


def test_the_worked_example() -> None:
    assert COST.total([[10, 20, 300]]) == 1000
    assert COST.total([[10, 20], [300]]) == 540
    assert next_change([[10, 20, 300]], COST) == Split(0, 20)
    assert next_change([[10, 20], [300]], COST) is None


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], None),
        ([[7]], None),
        ([[7], [7]], Merge(0, 1)),
        ([[10], [60]], Merge(0, 1)),  # 50 bytes of padding, 50 saved
        ([[10], [61]], None),
        ([[10, 159]], None),  # of 149 bytes of padding a batch of its own would save 49
        ([[10, 10, 85]], Split(0, 10)),
        ([[500], [10], [12]], Merge(1, 2)),
        ([[10], [500], [510]], Merge(1, 2)),
    ],
)
def test_a_change_saves_half_a_reading_of_the_weights(groups: Groups, expected: Change | None) -> None:
    assert next_change(groups, COST) == expected


def test_rows_beyond_a_window_are_of_one_length() -> None:
    windowed = StepCost(100, ((1.0, 64),))
    assert next_change([[64], [100_000]], windowed) == Merge(0, 1)
    assert windowed.row_bytes(100_000) == 64


def test_a_recurrent_state_is_the_same_for_every_length() -> None:
    assert next_change([[1], [100_000]], StepCost(100, ())) == Merge(0, 1)


def test_the_cost_of_a_layout_is_its_parts_that_grow() -> None:
    cost = StepCost.of_layout(HYBRID, 7)
    grows = [part for part in HYBRID.parts if part.kind != "state"]
    assert len(cost.kinds) == len(grows) < len(HYBRID.parts)
    assert cost.row_bytes(HYBRID.block_tokens) == sum(part.nbytes for part in grows)
    long = 100 * HYBRID.block_tokens
    assert cost.row_bytes(long) == 100 * FULL.nbytes + 2 * WINDOW.nbytes  # sink and window are two blocks


@given(lengths)
def test_changes_end_where_nobody_pays_much_for_another(groups: Groups) -> None:
    rows = sorted(length for group in groups for length in group)
    ended = settled(groups, COST)
    assert sorted(length for group in ended for length in group) == rows
    for group in ended:
        padding = sum(max(group) - length for length in group)
        assert padding < len(group) * 1.5 * COST.group_bytes


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=8))
def test_rows_that_come_one_by_one_end_near_the_best_partition(rows: list[int]) -> None:
    groups: Groups = []
    for row in rows:
        groups = settled([*groups, [row]], COST)
    assert COST.total(groups) <= 1.5 * cheapest(rows, COST)
