"""Big files, by every way to send them."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from kakeya_ops.errors import EnvironmentFault, TransferFailed
from kakeya_ops.remote.file_runner import FileRunner
from sshd import SshServer, hidden_files

MEBIBYTE = 2**20
LIMIT_BYTES = MEBIBYTE
KINDS = ("local", "paramiko", "paramiko alone", "openssh")
every_way_to_send = pytest.mark.parametrize("kind", KINDS)


@every_way_to_send
class TestUpload:
    def test_a_big_file(self, runner: FileRunner, source: Path, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.write_bytes(b"old")
        steps: list[int] = []
        runner.upload(source, str(target), progress=steps.append)
        assert target.read_bytes() == source.read_bytes()
        assert target.stat().st_mode & 0o777 == 0o644
        assert (steps[0], steps[-1]) == (0, source.stat().st_size)
        assert steps == sorted(steps)
        assert hidden_files(tmp_path) == []

    def test_an_empty_file(self, runner: FileRunner, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        steps: list[int] = []
        runner.upload(tmp_path / "empty", f"{tmp_path}/target", progress=steps.append)
        assert (tmp_path / "target").read_bytes() == b""
        assert steps == [0]

    def test_a_source_that_is_not_there(self, runner: FileRunner, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFault, match="cannot read"):
            runner.upload(tmp_path / "none", f"{tmp_path}/target", progress=lambda _: None)

    def test_only_the_rest_is_sent_after_an_interruption(
        self, runner: FileRunner, source: Path, tmp_path: Path
    ) -> None:
        def interrupt(done_bytes: int) -> None:
            if done_bytes >= 3 * MEBIBYTE:
                raise KeyboardInterrupt

        target = tmp_path / "target"
        target.write_bytes(b"old")
        with pytest.raises(KeyboardInterrupt):
            runner.upload(source, str(target), progress=interrupt)
        assert target.read_bytes() == b"old"
        # What was on its way arrives, or not, before the session ends.
        [partial] = hidden_files(tmp_path)
        steps: list[int] = []
        runner.upload(source, str(target), progress=steps.append)
        assert 0 < steps[0] <= 4 * MEBIBYTE
        assert target.read_bytes() == source.read_bytes()
        assert hidden_files(tmp_path) == []
        assert partial.endswith(".partial")

    def test_a_partial_file_that_is_not_the_beginning_is_not_gone_on_with(
        self, runner: FileRunner, source: Path, tmp_path: Path
    ) -> None:
        def interrupt(done_bytes: int) -> None:
            if done_bytes >= 2 * MEBIBYTE:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            runner.upload(source, f"{tmp_path}/target", progress=interrupt)
        runner.close()
        [partial] = hidden_files(tmp_path)
        (tmp_path / partial).write_bytes(os.urandom(MEBIBYTE))
        steps: list[int] = []
        runner.upload(source, f"{tmp_path}/target", progress=steps.append)
        assert steps[0] == 0
        assert (tmp_path / "target").read_bytes() == source.read_bytes()

    def test_what_is_left_of_another_state_of_the_source_goes(
        self, runner: FileRunner, source: Path, tmp_path: Path
    ) -> None:
        (tmp_path / ".target.0123456789ab.partial").write_bytes(b"old")
        (tmp_path / ".target2.0123456789ab.partial").write_bytes(b"of another")
        runner.upload(source, f"{tmp_path}/target", progress=lambda _: None)
        assert hidden_files(tmp_path) == [".target2.0123456789ab.partial"]

    def test_a_source_that_changes_meanwhile(self, runner: FileRunner, source: Path, tmp_path: Path) -> None:
        def change(done_bytes: int) -> None:
            os.utime(source, ns=(0, done_bytes + 1))

        with pytest.raises(TransferFailed, match="changed while it was sent"):
            runner.upload(source, f"{tmp_path}/target", progress=change)
        assert not (tmp_path / "target").exists()
        assert hidden_files(tmp_path) == []


@every_way_to_send
class TestFullDisk:
    @pytest.fixture
    def limited(
        self,
        kind: str,
        make_server: Callable[..., SshServer],
        open_runner: Callable[[str, Path], FileRunner],
        source: Path,
    ) -> Iterator[tuple[FileRunner, Path]]:
        """A runner whose host has no room for files over `LIMIT_BYTES`, and its home folder."""
        own = make_server(file_limit_bytes=LIMIT_BYTES)
        with _file_limit() if kind == "local" else nullcontext():
            yield open_runner(kind, own.write_config()), own.home

    def test_the_old_file_stays(self, limited: tuple[FileRunner, Path], source: Path) -> None:
        runner, home = limited
        target = home / "target"
        target.write_bytes(b"old")
        with pytest.raises(TransferFailed) as written:
            runner.write("~/target", bytes(2 * LIMIT_BYTES), 0o644)
        assert written.value.hint == f"is there room? df -h {home}"
        assert hidden_files(home) == []
        with pytest.raises(TransferFailed):
            runner.upload(source, str(target), progress=lambda _: None)
        assert target.read_bytes() == b"old"
        [partial] = hidden_files(home)
        kept = (home / partial).read_bytes()
        assert source.read_bytes().startswith(kept)


@contextmanager
def _file_limit() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
