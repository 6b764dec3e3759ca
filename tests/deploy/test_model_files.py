from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from deploy.bare_host import make_context
from kakeya_ops.deploy.errors import Interrupted
from kakeya_ops.deploy.model_files import INCOMING, REPLACED, HostFiles, Seen
from kakeya_ops.errors import CommandFailed
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost

ODD = ("-rf", "it's", "a b", "$(touch pwned)", "ü", "sub folder/--", "sub folder/*")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostFiles:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "the model's"
    folder.mkdir()
    return HostFiles(make_context(LocalRunner("allens"), tmp_path), str(folder))


def write(files: HostFiles, name: str, text: str) -> Path:
    path = Path(files.folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1000, 1000))
    return path


def contents(files: HostFiles) -> dict[str, str]:
    return {name: (Path(files.folder) / name).read_text() for name in files.list()}


def test_names_are_names_and_nothing_else(files: HostFiles) -> None:
    for name in ODD:
        write(files, name, name)
    assert files.list() == {name: Seen(len(name.encode()), 1000) for name in ODD}
    sizes = dict.fromkeys(ODD, 1)
    assert files.hash(sizes) == {name: hashlib.sha256(name.encode()).hexdigest() for name in ODD}
    assert not Path("pwned").exists()


def test_a_link_counts_as_what_it_leads_to(files: HostFiles, tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("content")
    (Path(files.folder) / "model.safetensors").symlink_to(tmp_path / "blob")
    assert files.list()["model.safetensors"].size_bytes == 7


def test_a_folder_that_is_not_there_is_empty(files: HostFiles, tmp_path: Path) -> None:
    nowhere = HostFiles(files.context, str(tmp_path / "nowhere"))
    assert nowhere.list() == {}
    assert nowhere.hash({}) == {}


def test_a_mac_is_asked_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BSD's stat, and no sha256sum."""
    with MacHost(tmp_path / "mac") as mac:
        monkeypatch.setenv("PATH", mac.path)
        files = HostFiles(make_context(LocalRunner("allens"), mac.home), str(mac.home / "model"))
        write(files, "a b", "content")
        assert files.list() == {"a b": Seen(7, 1000)}
        assert files.hash({"a b": 7}) == {"a b": hashlib.sha256(b"content").hexdigest()}
        called = {call[0] for call in mac.calls()}
        assert {"stat", "shasum"} <= called


def test_between_large_batches_a_person_may_give_up(files: HostFiles) -> None:
    write(files, "a", "a")
    write(files, "b", "b")
    large = 3 * 2**30
    assert len(files.hash({"a": large, "b": large})) == 2
    files.context.cancelled.set()
    with pytest.raises(Interrupted):
        files.hash({"a": large, "b": large})


def test_hashing_what_is_not_there_fails(files: HostFiles) -> None:
    with pytest.raises(CommandFailed):
        files.hash({"nothing": 1})


class TestSwap:
    @pytest.fixture(autouse=True)
    def _prepare(self, files: HostFiles) -> None:
        write(files, "same", "same")
        write(files, "-changed", "old")
        write(files, "sub folder/gone", "old")
        write(files, f"{INCOMING}/-changed", "new")
        write(files, f"{INCOMING}/added/file", "new")

    aside = ("-changed", "sub folder/gone")
    names = ("-changed", "added/file")

    def test_new_files_take_their_places(self, files: HostFiles) -> None:
        files.swap_in(self.aside, self.names)
        kept = {f"{REPLACED}/-changed": "old", f"{REPLACED}/sub folder/gone": "old"}
        assert contents(files) == {"same": "same", "-changed": "new", "added/file": "new", **kept}

    def test_and_leave_them_again(self, files: HostFiles) -> None:
        before = contents(files)
        files.swap_in(self.aside, self.names)
        files.swap_back(self.aside, self.names)
        assert contents(files) == before

    def test_a_swap_that_never_was_is_taken_back_without_harm(self, files: HostFiles) -> None:
        before = contents(files)
        files.swap_back(self.aside, self.names)
        assert contents(files) == before

    def test_half_a_swap_is_taken_back(self, files: HostFiles) -> None:
        before = contents(files)
        write(files, f"{INCOMING}/added/file", "new").unlink()
        with pytest.raises(CommandFailed):
            files.swap_in(self.aside, self.names)
        assert contents(files)["-changed"] == "new"
        files.swap_back(self.aside, self.names)
        del before[f"{INCOMING}/added/file"]
        assert contents(files) == before
