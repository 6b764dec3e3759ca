"""The doctor on a simulated Mac: each finding of its provoked, one by one, and said in words."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.states import inventory as three
from doctor.patients import examine, found, only, pair
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.doctor import Examination, Expected
from kakeya_ops.errors import ConnectFailed, HostKeyRejected, ModelDirectoryError
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.remote.runner import Runner
from mac.host import MacHost


def test_a_bare_mac_needs_a_deploy_and_a_python(mac: MacHost) -> None:
    report = examine("allens")
    assert only(report, "ssh").verdict == "ok"
    assert only(report, "system").found == "macOS 15.5 on Apple M4"
    assert only(report, "service").fix == "kakeya deploy allens"
    assert only(report, "key").found.endswith("fleet.key is not there yet")
    assert only(report, "double-load").found == "loaded in neither"
    assert only(report, "clock").verdict == "ok"
    assert only(report, "other-servers").found == "none runs"
    [port] = found(report, "port")
    assert (port.verdict, port.fix) == ("failed", port.fix)
    assert not found(report, "process")


Said = dict[str, tuple[str, str]]
"""For each code the verdict, and words of what was found."""

UNWELL: dict[str, Any] = {
    "sleep_minutes": 5,
    "filevault": True,
    "firewall": True,
    "disk_free_bytes": 2**30,
    "wired_limit_mb": 14000,
    "clock_ahead_seconds": 3600,
    "gui_session": "no",
    "routes": {"169.254.10.1": "en0"},
    "processes": ((77, 9 * 2**20, 9 * 2**20, "/opt/venv/bin/python -m mlx_lm.server --port 8000"),),
}
MACS: list[tuple[dict[str, Any], Said]] = [
    (
        UNWELL,
        {
            "sleep": ("warning", "sleeps after 5 min"),
            "filevault": ("warning", "until somebody unlocks"),
            "firewall": ("warning", "the Python of the service is not among"),
            "disk": ("failed", "1.0 GiB are free"),
            "wired-limit": ("warning", "does not outlive a restart"),
            "clock": ("failed", "s ahead of this machine"),
            "session": ("warning", "once somebody has logged in"),
            "route": ("failed", "packets leave by en0"),
            "other-servers": ("warning", "mlx_lm.server (pid 77) holds 9.0 GiB"),
        },
    ),
    (
        {"sleep_minutes": 0, "routes": {"169.254.10.1": "bridge0"}},
        {
            "sleep": ("ok", "never"),
            "filevault": ("ok", "off"),
            "firewall": ("ok", "off"),
            "disk": ("ok", "are free"),
            "wired-limit": ("ok", "left to macOS"),
            "clock": ("ok", "as this machine's"),
            "session": ("ok", "logged in at the screen"),
            "route": ("ok", "by bridge0"),
        },
    ),
    (
        {"clock_ahead_seconds": -30, "gui_session": "other", "chip": "Intel(R) Core(TM) i7"},
        {
            "clock": ("warning", "s behind this machine"),
            "session": ("warning", "not logged in at the screen"),
            "system": ("failed", "Intel"),
        },
    ),
    ({"gui_session": "no", "user_domain": False}, {"session": ("failed", "no domain")}),
]


@pytest.mark.parametrize(("knobs", "said"), MACS, ids=["unwell", "well", "doubtful", "no domain"])
def test_what_a_mac_is_like_is_found(mac: MacHost, knobs: dict[str, Any], said: Said) -> None:
    mac.set(**knobs)
    report = examine("allens")
    for code, (verdict, words) in said.items():
        finding = only(report, code)
        assert (finding.verdict, words in finding.found) == (verdict, True), finding
        assert (finding.fix is None) == (verdict == "ok"), finding


def test_a_python_that_is_too_old_is_named(mac: MacHost) -> None:
    old = mac.add_tool("old-python", "#!/bin/sh\necho /opt/old/python\necho 3 9\n")
    inventory = pair()
    hosts = {**inventory.hosts, "allens": inventory.hosts["allens"].model_copy(update={"python": str(old)})}
    finding = only(examine("allens", inventory=inventory.model_copy(update={"hosts": hosts})), "python")
    assert (finding.verdict, "is Python 3.9; 3.11 or newer" in finding.found) == ("failed", True)


def test_the_key_is_looked_at_for_mode_and_content(mac: MacHost) -> None:
    key = mac.home / ".kakeya/fleet.key"
    key.parent.mkdir()
    key.write_text("ab" * 32 + "\n")
    key.chmod(0o644)
    finding = only(examine("allens"), "key")
    assert (finding.verdict, "mode 0644" in finding.found, "chmod 600" in (finding.fix or "")) == ("failed", True, True)
    key.chmod(0o600)
    assert only(examine("allens", key_digest="0" * 64), "key").found == "another key than this machine's"
    assert only(examine("allens"), "key").verdict == "ok"


def test_a_double_load_is_told_with_the_command_that_ends_it(mac: MacHost) -> None:
    plist = mac.home / "twice.plist"
    label = "dev.kakeya.pair.allens"
    import plistlib

    words = {"Label": label, "ProgramArguments": ["/bin/sleep", "60"], "LimitLoadToSessionType": ["Aqua", "Background"]}
    plist.write_bytes(plistlib.dumps(words))
    plist.chmod(0o644)
    uid = mac.state.own_uid
    for domain in ("gui", "user"):
        assert mac.launchctl("bootstrap", f"{domain}/{uid}", str(plist)).returncode == 0
    finding = only(examine("allens"), "double-load")
    assert finding.verdict == "failed"
    assert finding.fix == f"ssh allens launchctl bootout user/{uid}/{label}"
    assert only(examine("allens"), "service").verdict == "failed"


def test_a_host_that_does_not_answer_has_one_finding_and_hides_no_other(mac: MacHost) -> None:
    def open_runner(host: ResolvedHost) -> Runner:
        if host.name == "boris":
            raise ConnectFailed("boris", "Connection refused", hint="turn on Remote Login")
        raise HostKeyRejected(host.name, "unknown", "SHA256:abc", hint="ssh-keyscan …")

    report = Examination(Hosts(three(), open_runner, None), Expected(ModelDirectoryError("no model"), None), None).run(
        ["allens", "boris"]
    )
    assert [(one.host, one.code, one.verdict) for one in report.findings] == [
        ("allens", "ssh", "unknown"),
        ("allens", "host-key", "failed"),
        ("boris", "ssh", "failed"),
    ]
    assert report.findings[1].fix == "ssh-keyscan …"
    assert report.findings[2].found == "cannot connect: Connection refused"
    assert report.failed


def test_without_a_model_here_the_hosts_is_not_judged(mac: MacHost) -> None:
    finding = only(examine("allens", model=ModelDirectoryError("models/tiny does not exist")), "model")
    assert (finding.verdict, "models/tiny does not exist" in finding.found) == ("unknown", True)


def test_nothing_is_changed(mac: MacHost) -> None:
    before = {path: path.stat().st_mtime_ns for path in mac.home.rglob("*")}
    examine("allens", "head")
    assert {path: path.stat().st_mtime_ns for path in mac.home.rglob("*")} == before
    changing = {"bootstrap", "bootout", "enable", "disable", "kickstart"}
    assert not [call for call in mac.calls() if changing & set(call)]
