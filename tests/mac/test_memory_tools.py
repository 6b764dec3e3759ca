"""The simulated programs that tell about memory."""

from __future__ import annotations

import json

from mac.host import MacHost
from mac.state import GIB

PROCESSES = ((7, 100, 9999, "/bin/a b"), (8, 200, 5000 * 1024, "/bin/c"), (9, 300, 14 * GIB // 1024, "/bin/d"))


def out(mac: MacHost, *argv: str) -> str:
    done = mac.run(*argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def counts(mac: MacHost) -> dict[str, int]:
    lines = (line.rsplit(":", 1) for line in out(mac, "vm_stat").splitlines()[1:])
    return {name: int(count.strip(" .")) for name, count in lines}


def test_pages_add_up_with_a_compressor(mac: MacHost) -> None:
    mac.set(memory_bytes=16 * GIB, free_memory_bytes=4 * GIB, compressor_bytes=2 * GIB)
    found = counts(mac)
    kinds = ("free", "active", "inactive", "speculative", "wired down", "occupied by compressor")
    assert sum(found[f"Pages {kind}"] for kind in kinds) * 16384 == 16 * GIB
    assert found["Pages occupied by compressor"] * 16384 == 2 * GIB
    assert found["File-backed pages"] + found["Anonymous pages"] == sum(
        found[f"Pages {kind}"] for kind in ("active", "inactive", "speculative")
    )


def test_metal_has_the_limit_in_its_figure(mac: MacHost) -> None:
    script = ("osascript", "-l", "JavaScript", "-e", "$.MTLCreateSystemDefaultDevice()")
    assert json.loads(out(mac, *script))["max_recommended_working_set_size"] == 16 * GIB * 2 // 3
    mac.set(wired_limit_mb=14336)
    assert json.loads(out(mac, *script))["max_recommended_working_set_size"] == 14 * GIB
    mac.set(working_set_bytes=5 * GIB)
    assert json.loads(out(mac, *script))["max_recommended_working_set_size"] == 5 * GIB
    mac.set(metal=False)
    assert mac.run(*script).returncode == 1
    assert mac.run("osascript", "-e", "beep").returncode == 1


def test_processes_have_a_resident_set_and_a_footprint(mac: MacHost) -> None:
    mac.set(processes=PROCESSES)
    assert out(mac, "ps", "-A", "-o", "pid=", "-o", "rss=", "-o", "args=").splitlines()[0] == "    7     100 /bin/a b"
    rows = out(mac, "top", "-l", "1", "-o", "mem", "-n", "60", "-stats", "pid,mem").split("PID    MEM  \n")[1]
    assert [line.split() for line in rows.splitlines()] == [["9", "14G"], ["8", "5000M"], ["7", "9999K"]]
    assert mac.run("top").returncode == 1


def test_another_ps_is_the_real_one(mac: MacHost) -> None:
    assert "PID" in out(mac, "ps")


def test_swap_and_pressure(mac: MacHost) -> None:
    mac.set(swap_used_mb=1500.25, pressure_level=4)
    assert (
        out(mac, "sysctl", "-n", "vm.swapusage") == "total = 2048.00M  used = 1500.25M  free = 547.75M  (encrypted)\n"
    )
    assert out(mac, "sysctl", "-n", "kern.memorystatus_vm_pressure_level") == "4\n"
