"""What a simulated Mac is like and what its launchd holds: one JSON file with a lock, shared by all its programs.

No part of Kakeya, so that the simulator does not share a mistake with what it tests. What launchd does is taken from
Apple's manual pages and from public reports of measured behaviour; where these differ, there is a knob.

Its programs are called often and must start in milliseconds, most of which an interpreter spends on imports: so there
is no dataclass here, no pathlib and, for readers, no json.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

GIB = 2**30


class Record:
    """Values by name: those that a class annotates, with its defaults."""

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self.__annotations__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        for name in self.__annotations__:
            default = getattr(type(self), name, None)
            setattr(self, name, values.get(name, default.copy() if isinstance(default, dict) else default))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Job(Record):
    """One label in one domain. `plist` is what the file said at bootstrap; `order` is what launchctl asks for."""

    label: str
    domain: str
    path: str
    plist: dict[str, Any]
    state: str = "not running"
    job_state: str = "exited"
    pid: int | None = None
    supervisor: int = 0
    runs: int = 0
    last_exit: str = "(never exited)"
    last_signal: str | None = None
    last_exit_reason: str | None = None
    immediate_reason: str = "speculative"
    order: str | None = None

    @property
    def arguments(self) -> list[str]:
        """What is executed."""
        return self.plist.get("ProgramArguments") or [self.plist["Program"]]

    @property
    def leaving(self) -> bool:
        """True from ``bootout`` on."""
        return self.state == "SIGTERMed"


class MacState(Record):
    """Knobs first, then what happened. Tests change it with `MacHost.set`, programs with `Store.change`."""

    profile: str = "modern"
    """modern: nearly every failure of bootstrap is 5; catalina: codes and texts of 10.15; root: real codes."""

    # Who is there.
    uid: int | None = None
    """What ``id -u`` says and the domains are named after; None: that of the tests' process."""
    user: str = "fluffy"
    gui_session: str = "yes"
    """yes: the user is logged in at the screen; no: nobody; other: another user is."""
    user_domain: bool = True
    console_uid: int | None = None
    """Owner of ``/dev/console``; None: whoever has the GUI session, otherwise root."""
    manager: str = "Background"
    """What ``managername`` says: Background over SSH, Aqua at the screen."""
    home_on_volume: bool = False
    """A home on an external disk: ``gui`` refuses its agents with 5."""

    # What launchctl does wrong.
    no_gui_status: int = 125
    """Exit code of calls about the gui domain of a known user without a GUI session: 125 or 112."""
    no_gui_bootstrap_status: int = 125
    """The same for bootstrap: 125, 5, or 0 while nothing is loaded."""
    eio_next_bootstraps: int = 0
    eio_next_bootouts: int = 0
    eio_next_kickstarts: int = 0
    bootstrap_ok_but_not_started: bool = False
    bootstrap_ok_but_absent: bool = False
    disabled_bootstrap_status: int = 5
    """Exit code of bootstrap of a disabled label for a user other than root: 5 or 119."""
    kickstart_kill_unregisters: bool = False
    refuse_symlinks: bool = True
    bootout_disables: bool = False
    hang: tuple[str, ...] = ()
    """Verbs that never answer."""
    latency_seconds: float = 0.0
    """How long each call of launchctl takes."""

    # How jobs live.
    throttle_scale: float = 0.02
    """Real seconds for each second of ThrottleInterval."""
    exit_timeout_scale: float = 1.0
    """Real seconds for each second of ExitTimeOut."""
    bootout_linger_seconds: float = 0.1
    """How long a label stays after its process has gone."""
    bootout_blocks: bool = False
    """Whether bootout answers only when the label is free, instead of at once."""
    respawn_during_bootout: bool = False
    """KeepAlive starts the job once more while it is being unloaded, and nobody stops that process."""
    spawn_fail: str | None = None
    """78: no process, no log, EX_CONFIG; codesigning: the process is killed at once."""
    job_path: str = "/usr/bin:/bin:/usr/sbin:/sbin"
    print_noise: bool = True
    """Whether print shows nested states, coalitions and other things that parsers stumble over."""

    # The machine.
    macos: str = "15.5"
    build: str = "24F74"
    chip: str = "Apple M4"
    model: str = "Mac16,10"
    memory_bytes: int = 16 * GIB
    free_memory_bytes: int = 9 * GIB
    disk_total_bytes: int = 460 * GIB
    disk_free_bytes: int = 200 * GIB
    wired_limit_mb: int = 0
    working_set_bytes: int | None = None
    """What Metal recommends; None: the limit that is set, otherwise two thirds of the memory."""
    metal: bool = True
    """Whether osascript finds a GPU."""
    swap_used_mb: float = 0.0
    compressor_bytes: int = 0
    pressure_level: int = 1
    """1 normal, 2 warning, 4 critical."""
    processes: tuple[tuple[int, int, int, str], ...] = (
        (1, 24 * 1024, 18 * 1024, "/sbin/launchd"),
        (388, 310 * 1024, 402 * 1024, "/System/Library/CoreServices/WindowServer -daemon"),
    )
    """Process id, resident set and footprint in KiB, command line."""
    sysctl: dict[str, str] = {}  # noqa: RUF012 (each gets a copy)
    """Further names for sysctl, or other values."""
    sleep_minutes: int = 1
    on_ac_power: bool = True
    filevault: bool = False
    firewall: bool = False
    firewall_allows: tuple[str, ...] = ()
    """Programs that the application firewall lets others connect to."""
    clock_ahead_seconds: int = 0
    mtu: dict[str, int] = {}  # noqa: RUF012 (each gets a copy)
    """Of interfaces by name, where it is not 1500."""
    bridge_address: str = "169.254.10.2"
    lan_address: str | None = "192.0.2.10"
    """None: Wi-Fi and Ethernet are off, only the cable leads to another Mac."""
    routes: dict[str, str] = {}  # noqa: RUF012 (each gets a copy)
    """The interface by which packets to an address leave; by default loopback's for 127/8, or else en0."""

    # What happened.
    disabled: dict[str, bool] = {}  # noqa: RUF012 (each gets a copy)
    jobs: dict[str, dict[str, Job]] = {}  # noqa: RUF012 (each gets a copy)
    assertions: dict[str, str] = {}  # noqa: RUF012 (each gets a copy)

    @property
    def own_uid(self) -> int:
        return os.getuid() if self.uid is None else self.uid

    @property
    def gui_uid(self) -> int | None:
        """Who is logged in at the screen."""
        return {"yes": self.own_uid, "other": self.own_uid + 1}.get(self.gui_session)

    @property
    def screen_uid(self) -> int:
        """Who owns ``/dev/console``."""
        return (self.gui_uid or 0) if self.console_uid is None else self.console_uid

    def job(self, domain: str, label: str) -> Job | None:
        return self.jobs.get(domain, {}).get(label)

    def add(self, job: Job) -> None:
        self.jobs.setdefault(job.domain, {})[job.label] = job

    def remove(self, job: Job) -> None:
        self.jobs.get(job.domain, {}).pop(job.label, None)


