"""One function, over real SSH or here, against a simulated Mac and this machine's own Linux."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from kakeya_ops.memory.host import HostMemory, Process
from kakeya_ops.memory.reading import MEMORY_PROBES, read_host_memory
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.runner import Result, Runner
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from mac.host import MacHost
from sshd import Knobs, SshServer

GIB = 2**30
MIB = 2**20
SERVER = (901, 2_000_000, 5000 * 1024, "/usr/local/bin/python3 -m mlx_lm.server --model x")


class Counting(LocalRunner):
    """Counts the calls that would cross the network."""

    calls = 0

    def run(self, *arguments: object, **options: object) -> Result:
        self.calls += 1
        return super().run(*arguments, **options)  # type: ignore[arg-type]


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MacHost]:
    """A Mac that this machine is while a test runs."""
    with MacHost(tmp_path / "mac", processes=(SERVER,)) as host:
        for name, value in host.environment.items():
            monkeypatch.setenv(name, value)
        yield host


def add_python(mac: MacHost, script: str) -> None:
    """Install a program with a Python, as deploy does."""
    path = mac.home / ".kakeya/programs/p1/venv/bin/python"
    path.parent.mkdir(parents=True)
    path.write_text(script)
    path.chmod(0o755)


def as_simulated(host: HostMemory) -> None:
    """`host` is what the knobs of the simulator say."""
    assert (host.system, host.version, host.build) == ("macos", "15.5", "24F74")
    assert host.total_bytes.nbytes == 16 * GIB
    assert (host.working_set_bytes.nbytes, host.working_set_bytes.origin) == (16 * GIB * 2 // 3, "read")
    assert (host.immediate_bytes, host.page_bytes, host.wired_limit_bytes) == (9 * GIB, 16384, 0)
    server = Process(901, "mlx_lm.server", 5000 * MIB, "footprint", is_mlx_server=True, is_kakeya=False)
    assert host.processes == (server,)
    assert host.gaps == ()


@pytest.mark.parametrize("kind", ["openssh", "paramiko"])
def test_a_mac_over_ssh(tmp_path: Path, kind: str) -> None:
    with (
        MacHost(tmp_path / "mac", processes=(SERVER,)) as mac,
        SshServer(tmp_path / "ssh", Knobs(environment=mac.environment)) as server,
    ):
        ssh = resolve(SshTarget("mac", config_file=server.write_config()))
        runner: Runner = OpenSshRunner("mac", ssh) if kind == "openssh" else ParamikoRunner("mac", ssh, None)
        try:
            as_simulated(read_host_memory(runner, "~/.kakeya"))
        finally:
            runner.close()


def test_a_mac_here_in_one_call(mac: MacHost) -> None:
    runner = Counting("mac")
    as_simulated(read_host_memory(runner))
    assert runner.calls == 1


def test_pressure_is_read(mac: MacHost) -> None:
    mac.set(compressor_bytes=4 * GIB, free_memory_bytes=GIB, swap_used_mb=3000.5, pressure_level=2)
    host = read_host_memory(LocalRunner("mac"))
    assert (host.compressor_bytes, host.swap_used_bytes, host.pressure) == (4 * GIB, int(3000.5 * MIB), "warning")
    assert host.immediate_bytes == GIB


def test_a_limit_that_was_set_is_read(mac: MacHost) -> None:
    mac.set(wired_limit_mb=8192)
    host = read_host_memory(LocalRunner("mac"))
    assert host.working_set_bytes.nbytes == host.wired_limit_bytes == 8 * GIB


def test_where_metal_is_silent_an_installed_program_asks_mlx(mac: MacHost, tmp_path: Path) -> None:
    mac.set(metal=False)
    core = tmp_path / "lib/mlx/core.py"
    core.parent.mkdir(parents=True)
    core.write_text(
        "def device_info():\n"
        "    return {'max_recommended_working_set_size': 12713115648, 'max_buffer_length': 9534836736}\n"
    )
    add_python(mac, f"#!/bin/sh\nPYTHONPATH='{tmp_path}/lib' exec '{sys.executable}' \"$@\"\n")
    host = read_host_memory(LocalRunner("mac"), "~/.kakeya")
    assert (host.working_set_bytes.nbytes, host.max_buffer_bytes.nbytes) == (12713115648, 9534836736)
    assert host.working_set_bytes.source.endswith("from mx.device_info")


def test_mlx_without_metal_has_no_working_set_and_the_table_is_taken(mac: MacHost) -> None:
    """The real MLX of this machine: its device has a name and no sizes."""
    mac.set(metal=False)
    add_python(mac, f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    host = read_host_memory(LocalRunner("mac"), str(mac.home / ".kakeya"))
    assert (host.working_set_bytes.nbytes, host.working_set_bytes.origin) == (16 * GIB * 2 // 3, "table")


@pytest.mark.parametrize("root", ["", "~/nothing", "/a b/$(touch evil)'\""])
def test_a_mac_on_which_nothing_is_installed(mac: MacHost, root: str) -> None:
    mac.set(metal=False)
    assert read_host_memory(LocalRunner("mac"), root).working_set_bytes.origin == "table"
    assert not (mac.home / "evil").exists()


@pytest.mark.parametrize("tool", ["vm_stat", "sysctl", "top", "ps", "osascript", "sw_vers"])
def test_a_program_that_prints_rubbish_costs_its_own_facts_only(mac: MacHost, tool: str) -> None:
    mac.add_tool(tool, "#!/bin/sh\nhead -c 3000 /dev/urandom\necho 'begin x'\nexit 3\n")
    host = read_host_memory(LocalRunner("mac"))
    assert host.system == "macos"
    assert (host.total_bytes.nbytes is None) == (tool == "sysctl")
    assert (host.immediate_bytes is None) == (tool in ("vm_stat", "sysctl"))
    assert (host.processes == ()) == (tool == "ps")
    assert (host.build is None) == (tool == "sw_vers")


def test_this_linux() -> None:
    host = read_host_memory(LocalRunner("here"))
    assert (host.system, host.gaps) == ("linux", ())
    assert host.total_bytes.nbytes == psutil.virtual_memory().total
    assert host.page_bytes == os.sysconf("SC_PAGESIZE")
    assert host.immediate_bytes == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    assert host.working_set_bytes.origin == "absent"


def test_what_hangs_is_ended() -> None:
    """Without ``timeout``, which a Mac lacks."""
    start = time.monotonic()
    done = subprocess.run(["/bin/sh", "-c", f"{MEMORY_PROBES}\nwithin 1 sleep 50"], capture_output=True, timeout=30)
    assert done.returncode == 128 + 14
    assert time.monotonic() - start < 20


def test_what_others_run_is_not_carried_whole(mac: MacHost) -> None:
    """No argument of a foreign process leaves its host but in the bounded list, and none is kept."""
    secret = "--api-key=hunter2"
    mac.set(processes=tuple((pid, 999_999, 999_999, f"/bin/x{pid} {secret} {'y' * 5000}") for pid in range(1, 400)))
    outputs: list[bytes] = []

    class Noting(LocalRunner):
        def run(self, argv: Sequence[str], **options: object) -> Result:  # type: ignore[override]
            result = super().run(argv, **options)  # type: ignore[arg-type]
            outputs.append(result.stdout)
            return result

    host = read_host_memory(Noting("mac"))
    assert len(outputs[0]) < 60_000
    assert host.processes
    assert "hunter2" not in repr(host)
