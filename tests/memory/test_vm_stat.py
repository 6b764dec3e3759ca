"""vm_stat of several versions of macOS, of Intel Macs, and of translated programs; and whatever else comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.memory.vm_stat import parse_vm_stat
from memory.recordings import NAMES, recorded

GIB = 2**30
MACS = [name for name in NAMES if name.startswith("macos")]
PUBLIC = """Mach Virtual Memory Statistics: (page size of 4096 bytes)
Pages free:                              334212.
Pages active:                           1450252.
Pages inactive:                         1367584.
Pages speculative:                        81968.
Pages throttled:                              0.
Pages wired down:                        794478.
Pages purgeable:                         377078.
"Translation faults":                1584392481.
File-backed pages:                       597869.
Anonymous pages:                        2301935.
Pages stored in compressor:             1170377.
Pages occupied by compressor:            165553.
"""
"""From https://apple.stackexchange.com/questions/347037, a Mac with 16 GiB."""


def test_a_public_output() -> None:
    pages = parse_vm_stat(PUBLIC)
    assert pages.page_bytes == 4096
    assert pages.immediate_bytes == (334212 + 597869) * 4096
    assert pages.optimistic_bytes == (334212 + 81968 + 1367584) * 4096
    assert pages.compressor_bytes == 165553 * 4096
    assert pages.misfit(16 * GIB) is None


@pytest.mark.parametrize("text", [PUBLIC, *(recorded(name)["vm_stat"].text for name in MACS)], ids=["public", *MACS])
def test_file_backed_pages_include_the_speculative_ones(text: str) -> None:
    """So that what is free or a copy of a file does not count these twice."""
    counts = parse_vm_stat(text).counts
    assert counts["File-backed pages"] + counts["Anonymous pages"] == sum(
        counts[f"Pages {kind}"] for kind in ("active", "inactive", "speculative")
    )


@pytest.mark.parametrize("total_gib", [4, 64])
def test_counts_of_another_machine_are_noticed(total_gib: int) -> None:
    misfit = parse_vm_stat(PUBLIC).misfit(total_gib * GIB)
    assert misfit is not None
    assert "4096" in misfit


def test_pages_of_one_size_counted_and_of_another_size_named_are_noticed() -> None:
    """A Mac with 16384-byte pages whose header says 4096 has a quarter of its memory, and the other way four times."""
    assert parse_vm_stat(PUBLIC.replace("4096", "16384")).misfit(16 * GIB) is not None
    assert parse_vm_stat(PUBLIC).misfit(64 * GIB) is not None


def test_what_cannot_be_checked_is_not_believed() -> None:
    lacking = PUBLIC.replace("Pages wired down", "Pages wired up")
    assert parse_vm_stat(lacking).misfit(16 * GIB) is not None
    assert parse_vm_stat(PUBLIC).misfit(None) is not None


@pytest.mark.parametrize("size", ["0", "16000", "4096000", "-4096"])
def test_a_page_size_that_no_mac_has_is_none(size: str) -> None:
    pages = parse_vm_stat(PUBLIC.replace("4096", size))
    assert (pages.page_bytes, pages.immediate_bytes, pages.optimistic_bytes) == (None, None, None)


def test_a_count_that_is_there_twice_is_not_known_unless_both_agree() -> None:
    assert parse_vm_stat(PUBLIC + "Pages free: 7.\n").immediate_bytes is None
    assert parse_vm_stat(PUBLIC + PUBLIC).immediate_bytes == parse_vm_stat(PUBLIC).immediate_bytes
    assert parse_vm_stat(PUBLIC + PUBLIC.replace("4096", "16384")).page_bytes is None


@pytest.mark.parametrize("line", ["Pages free", "File-backed pages"])
def test_a_count_that_is_missing_is_never_nothing(line: str) -> None:
    lacking = "".join(text for text in PUBLIC.splitlines(keepends=True) if not text.startswith(line))
    assert parse_vm_stat(lacking).immediate_bytes is None


LINES = st.sampled_from(PUBLIC.splitlines()) | st.text(max_size=30)


@given(st.lists(LINES, max_size=16).map("\n".join), st.data())
def test_whatever_comes_no_count_is_made_up(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    pages = parse_vm_stat(text[:cut])
    for name, count in pages.counts.items():
        assert any(line.startswith(f"{name}:") and line.split()[-1] == f"{count}." for line in text.splitlines())
    if pages.immediate_bytes is not None:
        assert pages.immediate_bytes == (334212 + 597869) * 4096
    if pages.optimistic_bytes is not None:
        assert pages.optimistic_bytes == (334212 + 81968 + 1367584) * 4096


@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
def test_any_text_is_survived(text: str) -> None:
    assert parse_vm_stat(text).immediate_bytes is None
