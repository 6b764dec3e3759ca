"""The GPU's share: what was read wins, what the owner set binds, and the table is the lower one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.memory.facts import parse_host, pinned
from kakeya_ops.memory.host import Figure
from kakeya_ops.memory.working_set import (
    GIB,
    MIB,
    TABLE,
    GpuFacts,
    max_buffer,
    table_share,
    with_wired_limit,
    working_set,
)
from memory.recordings import recorded

TOTALS = st.integers(GIB // 4, 1024 * GIB)


@pytest.mark.parametrize(
    ("memory_gib", "lower_gib"),
    [
        (8, 5.33),
        (16, 10.67),
        (18, 12),
        (24, 16),
        (32, 21.33),
        (36, 27),
        (48, 36),
        (64, 48),
        (96, 72),
        (128, 96),
        (192, 144),
    ],
)
def test_the_lower_public_figure(memory_gib: int, lower_gib: float) -> None:
    figure = working_set(memory_gib * GIB, GpuFacts())
    assert figure.nbytes is not None
    assert round(figure.nbytes / GIB, 2) == lower_gib
    assert figure.origin == "table"
    assert "not read" in figure.source


def test_sixteen_gib_to_the_hundredth_of_a_mib_as_reported() -> None:
    """https://github.com/abetlen/llama-cpp-python/issues/687"""
    assert round((working_set(16 * GIB, GpuFacts()).nbytes or 0) / MIB, 2) == 10922.67


@pytest.mark.parametrize(
    ("memory_gib", "higher_gib"), [(16, 11.84), (32, 24.96), (48, 37.44), (64, 51.84), (128, 107.52)]
)
def test_the_higher_public_figure_is_known_and_not_taken(memory_gib: int, higher_gib: float) -> None:
    row = next(row for row in TABLE if row.memory_gib == memory_gib)
    assert row.higher is not None
    assert row.higher > row.lower
    assert float(row.higher * memory_gib) == pytest.approx(higher_gib)


@given(TOTALS, TOTALS)
def test_more_memory_never_has_a_smaller_share_or_working_set(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert Fraction(2, 3) <= table_share(small) <= table_share(large) <= Fraction(3, 4)
    assert (working_set(small, GpuFacts()).nbytes or 0) <= (working_set(large, GpuFacts()).nbytes or 0) < large


@given(
    st.none() | TOTALS,
    st.builds(
        GpuFacts,
        st.none() | TOTALS,
        st.none() | TOTALS,
        st.just("Metal"),
        st.none() | st.just(0) | TOTALS,
        st.none() | st.booleans(),
    ),
)
def test_the_lowest_of_what_is_known_holds(total: int | None, gpu: GpuFacts) -> None:
    figure = working_set(total, gpu)
    assert (figure.nbytes is None) == (figure.origin == "absent")
    read = [nbytes for nbytes in (gpu.working_set_bytes, gpu.wired_limit_bytes) if nbytes]
    if read and figure.nbytes is not None:
        assert figure.origin == "read"
        assert figure.nbytes <= min(read)
    assert figure.nbytes != 0


def test_a_lowered_limit_binds_where_metal_cannot_be_asked() -> None:
    """https://github.com/Andyyyy64/whichllm/pull/153: 8192 on 16 GB was not looked at."""
    figure = working_set(16 * GIB, GpuFacts(wired_limit_bytes=8192 * MIB))
    assert figure == Figure(8 * GIB, "read", "iogpu.wired_limit_mb=8192")
    assert working_set(16 * GIB, GpuFacts(11 * GIB, wired_limit_bytes=8192 * MIB)).nbytes == 8 * GIB


def test_a_raised_limit_is_in_metals_own_figure() -> None:
    """https://github.com/AlexsJones/llmfit/pull/754: both directions are reported back exactly."""
    host = parse_host(recorded("macos-15-m4-16gb-raised"))
    assert host.wired_limit_bytes == host.working_set_bytes.nbytes == 14 * GIB
    assert host.working_set_bytes.origin == "read"


def test_a_raised_limit_changes_the_working_set_and_the_buffer() -> None:
    """https://github.com/jundot/omlx/issues/1533: a limit that could not be raised."""
    before = parse_host(recorded("macos-15-m4-16gb"))
    after = with_wired_limit(before, 14336)
    assert (after.working_set_bytes.nbytes, after.wired_limit_bytes) == (14 * GIB, 14 * GIB)
    assert (after.max_buffer_bytes.nbytes, after.max_buffer_bytes.origin) == (14 * GIB * 3 // 4, "table")
    assert after.immediate_bytes == before.immediate_bytes


def test_no_limit_gives_more_than_there_is() -> None:
    """https://github.com/SceneWorks/SceneWorks/pull/1552: a limit above it ended the worker of an 8 GB Mac."""
    assert with_wired_limit(pinned(8), 10**6).working_set_bytes.nbytes == 8 * GIB
    assert with_wired_limit(pinned(8), 0).working_set_bytes == pinned(8).working_set_bytes


@pytest.mark.parametrize("name", ["linux-debian-16gb", "macos-13-intel-32gb"])
def test_without_a_gpu_of_metal_there_is_no_working_set_and_no_limit_to_raise(name: str) -> None:
    host = parse_host(recorded(name))
    assert (host.working_set_bytes.origin, host.max_buffer_bytes.origin) == ("absent", "absent")
    assert with_wired_limit(host, 20000) == host


@pytest.mark.parametrize(
    ("working_set_gib", "buffer_gib"), [(64 / 3, 16), (96, 72), (37.44, 28.08)], ids=["32 GB", "128 GB", "48 GB"]
)
def test_a_buffer_is_three_quarters_as_in_public_pairs(working_set_gib: float, buffer_gib: float) -> None:
    figure = max_buffer(Figure(round(working_set_gib * GIB), "read", "Metal"), GpuFacts())
    assert (figure.nbytes or 0) / GIB == pytest.approx(buffer_gib)
    assert figure.origin == "table"
