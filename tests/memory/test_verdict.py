"""The answer follows from four inequalities, and never from what is not known."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import FootprintUnknown, ModelDirectoryError
from kakeya_ops.inventory.sections import MemorySection
from kakeya_ops.memory.footprint import Footprint
from kakeya_ops.memory.host import Gap, HostMemory
from kakeya_ops.memory.verdict import MemoryVerdict, Thresholds, judge
from memory.machines import ABSENT, GIB, linux, mac, need, process, size

WORSE = {"fits": 0, "tight": 1, "does not fit": 2}


def outcomes(verdict: MemoryVerdict) -> dict[str, str]:
    return {one.name: one.outcome for one in verdict.inequalities}


@pytest.mark.parametrize(
    ("footprint", "answer", "first"),
    [
        (need(8), "fits", None),
        (need(9.7), "tight", None),
        (need(11), "does not fit", "working set"),
        (need(8, largest=8.5), "does not fit", "single buffer"),
        (need(8, pool=6.5), "does not fit", "total"),
        (need(20), "does not fit", "working set"),
    ],
)
def test_the_first_failure_names_the_answer(footprint: Footprint, answer: str, first: str | None) -> None:
    verdict = judge(footprint, mac(16))
    assert verdict.answer == answer
    assert (verdict.first_failure and verdict.first_failure.name) == first
    assert verdict.refuses is (answer == "does not fit")


def test_a_sentence_shows_the_inequality_that_was_really_used() -> None:
    # Bug #17: "needs 6 GB, 9 GB free, may crash" told figures that the decision was not made from.
    failure = judge(need(12), mac(16)).first_failure
    assert failure is not None
    assert failure.sentence == ("working set: 12.0 GiB of 10.7 GiB, the GPU's working set (as given); 1.3 GiB too much")
    assert failure.left_bytes == failure.limit_bytes - failure.need_bytes  # type: ignore[operator]


def test_what_is_left_to_the_system_is_an_eighth_or_two_gibibytes_or_as_told() -> None:
    assert Thresholds().reserve_of(8 * GIB) == Thresholds().reserve_of(16 * GIB) == 2 * GIB
    assert Thresholds().reserve_of(64 * GIB) == 8 * GIB
    told = Thresholds.of(MemorySection(reserve_gb=0.5, tight_percent=0.0))
    assert told.reserve_of(64 * GIB) == GIB // 2
    assert judge(need(8, pool=7.4), mac(16), told).answer == "tight"  # what is free now is not enough
    assert judge(need(8, pool=6.3), mac(16), told).answer == "fits"


def test_a_live_figure_alone_makes_it_tight_and_shows_both_figures() -> None:
    # Bugs #11, #16, #34: what macOS can free must not refuse a model that the machine was made for.
    host = mac(
        64,
        immediate_bytes=10 * GIB,
        optimistic_bytes=20 * GIB,
        processes=(process(9, 5, "Browser", is_mlx_server=False),),
    )
    verdict = judge(need(30), host)
    assert (verdict.answer, verdict.first_failure and verdict.first_failure.name) == ("tight", "available now")
    for shown in ("30.0 GiB of 10.0 GiB", "20.0 GiB by dropping", "close apps", "Browser (pid 5, 9.0 GiB)"):
        assert shown in verdict.reason


def test_other_servers_are_subtracted_unless_they_are_leaving() -> None:
    # Bug #38: the second model crashed instead of being refused.
    host = mac(32, processes=(process(12, pid=9),), immediate_bytes=18 * GIB)
    verdict = judge(need(12), host)
    assert (verdict.answer, verdict.first_failure and verdict.first_failure.name) == ("does not fit", "working set")
    assert "less 12.0 GiB of mlx_lm.server (pid 9" in verdict.reason
    assert judge(need(12), host, leaving={9}).answer == "fits"
    ours = process(12, pid=9, is_mlx_server=False, is_kakeya=True)
    assert judge(need(12), dataclasses.replace(host, processes=(ours,))).answer == "does not fit"


def test_a_machine_without_a_gpu_has_no_working_set_to_exceed() -> None:
    verdict = judge(need(12), linux(16))
    assert verdict.answer == "fits"
    assert outcomes(verdict)["working set"] == outcomes(verdict)["single buffer"] == "not applicable"
    assert judge(need(15), linux(16)).answer == "does not fit"


@pytest.mark.parametrize("missing", ["working_set_bytes", "max_buffer_bytes", "total_bytes"])
@pytest.mark.parametrize("figure", [ABSENT, size(0)])
def test_a_lacking_fact_or_a_zero_is_unknown_and_named(missing: str, figure: Any) -> None:
    # Bugs #33 and #36: facts that were missing or zero were taken for a no.
    verdict = judge(need(4), mac(16, **{missing: figure}))
    assert verdict.answer == "unknown"
    assert verdict.reason == "; ".join(verdict.missing) != ""
    assert judge(need(400), mac(16, **{missing: figure})).answer == "does not fit"


def test_a_live_figure_that_could_not_be_read_is_unknown_and_one_that_was_not_asked_for_is_not() -> None:
    gap = Gap("immediate_bytes", "vm_stat printed nothing")
    verdict = judge(need(4), mac(16, immediate_bytes=None, gaps=(gap,)))
    assert (verdict.answer, verdict.missing) == ("unknown", ("available now of the host (vm_stat printed nothing)",))
    assert judge(need(4), mac(16, immediate_bytes=0)).answer == "unknown"
    pinned = judge(need(4), mac(16, immediate_bytes=None, total_bytes=size(16, "pinned")))
    assert (pinned.answer, pinned.pinned) == ("fits", True)
    assert outcomes(pinned)["available now"] == "unknown"


@pytest.mark.parametrize(
    "error", [FootprintUnknown("a model", "model_type rwkv9 is not in the table"), ModelDirectoryError("no shards")]
)
def test_a_need_that_is_not_known_is_unknown_and_never_refused(error: Any) -> None:
    # Bugs #8 and #9: "estimate unavailable" was followed by "not enough resources", and by NaN.
    verdict = judge(error, mac(16))
    assert (verdict.answer, verdict.refuses, verdict.need) == ("unknown", False, None)
    assert getattr(error, "missing", error.message) in verdict.reason


def test_a_raised_or_a_lowered_limit_binds() -> None:
    # Bugs #15 and #25.
    assert judge(need(12), mac(16, working_set=14.0)).answer == "fits"
    assert judge(need(8.5), mac(16, working_set=8.0)).answer == "does not fit"


def test_nothing_needed_fits() -> None:
    verdict = judge(Footprint((), 0, "nothing"), mac(16))
    assert (verdict.answer, verdict.narrowest is not None) == ("fits", True)


gibibytes = st.floats(0.1, 200)


@given(st.floats(0.1, 64), st.floats(0, 16), st.floats(0, 32), gibibytes, gibibytes, st.floats(1, 3), st.floats(0, 20))
def test_more_need_is_never_better_and_a_bigger_host_never_worse(
    weights: float, pool: float, more: float, total: float, free: float, factor: float, other: float
) -> None:
    def host(scale: float) -> HostMemory:
        live = int(free * scale * GIB)
        return mac(total * scale, immediate_bytes=live, optimistic_bytes=live, processes=(process(other),))

    def worse(footprint: Footprint, host: HostMemory) -> int:
        return WORSE[judge(footprint, host).answer]

    now = worse(need(weights, pool=pool), host(1))
    assert worse(need(weights + more, pool=pool), host(1)) >= now
    assert worse(need(weights, pool=pool + more), host(1)) >= now
    assert worse(need(weights, pool=pool), host(factor)) <= now


figures = st.one_of(st.just(ABSENT), st.floats(0, 100).map(size))
counts = st.none() | st.integers(0, 2**40)


@given(figures, figures, figures, counts, st.sampled_from(["macos", "linux", None]), st.floats(0, 100))
def test_whatever_is_lacking_there_is_an_answer(
    total: Any, working_set: Any, buffer: Any, free: int | None, system: Any, weights: float
) -> None:
    host = HostMemory(
        system=system, total_bytes=total, working_set_bytes=working_set, max_buffer_bytes=buffer, immediate_bytes=free
    )
    verdict = judge(need(weights), host)
    assert verdict.reason
    assert (verdict.answer == "unknown") <= bool(verdict.missing)