_JSON_WORDS = {"true": True, "false": False, "null": None, "__builtins__": {}}


class Store:
    """The folder of a simulated Mac."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.bin = f"{root}/bin"
        self.home = f"{root}/home"
        self.temporary = f"{root}/tmp"
        self.file = f"{root}/state.json"
        self.calls = f"{root}/calls.txt"
        """One line for each program that was called: name and arguments as a Python list."""
        self.crashes = f"{root}/crashes.txt"
        """What supervisors died of; there is no such file in a good run."""

    def read(self) -> MacState:
        with open(self.file, encoding="utf-8") as file:
            # JSON of plain values is an expression, and the file is the simulator's own.
            values = eval(file.read(), dict(_JSON_WORDS))
        for jobs in values["jobs"].values():
            jobs.update({label: Job(**job) for label, job in jobs.items()})
        return MacState(**values)

    def write(self, state: MacState) -> None:
        import json

        def plain(value: object) -> object:
            return vars(value) if isinstance(value, Record) else repr(value)

        fresh = f"{self.file}.{os.getpid()}"
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(json.dumps(vars(state), default=plain, ensure_ascii=False))
        os.replace(fresh, self.file)

    def change(self) -> Change:
        """The state, written when the block ends, also by an error; nobody else changes it meanwhile."""
        return Change(self)

    def note_call(self, words: list[str]) -> None:
        _append(self.calls, repr(words))

    def note_crash(self, text: str) -> None:
        """Keep what a supervisor died of: it has nobody to tell."""
        _append(self.crashes, text)


class Change:
    """See `Store.change`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> MacState:
        self._descriptor = os.open(f"{self._store.root}/lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._state = self._store.read()
        return self._state

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.write(self._state)
        # Said aloud: a process forked meanwhile holds the same lock until it is unlocked or all have closed it.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def _append(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, text.encode(errors="surrogateescape") + b"\n")
    os.close(descriptor)
