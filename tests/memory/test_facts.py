"""Facts of whole hosts, as recorded, as spoiled, and as others have been wrong about them."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.memory.facts import parse_host, pinned
from kakeya_ops.memory.host import Figure, HostMemory, Process
from kakeya_ops.memory.working_set import GIB, MIB
from kakeya_ops.probes import Finding
from memory.recordings import NAMES, recorded, with_texts, without

MINI = "macos-15-m4-16gb"
PROBES = ("system", "macos", "build", "sysctl", "vm_stat", "processes", "footprints", "gpu", "meminfo", "page")


def gaps(host: HostMemory) -> set[str]:
    return {gap.fact for gap in host.gaps}


def numbers(host: HostMemory) -> dict[str, int | None]:
    values = {field.name: getattr(host, field.name) for field in dataclasses.fields(host)}
    return {
        name: value.nbytes if isinstance(value, Figure) else value
        for name, value in values.items()
        if name.endswith("_bytes")
    }


def test_a_mac_mini_as_recorded() -> None:
    host = parse_host(recorded(MINI))
    assert host == HostMemory(
        system="macos",
        total_bytes=Figure(17179869184, "read", "sysctl hw.memsize"),
        working_set_bytes=Figure(11453251584, "read", "recommendedMaxWorkingSetSize, from Metal"),
        max_buffer_bytes=Figure(8589934592, "read", "maxBufferLength, from Metal"),
        wired_limit_bytes=0,
        page_bytes=16384,
        immediate_bytes=(61204 + 204431) * 16384,
        optimistic_bytes=(61204 + 12877 + 319002) * 16384,
        swap_used_bytes=0,
        compressor_bytes=141882 * 16384,
        pressure="normal",
        processes=(
            Process(1777, "kakeya worker", 3480 * MIB, "footprint", is_mlx_server=False, is_kakeya=True),
            Process(1501, "LM Studio", 2310 * MIB, "footprint", is_mlx_server=True, is_kakeya=False),
            Process(1580, "Safari", 902 * MIB, "footprint", is_mlx_server=False, is_kakeya=False),
            Process(388, "WindowServer", 402 * MIB, "footprint", is_mlx_server=False, is_kakeya=False),
            Process(1533, "Ollama", 61 * MIB, "footprint", is_mlx_server=True, is_kakeya=False),
        ),
        version="15.6",
        build="24G84",
    )


@pytest.mark.parametrize(
    ("name", "working_set", "origin", "page", "unknown"),
    [
        ("macos-13-m1-8gb", 8 * GIB * 2 // 3, "table", 16384, {"wired_limit_bytes"}),
        ("macos-14-m2-24gb", 17179885568, "read", 16384, set()),
        ("macos-15-m4-16gb-raised", 14 * GIB, "read", 16384, set()),
        ("macos-15-m2-24gb-pressure", 17179885568, "read", 16384, set()),
        ("macos-26-m3-16gb", 12713115648, "read", 16384, set()),
        ("macos-26-m1-max-64gb", 55662776320, "read", 16384, set()),
        ("macos-13-intel-32gb", None, "absent", 4096, {"wired_limit_bytes"}),
        ("linux-debian-16gb", None, "absent", 4096, set()),
    ],
)
def test_versions(name: str, working_set: int | None, origin: str, page: int, unknown: set[str]) -> None:
    host = parse_host(recorded(name))
    assert (host.working_set_bytes.nbytes, host.working_set_bytes.origin) == (working_set, origin)
    assert host.page_bytes == page
    assert gaps(host) == unknown


def test_linux_as_recorded() -> None:
    host = parse_host(recorded("linux-debian-16gb"))
    assert host.system == "linux"
    assert host.total_bytes == Figure(16315012 * 1024, "read", "MemTotal of /proc/meminfo")
    assert host.immediate_bytes == host.optimistic_bytes == 11302188 * 1024
    assert host.swap_used_bytes == (2097148 - 1998844) * 1024
    assert [(process.name, process.measure) for process in host.processes] == [
        ("mlx_vlm.server", "rss"),
        ("firefox", "rss"),
    ]


def test_swap_may_have_a_decimal_comma() -> None:
    text = recorded("macos-13-m1-8gb")["sysctl"].text
    assert with_texts("macos-13-m1-8gb", sysctl=text.replace("203.25M", "203,25M")).swap_used_bytes == 1203.25 * MIB


# What public reports were wrong about.


def test_half_of_a_large_mac_is_free_at_once() -> None:
    """https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2017: 22 GB refused with 2,094,134 free pages."""
    host = parse_host(recorded("macos-26-m1-max-64gb"))
    assert host.immediate_bytes is not None
    assert host.immediate_bytes >= 2_094_134 * 16384
    assert (host.working_set_bytes.nbytes or 0) > 22 * 10**9


@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_shares_the_memory_and_adds_none(name: str) -> None:
    """https://github.com/Andyyyy64/whichllm/pull/49: 57.6 GB on a Mac of 32."""
    host = parse_host(recorded(name))
    assert host.total_bytes.nbytes is not None
    assert (host.working_set_bytes.nbytes or 0) < host.total_bytes.nbytes


