"""launchctl's exit codes and texts, situation by situation, as manuals and public reports have them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from mac.agents import LABEL, agent
from mac.host import MacHost

EIO_LINES = (
    "Bootstrap failed: 5: Input/output error",
    "Try re-running the command as root for richer errors.",
)


def nothing(mac: MacHost) -> None:
    """A Mac on which nothing is loaded."""


def written(**keys: Any) -> Callable[[MacHost], None]:
    return lambda mac: void(mac.write_agent(agent(**keys)))


def void(_: object) -> None:
    return None


def loaded(mac: MacHost) -> None:
    mac.preload(agent())


def disabled(mac: MacHost) -> None:
    mac.write_agent(agent())
    mac.set(disabled={LABEL: True})


def writable_by_all(mac: MacHost) -> None:
    mac.write_agent(agent(), mode=0o666)


def symlink(mac: MacHost) -> None:
    real = mac.write_agent(agent()).rename(mac.home / "elsewhere.plist")
    (mac.agents / f"{LABEL}.plist").symlink_to(real)


def leaving(mac: MacHost) -> None:
    mac.preload(agent())
    mac.set(bootout_linger_seconds=30.0)
    mac.launchctl("bootout", f"{mac.domain()}/{LABEL}")


@dataclass(frozen=True)
class Row:
    """A situation, a call in it, and what the call exits with and says. ``{…}`` stands for the host's own values."""

    name: str
    arguments: str
    status: int
    lines: tuple[str, ...] = ()
    before: Callable[[MacHost], None] = nothing
    knobs: dict[str, Any] = field(default_factory=dict)
    out: bool = False


BOOTSTRAP = "bootstrap|{gui}|{plist}"
SERVICE = "{gui}/{label}"
MISSING = 'Could not find service "{label}" in domain for user gui: {uid}'
UNRECOGNIZED = "Unrecognized target specifier. <service-target> takes a form of <domain-target>/<service-id>."
AS_ROOT = {"profile": "root"}
CATALINA = {"profile": "catalina"}
NO_GUI = {"gui_session": "no"}

