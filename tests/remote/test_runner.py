"""The contract of `Runner`, for everything that is one."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kakeya_ops.errors import (
    CommandFailed,
    CommandTimeout,
    InputError,
    TransferFailed,
)
from kakeya_ops.remote import channel_exchange, process
from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.runner import Result
from sshd import SshServer, hidden_files

MEBIBYTE = 2**20
HOSTILE = (
    "",
    " ",
    "it's",
    'say "hi"',
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned;",
    "$HOME",
    "~",
    "~root/x",
    "=ls",
    "A=b",
    "-rf",
    "--",
    "*",
    "new\nline",
    "tab\t",
    "back\\slash\\",
    "\\'",
    "日本語 é 🍏",
    "!history",
    "#comment",
    "{a,b}",
    "[x]",
    "%1",
    "\x1b[31m",
    "a&b|c>d<e",
)


class TestRun:
    def test_streams_and_status(self, runner: FileRunner) -> None:
        assert runner.run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Result(3, b"out\n", b"err\n")

    def test_words_arrive_as_they_are(self, runner: FileRunner, server: SshServer) -> None:
        result = runner.run(["printf", "%s\\0", *HOSTILE], check=True)
        assert result.stdout.decode().split("\0")[:-1] == list(HOSTILE)
        assert not (server.home / "pwned").exists()

    def test_a_program_may_have_an_odd_name_too(self, runner: FileRunner, server: SshServer) -> None:
        program = server.home / "odd $(name) 'x'"
        program.write_text("#!/bin/sh\necho ran\n")
        program.chmod(0o755)
        assert runner.run([str(program)], check=True).text == "ran\n"

    def test_it_runs_in_the_home_folder(self, runner: FileRunner, server: SshServer) -> None:
        assert runner.run(["pwd"], check=True).text.strip() == str(server.home)
        assert runner.home() == str(server.home)

    def test_input(self, runner: FileRunner) -> None:
        data = os.urandom(3 * MEBIBYTE)
        assert runner.run(["cat"], input=data).stdout == data

    def test_input_that_nobody_reads(self, runner: FileRunner) -> None:
        assert runner.run(["true"], input=bytes(4 * MEBIBYTE)).status == 0

    def test_without_input_there_is_none_to_wait_for(self, runner: FileRunner) -> None:
        assert runner.run(["cat"], timeout_seconds=10) == Result(0, b"", b"")

    def test_much_on_both_streams_at_once(self, runner: FileRunner) -> None:
        size = 3 * MEBIBYTE
        script = f"head -c {size} /dev/zero & head -c {size} /dev/zero >&2; wait"
        result = runner.run(["sh", "-c", script])
        assert (len(result.stdout), len(result.stderr)) == (size, size)

    @pytest.mark.parametrize("stream", ["", " >&2"])
    def test_output_without_end_is_ended(
        self, runner: FileRunner, monkeypatch: pytest.MonkeyPatch, stream: str
    ) -> None:
        for module in (process, channel_exchange):
            monkeypatch.setattr(module, "OUTPUT_LIMIT_BYTES", 100_000)
        with pytest.raises(CommandFailed, match="more than is taken in") as caught:
            runner.run(["sh", "-c", f"exec yes{stream}"], timeout_seconds=20)
        assert caught.value.status is None

    def test_time_is_up(self, runner: FileRunner, kind: str) -> None:
        started = time.monotonic()
        with pytest.raises(CommandTimeout, match=r"sleep 30 took longer than 0.4 s") as caught:
            runner.run(["sleep", "30"], timeout_seconds=0.4)
        assert time.monotonic() - started < 25
        assert caught.value.ended is (kind == "local")
        assert runner.run(["echo", "still here"]).text == "still here\n"

    def test_what_ends_but_leaves_its_output_open_is_not_waited_for_for_ever(self, runner: FileRunner) -> None:
        with pytest.raises(CommandTimeout):
            runner.run(["sh", "-c", "sleep 3 & exit 0"], timeout_seconds=0.5)

    def test_check(self, runner: FileRunner) -> None:
        with pytest.raises(CommandFailed, match="failed with status 7: no \ufffd\\[31mway") as caught:
            runner.run(["sh", "-c", "printf 'no \\033[31mway' >&2; exit 7"], check=True)
        assert (caught.value.host, caught.value.status) == ("mac", 7)
        assert caught.value.argv[0] == "sh"

    def test_a_program_that_is_not_there(self, runner: FileRunner) -> None:
        result = runner.run(["/no/such/program"])
        assert result.status == 127
        assert b"not found" in result.stderr

    def test_a_program_that_is_none(self, runner: FileRunner, server: SshServer) -> None:
        (server.home / "data").write_text("no program")
        assert runner.run([str(server.home / "data")]).status == 126

    @pytest.mark.parametrize("number", [9, 15])
    def test_a_signal(self, runner: FileRunner, kind: str, number: int) -> None:
        expected = {128 + number} if kind == "local" else {128 + number, 255}
        assert runner.run(["sh", "-c", f"kill -{number} $$"]).status in expected

    def test_255_is_a_status_like_any_other(self, runner: FileRunner) -> None:
        assert runner.run(["sh", "-c", "exit 255"]).status == 255

    @pytest.mark.parametrize("argv", [[], [""], ["a", "b\0c"], "true"])
    def test_what_is_no_command(self, runner: FileRunner, argv: list[str]) -> None:
        with pytest.raises(InputError):
            runner.run(argv)

    def test_from_many_threads(self, runner: FileRunner, server: SshServer) -> None:
        runner.write("~/shared", b"x" * 50_000, 0o644)
        with ThreadPoolExecutor(6) as pool:
            texts = list(pool.map(lambda number: runner.run(["echo", str(number)]).text, range(6)))
            contents = list(pool.map(lambda _: runner.read("~/shared"), range(6)))
        assert texts == [f"{number}\n" for number in range(6)]
        assert set(contents) == {b"x" * 50_000}


class TestFiles:
    @pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755, 0o666])
    def test_modes_are_exact(self, runner: FileRunner, server: SshServer, mode: int) -> None:
        before = os.umask(0o002)
        try:
            runner.write("~/moded", b"content", mode)
        finally:
            os.umask(before)
        status = runner.stat("~/moded")
        assert status is not None
        assert (status.mode, status.kind, status.size_bytes) == (mode, "file", 7)
        assert abs(status.mtime_seconds - time.time()) < 60
        assert (server.home / "moded").read_bytes() == b"content"
        assert hidden_files(server.home) == []

    def test_what_is_not_there(self, runner: FileRunner) -> None:
        assert runner.read("~/nothing") is None
        assert runner.stat("~/nothing") is None
        assert runner.listdir("~/nothing") is None
        assert runner.stat("~/nothing/below") is None

    def test_kinds(self, runner: FileRunner, server: SshServer, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir(mode=0o700)
        (tmp_path / "link").symlink_to("folder")
        os.mkfifo(tmp_path / "fifo")
        found = {name: runner.stat(f"{tmp_path}/{name}") for name in ("folder", "link", "fifo")}
        assert {name: status and status.kind for name, status in found.items()} == {
            "folder": "folder",
            "link": "symlink",
            "fifo": "other",
        }
        assert runner.listdir(str(tmp_path)) == tuple(sorted(path.name for path in tmp_path.iterdir()))

    def test_names_that_are_odd(self, runner: FileRunner, tmp_path: Path) -> None:
        path = f"{tmp_path}/a b $(c) 'd' % é\n"
        runner.write(path, b"1", 0o600)
        assert runner.read(path) == b"1"
        assert runner.listdir(str(tmp_path)) == (path.rpartition("/")[2],)

    def test_a_folder_is_no_file(self, runner: FileRunner, tmp_path: Path) -> None:
        with pytest.raises(TransferFailed):
            runner.read(str(tmp_path))
        with pytest.raises(TransferFailed, match="is a folder"):
            runner.write(str(tmp_path), b"", 0o644)
        with pytest.raises(TransferFailed):
            runner.write(f"{tmp_path}/none/file", b"", 0o644)

    @pytest.mark.parametrize("path", ["relative", "", "~root/x", "./x", "/a\0b"])
    def test_what_is_no_path(self, runner: FileRunner, path: str) -> None:
        with pytest.raises(InputError):
            runner.read(path)

    def test_a_read_file_is_bounded(self, runner: FileRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from kakeya_ops.remote import files

        monkeypatch.setattr(files, "OUTPUT_LIMIT_BYTES", 1000)
        (tmp_path / "long").write_bytes(bytes(1001))
        with pytest.raises(TransferFailed, match="longer than 1000 bytes"):
            runner.read(str(tmp_path / "long"))
        (tmp_path / "long").write_bytes(bytes(1000))
        assert runner.read(str(tmp_path / "long")) == bytes(1000)

    @pytest.mark.parametrize("aim", ["file", "nothing"])
    def test_nothing_is_written_through_a_link(
        self, runner: FileRunner, tmp_path: Path, source: Path, aim: str
    ) -> None:
        (tmp_path / "file").write_bytes(b"precious")
        (tmp_path / "link").symlink_to(aim)
        with pytest.raises(TransferFailed, match="symbolic link"):
            runner.write(f"{tmp_path}/link", b"evil", 0o644)
        with pytest.raises(TransferFailed, match="symbolic link"):
            runner.upload(source, f"{tmp_path}/link", progress=lambda _: None)
        assert (tmp_path / "file").read_bytes() == b"precious"
        assert not (tmp_path / "nothing").exists()
        assert (tmp_path / "link").is_symlink()

    def test_a_reader_sees_the_old_content_or_the_new(self, runner: FileRunner, tmp_path: Path) -> None:
        target = tmp_path / "target"
        contents = [bytes([number]) * 150_000 for number in range(6)]
        target.write_bytes(contents[0])
        seen: set[bytes] = set()
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                seen.add(target.read_bytes())

        reader = threading.Thread(target=look)
        reader.start()
        try:
            for content in contents:
                runner.write(str(target), content, 0o644)
        finally:
            done.set()
            reader.join()
        assert seen <= set(contents)
        assert target.read_bytes() == contents[-1]

    def test_a_secret_is_never_open_to_others(
        self, runner: FileRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server that dies between two steps leaves what the step before left: look at that."""
        seen: list[int] = []

        def stop(self: object, data: bytes, *, confirm: bool = True) -> None:
            seen.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name.startswith("."))
            raise OSError(errno.EIO, "stopped")

        from kakeya_ops.remote import local_files, sftp_files

        monkeypatch.setattr(local_files._LocalFile, "write", stop)
        monkeypatch.setattr(sftp_files._SftpFile, "write", stop)
        with pytest.raises(TransferFailed, match="stopped"):
            runner.write(f"{tmp_path}/key", b"secret", 0o644)
        assert seen == [0o600]
        assert list(tmp_path.iterdir()) == []