def test_sixteen_gigabytes_are_sixteen_gib() -> None:
    """https://github.com/manjunathshiva/turboquant-mlx/pull/78: 16e9 was a false refusal."""
    assert parse_host(recorded(MINI)).total_bytes.nbytes == 17179869184 == pinned(16).total_bytes.nbytes


@pytest.mark.parametrize("size", ["", "0", "-1", "16 GB", "0x400000000", "1" * 40, "²"])
def test_a_size_that_is_none_is_unknown_and_so_is_what_hangs_on_it(size: str) -> None:
    """https://github.com/exo-explore/exo/issues/1754: facts that were missing or zero made a no."""
    text = recorded("macos-13-m1-8gb")["sysctl"].text.replace("8589934592", size)
    host = with_texts("macos-13-m1-8gb", sysctl=text)
    assert (host.total_bytes.nbytes, host.total_bytes.origin) == (None, "absent")
    assert host.working_set_bytes.origin == host.max_buffer_bytes.origin == "absent"
    assert "total_bytes" in gaps(host)


def test_under_pressure_both_figures_are_there_and_macos_is_heard() -> None:
    """https://github.com/exo-explore/exo/pull/996: inactive pages looked available, and were to be swapped."""
    host = parse_host(recorded("macos-15-m2-24gb-pressure"))
    assert host.immediate_bytes is not None
    assert host.optimistic_bytes is not None
    assert host.immediate_bytes < 1.1 * 10**9 < 6 * 10**9 < host.optimistic_bytes
    assert (host.pressure, host.swap_used_bytes) == ("critical", int(4870.75 * MIB))
    assert host.compressor_bytes == 553017 * 16384


@pytest.mark.parametrize("finding", [Finding(1, b""), Finding(0, b""), Finding(0, b"vm_stat: failed\n"), None])
def test_what_cannot_be_counted_is_unknown_and_not_zero(finding: Finding | None) -> None:
    """https://github.com/JustVugg/colibri/issues/1500: nothing was available on any Mac."""
    findings = recorded(MINI)
    del findings["vm_stat"]
    host = parse_host(findings | ({} if finding is None else {"vm_stat": finding}))
    assert (host.page_bytes, host.immediate_bytes, host.optimistic_bytes, host.compressor_bytes) == (None,) * 4
    assert gaps(host) == {"immediate_bytes", "optimistic_bytes", "compressor_bytes"}
    assert host.gaps[0].reason.startswith("vm_stat ")


def test_a_translated_vm_stat_is_believed_only_where_it_adds_up() -> None:
    """https://github.com/Rolf-Hempel/PlanetarySystemStacker/issues/50: 1.5 GB, from pages of the wrong size."""
    wrong, right = (parse_host(recorded(f"macos-14-m1-16gb-rosetta-{name}")) for name in ("wrong", "right"))
    assert (wrong.immediate_bytes, wrong.optimistic_bytes) == (None, None)
    assert "pages of 4096 bytes" in wrong.gaps[0].reason
    assert right.immediate_bytes == (1608472 + 645608) * 4096
    assert not right.gaps


def test_a_running_worker_is_seen_with_what_it_takes() -> None:
    """https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/927: the second model crashed."""
    ours = [process for process in parse_host(recorded(MINI)).processes if process.is_kakeya]
    assert [(process.name, process.footprint_bytes) for process in ours] == [("kakeya worker", 3480 * MIB)]


# What fails by itself.


def test_without_top_a_process_is_measured_by_its_resident_set() -> None:
    host = without(MINI, "footprints")
    assert {process.measure for process in host.processes} == {"rss"}
    assert not host.gaps