ROWS = [
    Row("loads", BOOTSTRAP, 0, (), written()),
    Row("is loaded already", BOOTSTRAP, 5, EIO_LINES, loaded),
    Row("is loaded already, root", BOOTSTRAP, 37, ("{plist}: service already bootstrapped",), loaded, AS_ROOT),
    Row("is loaded already, old", BOOTSTRAP, 37, ("{plist}: service already loaded",), loaded, CATALINA),
    Row("is being torn down", BOOTSTRAP, 5, EIO_LINES, leaving),
    Row("is disabled", BOOTSTRAP, 5, EIO_LINES, disabled),
    Row(
        "is disabled, 119",
        BOOTSTRAP,
        119,
        ("Bootstrap failed: 119: Service is disabled",),
        disabled,
        {"disabled_bootstrap_status": 119},
    ),
    Row("is disabled, root", BOOTSTRAP, 119, ("{plist}: Service is disabled",), disabled, AS_ROOT),
    Row(
        "no gui session",
        BOOTSTRAP,
        125,
        ("Bootstrap failed: 125: Domain does not support specified action",),
        written(),
        NO_GUI,
    ),
    Row("no gui session, 5", BOOTSTRAP, 5, EIO_LINES, written(), {**NO_GUI, "no_gui_bootstrap_status": 5}),
    Row("no gui session, 0", BOOTSTRAP, 0, (), written(), {**NO_GUI, "no_gui_bootstrap_status": 0}),
    Row("wrong session", "bootstrap|{user}|{plist}", 5, EIO_LINES, written()),
    Row(
        "wrong session, root",
        "bootstrap|{user}|{plist}",
        134,
        ("{plist}: Service cannot load in requested session",),
        written(),
        AS_ROOT,
    ),
    Row("right session", "bootstrap|{user}|{plist}", 0, (), written(LimitLoadToSessionType="Background")),
    Row("right sessions", "bootstrap|{user}|{plist}", 0, (), written(LimitLoadToSessionType=["Aqua", "Background"])),
    Row("not for the screen", BOOTSTRAP, 5, EIO_LINES, written(LimitLoadToSessionType="Background")),
    Row("writable by all", BOOTSTRAP, 5, EIO_LINES, writable_by_all),
    Row(
        "writable by all, root",
        BOOTSTRAP,
        122,
        ("{plist}: Path had bad ownership/permissions",),
        writable_by_all,
        AS_ROOT,
    ),
    Row("symlink", BOOTSTRAP, 5, EIO_LINES, symlink),
    Row("symlink that is followed", BOOTSTRAP, 0, (), symlink, {"refuse_symlinks": False}),
    Row("nothing to run, root", BOOTSTRAP, 111, (), written(ProgramArguments=[]), AS_ROOT),
    Row("passing fault", BOOTSTRAP, 5, EIO_LINES, written(), {"eio_next_bootstraps": 1}),
    Row("home on a volume", BOOTSTRAP, 5, EIO_LINES, written(), {"home_on_volume": True}),
    Row("says 0, loads nothing", BOOTSTRAP, 0, (), written(), {"bootstrap_ok_but_absent": True}),
    Row("system without root", "bootstrap|system|{plist}", 5, EIO_LINES, written()),
    Row("no file", BOOTSTRAP, 2, ("{plist}: No such file or directory",)),
    Row("several faults, root", "bootstrap|{gui}|{plist}|{plist}2", 133, (), nothing, AS_ROOT),
    Row("bootout", f"bootout|{SERVICE}", 0, (), loaded),
    Row(
        "bootout, old", f"bootout|{SERVICE}", 36, ("Boot-out failed: 36: Operation now in progress",), loaded, CATALINA
    ),
    Row("bootout of nothing", f"bootout|{SERVICE}", 3, ("Boot-out failed: 3: No such process",)),
    Row(
        "bootout by path of nothing",
        "bootout|{gui}|{plist}",
        5,
        ("Boot-out failed: 5: Input/output error", EIO_LINES[1]),
        written(),
    ),
    Row(
        "bootout by path of no file",
        "bootout|{gui}|{plist}",
        2,
        ("{plist}: No such file or directory", "Boot-out failed: 2: No such file or directory"),
    ),
    Row("bootout by path", "bootout|{gui}|{plist}", 0, (), loaded),
    Row("bootout without gui", f"bootout|{SERVICE}", 125, (), nothing, NO_GUI),
    Row("bootout fails once", f"bootout|{SERVICE}", 5, (), loaded, {"eio_next_bootouts": 1}),
    Row("bootout --wait", f"bootout|--wait|{SERVICE}", 64, (UNRECOGNIZED,), loaded),
    Row("print", f"print|{SERVICE}", 0, ("\tstate = running",), loaded, out=True),
    Row("print nothing", f"print|{SERVICE}", 113, ("Bad request.", MISSING)),
    Row(
        "print nothing of a user",
        "print|{user}/{label}",
        113,
        ("Bad request.", 'Could not find service "{label}" in domain for uid: {uid}'),
    ),
    Row(
        "print nothing of the system",
        "print|system/{label}",
        113,
        ("Bad request.", 'Could not find service "{label}" in domain for system'),
    ),
    Row("print a domain", "print|{gui}", 0, ("{gui} = {{", "\ttype = login"), out=True),
    Row("print a domain with a slash", "print|{gui}/", 0, ("{gui} = {{",), out=True),
    Row(
        "print no domain",
        "print|gui/54321",
        112,
        ("Bad request.", "Could not find domain for user gui: 54321"),
    ),
    Row("print without gui", "print|{gui}", 125, (), nothing, NO_GUI),
    Row("print without gui, 112", "print|{gui}", 112, (), nothing, {**NO_GUI, "no_gui_status": 112}),
    Row("print before any login", "print|{user}", 112, (), nothing, {**NO_GUI, "user_domain": False}),
    Row(
        "print another's domain",
        "print|gui/{other}",
        1,
        ("Could not print domain: 1: Operation not permitted",),
        nothing,
        {"gui_session": "other"},
    ),
    Row("kickstart nothing", f"kickstart|{SERVICE}", 113, (MISSING,)),
    Row("kickstart what runs", f"kickstart|{SERVICE}", 0, (), loaded),
    Row(
        "kickstart fails once",
        f"kickstart|-k|{SERVICE}",
        5,
        ('Could not kickstart service "{label}": 5: Input/output error',),
        loaded,
        {"eio_next_kickstarts": 1},
    ),
    Row("kickstart what leaves", f"kickstart|{SERVICE}", 37, (), leaving),
    Row("kill nothing", f"kill|TERM|{SERVICE}", 113, (MISSING,)),
    Row("blame", f"blame|{SERVICE}", 0, ("speculative",), loaded, out=True),
    Row("blame nothing", f"blame|{SERVICE}", 113, (MISSING,)),
    Row("service verb with a domain", "kickstart|{gui}", 64, (UNRECOGNIZED,)),
    Row("bootstrap into a service", f"bootstrap|{SERVICE}|{{plist}}", 64, (UNRECOGNIZED,)),
    Row("too little", "bootstrap|{gui}", 64),
    Row("unknown verb", "reload", 1, ("Unrecognized subcommand: reload",)),
    Row("no verb", "", 0),
    Row("load what is loaded", "load|{plist}", 0, ("Load failed: 5: Input/output error",), written()),
    Row("unload nothing", "unload|{plist}", 0, ("Unload failed: 5: Input/output error",), written()),
    Row("list from outside", "list|{label}", 113, (), loaded),
    Row("list", "list", 0, ("PID\tStatus\tLabel",), loaded, out=True),
    Row("error", "error|113", 0, ("113: Could not find specified service",), out=True),
    Row("managername", "managername", 0, ("Background",), out=True),
    Row("managername at the screen", "managername", 0, ("Aqua",), nothing, {"manager": "Aqua"}, out=True),
    Row("asuser", "asuser|501|true", 1),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_launchctl_fails_as_reported(mac: MacHost, row: Row) -> None:
    values = {
        "gui": mac.domain(),
        "user": mac.domain("user"),
        "uid": os.getuid(),
        "other": os.getuid() + 1,
        "label": LABEL,
        "plist": str(mac.agents / f"{LABEL}.plist"),
    }
    row.before(mac)
    mac.set(**row.knobs)
    done = mac.launchctl(*(word for word in row.arguments.format(**values).split("|") if word))
    assert done.returncode == row.status, done.stderr
    lines = (done.stdout if row.out else done.stderr).split("\n")
    assert [line.format(**values) for line in row.lines if line.format(**values) not in lines] == []
    if not row.lines and not row.out:
        assert done.stderr == "" or row.status


def test_an_old_system_gives_no_hint_about_root(mac: MacHost) -> None:
    mac.set(profile="catalina", eio_next_bootstraps=1)
    done = mac.launchctl("bootstrap", mac.domain(), str(mac.write_agent(agent())))
    assert (done.returncode, done.stderr) == (5, "Bootstrap failed: 5: Input/output error\n")


@pytest.mark.parametrize(("profile", "words"), [("modern", "disabled enabled"), ("catalina", "true false")])
def test_disabled_labels_are_listed_in_the_words_of_the_time(mac: MacHost, profile: str, words: str) -> None:
    mac.set(profile=profile)
    mac.launchctl("disable", f"{mac.domain()}/dev.a")
    mac.launchctl("enable", f"{mac.domain()}/dev.b")
    text = mac.launchctl("print-disabled", mac.domain()).stdout
    no, yes = words.split()
    assert text.startswith(f'\tdisabled services = {{\n\t\t"dev.a" => {no}\n\t\t"dev.b" => {yes}\n\t}}\n')


def test_enabling_makes_a_label_loadable(mac: MacHost) -> None:
    disabled(mac)
    path = str(mac.agents / f"{LABEL}.plist")
    assert mac.launchctl("enable", f"{mac.domain()}/{LABEL}").returncode == 0
    assert mac.launchctl("bootstrap", mac.domain(), path).returncode == 0


def test_unloading_for_good_disables(mac: MacHost) -> None:
    mac.preload(agent(), "user")
    mac.launchctl("unload", "-w", str(mac.agents / f"{LABEL}.plist"))
    assert mac.state.disabled == {LABEL: True}


def test_a_label_can_be_loaded_twice(mac: MacHost) -> None:
    mac.preload(agent(), "gui", "user")
    jobs = [mac.job(LABEL, kind) for kind in ("gui", "user")]
    assert len({job.pid for job in jobs if job}) == 2


def test_list_sees_the_callers_domain_alone(mac: MacHost) -> None:
    mac.preload(agent(), "user")
    job = mac.job(LABEL, "user")
    assert job is not None
    assert mac.launchctl("list").stdout == f"PID\tStatus\tLabel\n{job.pid}\t0\t{LABEL}\n"
    assert f'"PID" = {job.pid};' in mac.launchctl("list", LABEL).stdout


def test_a_call_can_be_slow(mac: MacHost) -> None:
    mac.set(latency_seconds=0.2)
    began = time.monotonic()
    mac.launchctl("managername")
    assert time.monotonic() - began >= 0.2


def test_every_call_is_noted(mac: MacHost) -> None:
    mac.launchctl("print", "gui/ü'\"\n")
    mac.run("sw_vers", "-productVersion")
    assert mac.calls() == [["launchctl", "print", "gui/ü'\"\n"], ["sw_vers", "-productVersion"]]
    assert mac.calls("sw_vers") == [["sw_vers", "-productVersion"]]
