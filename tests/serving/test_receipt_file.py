"""Receipts outlive the process: bounded, private, and whatever happened to the file."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.serving import receipt_file
from kakeya_ops.serving.receipt_file import ReceiptFile, read_receipts
from kakeya_ops.serving.receipts import Fallback, Receipt
from serving.test_receipts import KEY, RECEIPT, verify


def numbered(number: int) -> Receipt:
    return replace(RECEIPT, request_id=f"r{number}").sign(KEY)


def write(path: Path, *receipts: Receipt, kept: int = 4) -> list[Receipt]:
    """One life of a head that makes `receipts`; what it found."""
    file = ReceiptFile(path, kept)
    found = file.start()
    for receipt in receipts:
        file.append(receipt)
    file.close()
    return found


def test_what_one_process_wrote_another_finds_and_can_verify(tmp_path: Path) -> None:
    path = tmp_path / "receipts"
    assert write(path, numbered(1), numbered(2)) == []
    found = write(path, numbered(3))
    assert found == [numbered(1), numbered(2)]
    assert [receipt.digest for receipt in found] == [numbered(1).digest, numbered(2).digest]
    verify(found[0])
    assert [receipt.request_id for receipt in read_receipts(path)] == ["r1", "r2", "r3"]


def test_the_file_stays_short_and_holds_the_newest(tmp_path: Path) -> None:
    path, one = tmp_path / "receipts", len(json.dumps(numbered(10).to_json()))
    file = ReceiptFile(path, 4)
    file.start()
    for number in range(10, 60):
        file._append(json.dumps(numbered(number).to_json()).encode() + b"\n")
        assert path.stat().st_size <= 10 * one
    file.close()
    assert [receipt.request_id for receipt in read_receipts(path, 4)] == ["r56", "r57", "r58", "r59"]
    assert list(tmp_path.iterdir()) == [path]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "receipts"
    path.write_bytes(b"")
    os.chmod(path, 0o644)
    old = os.umask(0)
    try:
        write(path, numbered(1))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("wrong", [b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 5000, b"x" * 200_000])
def test_what_is_no_receipt_is_left_out(tmp_path: Path, wrong: bytes) -> None:
    path = tmp_path / "receipts"
    write(path, numbered(1))
    with path.open("ab") as file:
        file.write(wrong + b"\n" + json.dumps(numbered(2).to_json()).encode() + b"\n")
    assert write(path) == [numbered(1), numbered(2)]


def test_a_line_cut_off_by_a_power_cut_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "receipts"
    write(path, numbered(1), numbered(2))
    path.write_bytes(path.read_bytes()[:-20])
    assert write(path, numbered(3)) == [numbered(1)]
    assert read_receipts(path) == [numbered(1), numbered(3)]


def test_a_disk_that_takes_nothing_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert write(tmp_path / "missing" / "receipts", numbered(1), numbered(2)) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"receipts cannot be kept in {tmp_path / 'missing' / 'receipts'}: No such file or directory"
    ]


def test_a_file_that_cannot_be_read_is_told_and_not_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "receipts"
    write(path, numbered(1))

    def fail(self: Path, mode: str) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", fail)
        assert write(path, numbered(2)) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"receipts cannot be kept in {path}: {os.strerror(errno.EIO)}"
    ]
    assert read_receipts(path) == [numbered(1), numbered(2)]


def test_a_line_cut_off_by_a_full_disk_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "receipts"
    file = ReceiptFile(path)
    file.start()
    with file._tolerant():
        with path.open("ab") as short:
            short.write(json.dumps(numbered(1).to_json()).encode()[:-20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.append(numbered(2))
    file.append(numbered(3))
    file.close()
    assert read_receipts(path) == [numbered(2), numbered(3)]


def test_a_disk_that_hangs_does_not_keep_the_process_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, begun = threading.Event(), threading.Event()

    def hang(self: ReceiptFile, line: bytes) -> None:
        begun.set()
        allowed.wait(30)

    monkeypatch.setattr(ReceiptFile, "_append", hang)
    monkeypatch.setattr(receipt_file, "_JOIN_SECONDS", 0.05)
    file = ReceiptFile(tmp_path / "receipts", 1)
    file.start()
    file.append(numbered(0))
    assert begun.wait(20)
    for number in range(1, 9):
        file.append(numbered(number))
    closing = threading.Thread(target=file.close, daemon=True)
    closing.start()
    closing.join(5)
    ended = not closing.is_alive()
    allowed.set()
    assert ended


@given(
    text=st.text(max_size=20),
    seconds=st.floats(0, 1e9, allow_nan=False),
    fallback=st.none() | st.builds(Fallback, st.text(), st.text(), st.text(), st.integers(0, 99)),
)
def test_every_receipt_comes_back_as_it_was(text: str, seconds: float, fallback: Fallback | None) -> None:
    receipt = replace(RECEIPT, tenant=text, times={"lookup": seconds}, fallback=fallback, started_at=seconds)
    assert Receipt.from_json(json.loads(json.dumps(receipt.to_json()))) == receipt


@pytest.mark.parametrize("change", [{"more": 1}, {"prompt_tokens": "many"}, {"gain": "magic"}, {"decision": None}])
def test_a_document_that_is_no_receipt_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"receipt|Receipt"):
        Receipt.from_json(RECEIPT.to_json() | change)