@pytest.mark.parametrize(
    ("probe", "unknown"),
    [
        ("processes", {"processes"}),
        ("gpu", set()),
        ("build", set()),
    ],
)
def test_one_failed_probe_takes_nothing_from_the_others(probe: str, unknown: set[str]) -> None:
    host = without(MINI, probe)
    assert gaps(host) == unknown
    assert host.immediate_bytes == parse_host(recorded(MINI)).immediate_bytes


def test_without_the_memorys_size_no_count_can_be_checked() -> None:
    host = without(MINI, "sysctl")
    assert set(numbers(host).values()) == {None, 11453251584, 8589934592, 16384}
    assert host.processes


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"max_recommended_working_set_size": None, "max_buffer_length": None},
        {"max_recommended_working_set_size": 0, "max_buffer_length": 0},
        {"max_recommended_working_set_size": -1, "max_buffer_length": True},
        {"max_recommended_working_set_size": 17179869185, "max_buffer_length": 1e9},
        {"max_recommended_working_set_size": "11453251584"},
        ["max_recommended_working_set_size"],
    ],
)
def test_a_gpu_that_does_not_say_is_looked_up(said: object) -> None:
    """MLX without Metal lacks both names; a missing one is no zero."""
    host = with_texts(MINI, gpu=json.dumps(said))
    assert (host.working_set_bytes.nbytes, host.working_set_bytes.origin) == (16 * GIB * 2 // 3, "table")
    assert (host.max_buffer_bytes.nbytes, host.max_buffer_bytes.origin) == (16 * GIB * 2 // 3 * 3 // 4, "table")


def test_who_told_of_the_gpu_is_said_only_in_plain_words() -> None:
    said = {"asked": "\x1b[2J", "max_recommended_working_set_size": 2**33}
    assert with_texts(MINI, gpu=json.dumps(said)).working_set_bytes.source.endswith("from Metal")


@pytest.mark.parametrize("system", ["", "FreeBSD", "Darwin\nLinux", "linux"])
def test_another_system_is_unknown(system: str) -> None:
    host = with_texts(MINI, system=system)
    assert (host.system, gaps(host)) == (None, {"system"})
    assert set(numbers(host).values()) == {None}


def test_nothing_at_all() -> None:
    assert parse_host({}).system is None
    bare = parse_host({"system": Finding(0, b"Darwin\n")})
    assert set(numbers(bare).values()) == {None}


def test_pinned_figures_are_marked() -> None:
    host = pinned(24)
    assert (host.total_bytes.nbytes, host.total_bytes.origin) == (24 * GIB, "pinned")
    assert (host.working_set_bytes.nbytes, host.working_set_bytes.origin) == (16 * GIB, "table")
    assert (host.max_buffer_bytes.nbytes, host.max_buffer_bytes.origin) == (12 * GIB, "table")
    assert host.immediate_bytes is None
    assert gaps(host) == {"immediate_bytes"}


# Whatever comes.


@given(st.dictionaries(st.sampled_from(PROBES), st.builds(Finding, st.integers(-1, 255), st.binary(max_size=80))))
def test_any_output_is_survived_and_nothing_is_made_of_it(findings: dict[str, Finding]) -> None:
    for system in (b"Darwin", b"Linux"):
        host = parse_host({**findings, "system": Finding(0, system)})
        assert set(numbers(host).values()) <= {None}


@given(st.sampled_from(NAMES), st.data())
def test_a_spoiled_output_gives_a_number_that_was_there_or_none(name: str, data: st.DataObject) -> None:
    """Some lines of one probe are lost or replaced: no figure changes into another one."""
    findings, true = recorded(name), numbers(parse_host(recorded(name)))
    probe = data.draw(st.sampled_from(sorted(findings)))
    lines = findings[probe].output.splitlines(keepends=True)
    places = st.integers(0, len(lines) - 1 if lines else 0)
    for place, junk in data.draw(st.dictionaries(places, st.just(b"") | st.binary(max_size=20), max_size=4)).items():
        lines[place : place + 1] = [junk.replace(b"\n", b" ") + b"\n"]
    found = numbers(parse_host(findings | {probe: Finding(0, b"".join(lines))}))
    for fact, value in found.items():
        if fact not in ("working_set_bytes", "max_buffer_bytes"):
            assert value in (true[fact], None)
    assert (found["working_set_bytes"] or 0) <= max(true["working_set_bytes"] or 0, (true["total_bytes"] or 0) * 3 // 4)
