"""The contract of `Runner`, for everything that is one."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from faults.proxy import Fault, FaultProxy
from kakeya_ops.errors import (
    CommandFailed,
    CommandTimeout,
    ConnectFailed,
    ConnectionLost,
    EnvironmentFault,
    InputError,
    TransferFailed,
)
from kakeya_ops.remote import channel_exchange, process
from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.runner import Result
from sshd import HOST, SshServer, wait_until

KINDS = ("local", "paramiko", "openssh")
SSH_KINDS = ("paramiko", "paramiko alone", "openssh")
every_way_to_send = pytest.mark.parametrize("kind", ["local", *SSH_KINDS])
MEBIBYTE = 2**20
LIMIT_BYTES = MEBIBYTE
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


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runner(kind: str, shared_runner: Callable[[str], FileRunner]) -> FileRunner:
    return shared_runner(kind)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(os.urandom(8 * MEBIBYTE + 17))
    return path


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


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
        with pytest.raises(CommandTimeout, match=r"sleep 5 took longer than 0.4 s") as caught:
            runner.run(["sleep", "5"], timeout_seconds=0.4)
        assert time.monotonic() - started < 4
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
        assert left_over(server.home) == []

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
        assert left_over(tmp_path) == []

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
            if done_bytes >= 4 * MEBIBYTE:
                raise KeyboardInterrupt

        target = tmp_path / "target"
        target.write_bytes(b"old")
        with pytest.raises(KeyboardInterrupt):
            runner.upload(source, str(target), progress=interrupt)
        assert target.read_bytes() == b"old"
        # What was on its way arrives, or not, before the session ends.
        [partial] = left_over(tmp_path)
        steps: list[int] = []
        runner.upload(source, str(target), progress=steps.append)
        assert 0 < steps[0] <= 5 * MEBIBYTE
        assert target.read_bytes() == source.read_bytes()
        assert left_over(tmp_path) == []
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
        [partial] = left_over(tmp_path)
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
        assert left_over(tmp_path) == [".target2.0123456789ab.partial"]

    def test_a_source_that_changes_meanwhile(self, runner: FileRunner, source: Path, tmp_path: Path) -> None:
        def change(done_bytes: int) -> None:
            os.utime(source, ns=(0, done_bytes + 1))

        with pytest.raises(TransferFailed, match="changed while it was sent"):
            runner.upload(source, f"{tmp_path}/target", progress=change)
        assert not (tmp_path / "target").exists()
        assert left_over(tmp_path) == []


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
        assert left_over(home) == []
        with pytest.raises(TransferFailed):
            runner.upload(source, str(target), progress=lambda _: None)
        assert target.read_bytes() == b"old"
        [partial] = left_over(home)
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


@pytest.mark.parametrize("kind", SSH_KINDS)
class TestBrokenConnection:
    @pytest.fixture
    def proxy(self, server: SshServer) -> Iterator[FaultProxy]:
        with FaultProxy((HOST, server.port)) as started:
            yield started

    @pytest.fixture
    def proxied(
        self,
        kind: str,
        server: SshServer,
        proxy: FaultProxy,
        tmp_path: Path,
        open_runner: Callable[[str, Path], FileRunner],
    ) -> FileRunner:
        known = tmp_path / "known_hosts"
        known.write_text(server.known_line(port=proxy.port))
        name = f"ssh_config_{kind.replace(' ', '_')}"
        config = server.write_config("mac", name, Port=proxy.port, UserKnownHostsFile=known)
        return open_runner(kind, config)

    def test_in_the_middle_of_a_command(self, proxied: FileRunner, proxy: FaultProxy, tmp_path: Path) -> None:
        begun = tmp_path / "begun"
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(proxied.run, ["sh", "-c", f"echo > {begun}; exec sleep 3"])
            wait_until(begun.exists, "the command did not begin")
            proxy.sever()
            with pytest.raises(ConnectionLost, match="while sh was running"):
                running.result(10)
        assert proxied.run(["echo", "again"], check=True).text == "again\n"

    def test_between_two_commands(self, proxied: FileRunner, proxy: FaultProxy) -> None:
        proxied.write("~/between", b"1", 0o600)
        connections = proxy.accepted
        proxy.sever()
        for _ in range(2):
            try:
                assert proxied.read("~/between") == b"1"
                break
            except ConnectionLost:
                continue
        else:
            pytest.fail("it did not connect again")
        assert proxy.accepted > connections

    def test_in_the_middle_of_an_upload(
        self, proxied: FileRunner, proxy: FaultProxy, source: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "target"
        target.write_bytes(b"old")
        proxy.set(up=Fault(cut_after_bytes=5 * MEBIBYTE))
        with pytest.raises(ConnectionLost):
            proxied.upload(source, str(target), progress=lambda _: None)
        assert target.read_bytes() == b"old"
        proxy.heal()
        before = proxy.passed("up")
        steps: list[int] = []
        proxied.upload(source, str(target), progress=steps.append)
        assert steps[0] > 0
        assert proxy.passed("up") - before < source.stat().st_size - steps[0] + MEBIBYTE
        assert target.read_bytes() == source.read_bytes()

    def test_nobody_there(self, proxied: FileRunner, proxy: FaultProxy) -> None:
        proxy.close()
        with pytest.raises(ConnectFailed, match="refused"):
            proxied.run(["true"])


@pytest.mark.parametrize("kind", SSH_KINDS)
def test_a_server_that_allows_one_session_at_a_time(
    kind: str, make_server: Callable[..., SshServer], open_runner: Callable[[str, Path], FileRunner], source: Path
) -> None:
    own = make_server(settings={"MaxSessions": 1})
    runner = open_runner(kind, own.write_config())
    runner.write("~/file", b"1", 0o600)
    assert runner.run(["cat", "file"]) == Result(0, b"1", b"")
    assert runner.read("~/file") == b"1"
    runner.upload(source, "~/big", progress=lambda _: None)
    assert (own.home / "big").stat().st_size == source.stat().st_size


@pytest.mark.parametrize("kind", SSH_KINDS)
def test_a_server_that_stops_and_starts_again(
    kind: str, make_server: Callable[..., SshServer], open_runner: Callable[[str, Path], FileRunner]
) -> None:
    own = make_server()
    runner = open_runner(kind, own.write_config())
    runner.run(["true"], check=True)
    own.stop()
    with pytest.raises((ConnectionLost, ConnectFailed)):
        runner.run(["true"])
    with pytest.raises(ConnectFailed):
        runner.run(["true"])
    own.start()
    assert runner.run(["echo", "back"]).text == "back\n"
