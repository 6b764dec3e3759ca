from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kakeya_ops.inventory.models import ResolvedHost
from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from sshd import Knobs, SshServer, make_key

OpenRunner = Callable[[str, Path], FileRunner]
MakeServer = Callable[..., SshServer]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A server with nothing special about it; nobody stops it or changes its files, but for its home folder."""
    with SshServer(tmp_path_factory.mktemp("sshd")) as started:
        yield started


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """Start a server of the test's own."""
    started: list[SshServer] = []

    def make(name: str = "own", **knobs: object) -> SshServer:
        started.append(SshServer(tmp_path / name, Knobs(**knobs)).start())  # type: ignore[arg-type]
        return started[-1]

    yield make
    for one in started:
        one.stop()


@pytest.fixture(scope="session")
def runners(server: SshServer) -> Iterator[dict[str, FileRunner]]:
    """The runners of `shared_runner`."""
    opened: dict[str, FileRunner] = {}
    yield opened
    for runner in opened.values():
        runner.close()


@pytest.fixture
def shared_runner(
    server: SshServer, runners: dict[str, FileRunner], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], FileRunner]:
    """The runner of a kind for `server`, which all tests share as commands of a deploy would."""
    monkeypatch.setenv("HOME", str(server.home))

    def find(kind: str) -> FileRunner:
        if kind not in runners:
            runners[kind] = make_runner(kind, server.write_config())
        return runners[kind]

    return find


def make_runner(kind: str, config: Path) -> FileRunner:
    """A runner of `kind` for the host `mac` of `config`."""
    if kind == "local":
        return LocalRunner("mac")
    ssh = resolve(SshTarget("mac", config_file=config))
    if kind == "openssh":
        return OpenSshRunner("mac", ssh)
    return ParamikoRunner("mac", ssh, OpenSshRunner("mac", ssh) if kind == "paramiko" else None)


@pytest.fixture
def open_runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenRunner]:
    """A runner of one kind for the host `mac` of a configuration; a local one has the same home folder."""
    opened: list[FileRunner] = []

    def make(kind: str, config: Path) -> FileRunner:
        monkeypatch.setenv("HOME", str(config.parent / "home"))
        runner = make_runner(kind, config)
        opened.append(runner)
        return runner

    yield make
    for runner in opened:
        runner.close()


@pytest.fixture(params=("local", "paramiko", "openssh"))
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of runner; a test may be parametrized with others."""
    return str(request.param)


@pytest.fixture
def runner(kind: str, shared_runner: Callable[[str], FileRunner]) -> FileRunner:
    """The shared runner of that kind."""
    return shared_runner(kind)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A big file with random content."""
    path = tmp_path / "source.bin"
    path.write_bytes(os.urandom(6 * 2**20 + 17))
    return path


@pytest.fixture
def host() -> ResolvedHost:
    """A host of an inventory that is called `mac` for ssh, too."""
    endpoint = {"network": "lan", "address": "10.0.0.2", "port": 7000}
    given = {"name": "allens", "role": "worker", "pool_gb": 1.0, "endpoints": (endpoint,), "ssh": {"host": "mac"}}
    return ResolvedHost.model_validate(given)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """A real ssh-agent, which everything here then uses; called with a key, it holds that, too."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))

        def add(key: Path) -> None:
            subprocess.run(["ssh-add", "-q", key], check=True, env=os.environ | {"SSH_AUTH_SOCK": str(path)})

        yield add
        process.terminate()


@pytest.fixture(scope="session")
def other_keys(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Private keys that nobody lets in."""
    folder = tmp_path_factory.mktemp("keys")
    return [make_key(folder / f"other{number}") for number in range(7)]
