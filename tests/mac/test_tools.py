"""The other programs of a Mac, where they differ from those of the same name elsewhere."""

from __future__ import annotations

import hashlib
import os
import socket
import sys

import pytest

from mac.host import MacHost
from mac.state import GIB


def out(mac: MacHost, *argv: str) -> str:
    done = mac.run(*argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_machine_is_described_by_its_knobs(mac: MacHost) -> None:
    mac.set(macos="26.1", chip="Apple M4 Pro", memory_bytes=24 * GIB, sysctl={"hw.extra": "7"})
    assert out(mac, "sw_vers", "-productVersion") == "26.1\n"
    assert out(mac, "sw_vers").splitlines()[0] == "ProductName:\t\tmacOS"
    names = ("hw.memsize", "machdep.cpu.brand_string", "hw.extra")
    assert out(mac, "sysctl", "-n", *names) == f"{24 * GIB}\nApple M4 Pro\n7\n"
    assert out(mac, "sysctl", "hw.extra") == "hw.extra: 7\n"
    assert out(mac, "uname", "-sm") == "Darwin arm64\n"
    unknown = mac.run("sysctl", "-n", "hw.nothing")
    assert (unknown.returncode, unknown.stderr) == (1, "sysctl: unknown oid 'hw.nothing'\n")


def test_memory_adds_up(mac: MacHost) -> None:
    mac.set(memory_bytes=16 * GIB, free_memory_bytes=4 * GIB)
    head, *lines = out(mac, "vm_stat").splitlines()
    assert head.endswith("(page size of 16384 bytes)")
    counts = {name: int(count.strip(" .")) for name, count in (line.rsplit(":", 1) for line in lines)}
    free = sum(counts[f"Pages {kind}"] for kind in ("free", "inactive", "speculative"))
    used = sum(counts[f"Pages {kind}"] for kind in ("active", "wired down", "occupied by compressor"))
    assert (free * 16384, used * 16384) == (4 * GIB, 12 * GIB)
    assert out(mac, "memory_pressure", "-Q").endswith("free percentage: 25%\n")


def test_stat_takes_formats_where_gnu_takes_file_systems(mac: MacHost) -> None:
    path = mac.home / "a file"
    path.write_bytes(b"12345")
    path.chmod(0o640)
    (mac.home / "link").symlink_to(path)
    assert out(mac, "stat", "-f", "%Lp %z %HT %u %N%%", str(path)) == f"640 5 Regular File {os.getuid()} {path}%\n"
    assert out(mac, "stat", "-f%m", str(path)) == f"{int(path.stat().st_mtime)}\n"
    assert out(mac, "stat", "-f", "%HT %Y", str(mac.home / "link")) == f"Symbolic Link {path}\n"
    assert out(mac, "stat", "-L", "-f", "%HT", str(mac.home / "link")) == "Regular File\n"
    assert out(mac, "stat", "-f", "%Sp", str(path)) == "-rw-r-----\n"
    missing = mac.run("stat", "-f", "%u", "/nowhere")
    assert (missing.returncode, missing.stderr) == (1, "stat: /nowhere: stat: No such file or directory\n")
    assert mac.run("stat", "-c", "%u", str(path)).stderr.startswith("stat: illegal option -- c\n")


@pytest.mark.parametrize(("session", "offset"), [("yes", 0), ("other", 1)])
def test_the_console_belongs_to_whoever_is_at_the_screen(mac: MacHost, session: str, offset: int) -> None:
    mac.set(uid=501, gui_session=session)
    assert out(mac, "stat", "-f", "%u", "/dev/console") == f"{501 + offset}\n"


def test_the_console_is_roots_or_what_a_test_says(mac: MacHost) -> None:
    mac.set(uid=501, gui_session="no")
    assert out(mac, "stat", "-f", "%u %Su", "/dev/console") == "0 root\n"
    mac.set(console_uid=700)
    assert out(mac, "stat", "-f", "%u", "/dev/console") == "700\n"


def test_the_user_may_be_another_than_that_of_the_tests(mac: MacHost) -> None:
    assert out(mac, "id", "-u") == f"{os.getuid()}\n"
    mac.set(uid=501)
    assert out(mac, "id", "-u") == "501\n"
    assert out(mac, "id", "-un") == "fluffy\n"
    assert out(mac, "launchctl", "manageruid") == "501\n"
    assert out(mac, "stat", "-f", "%u %Su", str(mac.home)) == "501 fluffy\n"


def test_plutil_checks_syntax_alone(mac: MacHost) -> None:
    path = mac.write_agent({"Label": "dev.kakeya.lint"})
    assert out(mac, "plutil", "-lint", str(path)) == f"{path}: OK\n"
    assert out(mac, "plutil", "-convert", "json", "-o", "-", str(path)) == '{"Label": "dev.kakeya.lint"}'
    assert out(mac, "plutil", "-extract", "Label", "raw", str(path)) == "dev.kakeya.lint\n"
    path.write_text("<plist><string>a & b</string></plist>")
    broken = mac.run("plutil", "-lint", str(path))
    assert broken.returncode == 1
    assert broken.stderr.startswith(f"{path}: ")


def test_df_tells_the_free_disk(mac: MacHost) -> None:
    mac.set(disk_free_bytes=3 * GIB)
    fields = out(mac, "df", "-Pk", "/").splitlines()[1].split()
    assert int(fields[3]) * 1024 == 3 * GIB
    assert out(mac, "df", "-g", "/").splitlines()[1].split()[3] == "3"
    assert mac.run("df", "-k", "/nowhere").returncode == 1


def test_settings_can_be_read_and_not_changed(mac: MacHost) -> None:
    mac.set(sleep_minutes=0, firewall=True)
    assert " sleep                0\n" in out(mac, "pmset", "-g")
    assert out(mac, "socketfilterfw", "--getglobalstate").startswith("Firewall is enabled.")
    assert mac.run("pmset", "-a", "sleep", "0").returncode != 0
    assert mac.run("socketfilterfw", "--add", "/bin/sh").returncode != 0


def test_interfaces_have_a_bridge(mac: MacHost) -> None:
    assert "inet 169.254.10.2" in out(mac, "ifconfig", "bridge0")
    assert out(mac, "ifconfig").count("flags=") == 3
    assert mac.run("ifconfig", "en9").returncode == 1


def test_shasum(mac: MacHost) -> None:
    path = mac.home / "file"
    path.write_bytes(b"content")
    assert out(mac, "shasum", "-a", "256", str(path)) == f"{hashlib.sha256(b'content').hexdigest()}  {path}\n"
    assert mac.run("shasum", "-a", "256", "/nowhere").returncode == 1


@pytest.mark.parametrize(("program", "status"), [("/nowhere", 127), ("/etc/passwd", 126)])
def test_caffeinate_says_what_cannot_be_run(mac: MacHost, program: str, status: int) -> None:
    assert mac.run("caffeinate", "-i", program).returncode == status


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac has its own")
def test_connections_are_shown_as_of_one_process(mac: MacHost) -> None:
    argv = ("lsof", "-nP", "-a", "-iTCP", "-sTCP:ESTABLISHED", "-Fn", "-p", str(os.getpid()))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        lines = out(mac, *argv).splitlines()
        ours, theirs = (f"{address}:{port}" for address, port in (client.getsockname(), client.getpeername()))
    assert lines[0] == f"p{os.getpid()}"
    assert f"n{ours}->{theirs}" in lines
    assert mac.run(*argv[:-1], "1").returncode == 1
    assert mac.run("lsof", "-i").returncode == 1
