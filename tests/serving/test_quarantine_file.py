"""The quarantine outlives the process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kakeya_ops.serving.quarantine import Quarantine
from kakeya_ops.serving.quarantine_file import QuarantineFile, open_quarantine
from serving.findings import EVIDENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.key.head.quarantine.json"


def hold(path: Path, node: str = "allens") -> Quarantine:
    quarantine = open_quarantine(path)
    quarantine.hold(node, EVIDENCE)
    quarantine.save()
    return quarantine


def test_without_a_file_nobody_is_held_and_none_is_made(path: Path) -> None:
    assert open_quarantine(path).state == Quarantine().state
    assert not path.exists()


def test_without_a_path_it_lasts_as_long_as_the_process() -> None:
    quarantine = open_quarantine(None)
    quarantine.hold("allens", EVIDENCE)
    quarantine.save()
    assert quarantine.holds("allens")


def test_the_next_process_holds_and_names_the_same(path: Path) -> None:
    before, after = hold(path), open_quarantine(path)
    assert after.state == before.state
    assert after.space("t") == before.space("t") != "t"
    after.release("allens", "because")
    assert open_quarantine(path).holds("allens") is None


def test_the_file_is_its_owners_alone_and_nothing_lies_beside_it(path: Path) -> None:
    path.with_name(path.name + ".part").write_text("left behind", encoding="ascii")
    hold(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"held": 3}', b"[" * 100_000])
def test_what_cannot_be_read_is_set_aside_and_no_old_name_is_used(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(content)
    quarantine = open_quarantine(path)
    assert (quarantine.state.held, quarantine.space("t") != "t") == ((), True)
    assert "nobody is held" in caplog.text
    assert path.with_name(path.name + ".unreadable").read_bytes() == content
    assert open_quarantine(path).state == quarantine.state


def test_what_would_never_end_is_not_read(path: Path) -> None:
    os.mkfifo(path)
    assert open_quarantine(path).space("t") != "t"


def test_no_link_is_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    hold(target)
    path.symlink_to(target)
    assert open_quarantine(path).state.held == ()


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = QuarantineFile(tmp_path / "missing" / "quarantine.json")
    quarantine = Quarantine(storage=file)
    quarantine.hold("allens", EVIDENCE)
    quarantine.save()
    assert "cannot be kept" in caplog.text
    assert quarantine.holds("allens")
