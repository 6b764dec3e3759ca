"""launchd's part in one job's life: a process that starts it, restarts it, stops it and forgets it."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from mac.state import Job, MacState, Store

EX_CONFIG = 78
DEFAULT_THROTTLE_SECONDS = 10
DEFAULT_EXIT_TIMEOUT_SECONDS = 5
LOOK_SECONDS = 1.0
MAC_FOLDERS = ("/bin", "/usr/bin", "/sbin", "/usr/sbin")

SIGNAL_NAMES = {signal.SIGTERM: "Terminated: 15", signal.SIGKILL: "Killed: 9", signal.SIGINT: "Interrupt: 2"}


def fork_supervisor(store: Store, domain: str, label: str, *, starts: bool) -> int:
    """Begin to look after the job, in a process of its own; its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.closerange(3, 256)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        os.chdir("/")
        with store.change():
            pass  # whoever forks holds the lock until the job is written
        _Supervisor(store, domain, label).run(starts=starts)
    except BaseException:  # noqa: BLE001 (the edge of a process that nobody listens to)
        store.note_crash(traceback.format_exc())
    finally:
        os._exit(0)


class _Supervisor:
    def __init__(self, store: Store, domain: str, label: str) -> None:
        self._store = store
        self._domain = domain
        self._label = label
        self._pid: int | None = None
        self._started_at = 0.0
        self._kill_at: float | None = None
        self._respawn_at: float | None = None
        self._gone_at: float | None = None
        self._vanish_at: float | None = None
        self._leaving = False
        self._again = False
        self._done = False
        self._wake, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)

    def run(self, *, starts: bool) -> None:
        if starts:
            self._start("speculative")
        while not self._done:
            self._wait()
            if not os.path.exists(self._store.file):
                self._kill()
                return
            self._reap()
            self._obey()
            self._act()

    def _wait(self) -> None:
        deadlines = [at for at in (self._kill_at, self._respawn_at, self._vanish_at) if at is not None]
        left = min([at - time.monotonic() for at in deadlines], default=LOOK_SECONDS)
        ready, _, _ = select.select([self._wake], [], [], min(max(left, 0), LOOK_SECONDS))
        if ready:
            os.read(self._wake, 512)

    def _note(self, change: Callable[[Job, MacState], None]) -> None:
        with self._store.change() as mac:
            job = mac.job(self._domain, self._label)
            if job is not None:
                change(job, mac)

    def _read(self) -> tuple[MacState, Job]:
        mac = self._store.read()
        job = mac.job(self._domain, self._label)
        assert job is not None
        return mac, job

    # What launchctl asks for.

    def _obey(self) -> None:
        _, job = self._read()
        if job.order is None:
            return
        order = job.order

        def clear(job: Job, _: MacState) -> None:
            job.order = None

        self._note(clear)
        if order == "out":
            self._leaving = True
            self._respawn_at = None
            self._terminate()
        elif self._pid is None:
            self._start("non-ipc demand")
        elif order == "restart":
            self._again = True
            self._terminate()

    def _terminate(self) -> None:
        if self._pid is None:
            return
        mac, job = self._read()
        limit = job.plist.get("ExitTimeOut", DEFAULT_EXIT_TIMEOUT_SECONDS)
        self._kill_at = time.monotonic() + limit * mac.exit_timeout_scale if limit else None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)

    def _kill(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    # What time asks for.

    def _act(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._kill()
        if self._leaving and self._pid is None:
            self._leave(now)
        elif self._respawn_at is not None and now >= self._respawn_at:
            self._start("inefficient")

    def _leave(self, now: float) -> None:
        mac, job = self._read()
        if self._gone_at is None:
            self._gone_at = now
            if mac.respawn_during_bootout:
                _spawn(self._store, mac, job)
        self._vanish_at = self._gone_at + mac.bootout_linger_seconds
        if now >= self._vanish_at:
            self._note(lambda job, mac: mac.remove(job))
            self._done = True

    # Starting and ending.

    def _start(self, reason: str) -> None:
        mac, job = self._read()
        self._respawn_at = None
        self._started_at = time.monotonic()
        if mac.spawn_fail is None:
            self._pid = _spawn(self._store, mac, job)

        def started(job: Job, _: MacState) -> None:
            job.runs += 1
            job.immediate_reason = reason
            if self._pid is not None:
                # bootout may have been faster than this note.
                job.state = job.state if job.leaving else "running"
                job.pid, job.job_state = self._pid, "running"

        self._note(started)
        if mac.spawn_fail is not None:
            self._ended(EX_CONFIG << 8 if mac.spawn_fail == "78" else signal.SIGKILL, mac.spawn_fail)

    def _reap(self) -> None:
        if self._pid is None:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            _, job = self._read()
            if not job.plist.get("AbandonProcessGroup"):
                self._kill()
            self._pid = self._kill_at = None
            self._ended(status, None)

    def _ended(self, status: int, spawn_fail: str | None) -> None:
        mac, job = self._read()
        again = not self._leaving and (self._again or _keeps_alive(job.plist.get("KeepAlive", False), status))
        if again:
            throttle = job.plist.get("ThrottleInterval", DEFAULT_THROTTLE_SECONDS) * mac.throttle_scale
            self._respawn_at = 0.0 if self._again else self._started_at + throttle
        self._again = False

        def ended(job: Job, _: MacState) -> None:
            job.pid = None
            job.job_state = "spawn failed" if spawn_fail else "exited"
            if not job.leaving:
                job.state = "spawn scheduled" if again else "not running"
            _describe_end(job, status)
            job.last_exit_reason = "OS_REASON_CODESIGNING" if spawn_fail == "codesigning" else None

        self._note(ended)


def _keeps_alive(keep_alive: bool | dict[str, Any], status: int) -> bool:
    if isinstance(keep_alive, bool):
        return keep_alive
    met = {"SuccessfulExit": status == 0, "Crashed": os.WIFSIGNALED(status)}
    return any(keep_alive[key] == met[key] for key in met if key in keep_alive)


def _describe_end(job: Job, status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        job.last_signal = SIGNAL_NAMES.get(signal.Signals(number), f"Signal {number}: {number}")
        return
    code = os.WEXITSTATUS(status)
    job.last_signal = None
    job.last_exit = f"{code}: EX_CONFIG" if code == EX_CONFIG else str(code)


def _spawn(store: Store, mac: MacState, job: Job) -> int:
    environment = job_environment(store, mac, job)
    arguments = job.arguments
    program = _find_program(store, job.plist.get("Program") or arguments[0])
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(job.plist, program, arguments, environment)
    finally:
        # launchd reports whatever keeps a job from beginning as a faulty configuration, and nobody logs it.
        os._exit(EX_CONFIG)


def _become(plist: dict[str, Any], program: str, arguments: list[str], environment: dict[str, str]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    umask = plist.get("Umask", 0o022)
    os.umask(int(umask, 8) if isinstance(umask, str) else umask)
    for descriptor, key in ((1, "StandardOutPath"), (2, "StandardErrorPath")):
        if key in plist:
            Path(plist[key]).parent.mkdir(parents=True, exist_ok=True)
            opened = os.open(plist[key], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(opened, descriptor)
            os.close(opened)
    _limit_files(plist.get("SoftResourceLimits", {}))
    os.chdir(plist.get("WorkingDirectory", "/"))
    os.closerange(3, 256)
    os.execve(program, arguments, environment)


def _limit_files(limits: dict[str, int]) -> None:
    if "NumberOfFiles" in limits:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = limits["NumberOfFiles"]
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def _find_program(store: Store, program: str) -> str:
    """`program`, or its stand-in where it is a program of macOS; only the standard path is searched."""
    folder, _, name = program.rpartition("/")
    stand_in = f"{store.bin}/{name}"
    if os.path.exists(stand_in) and (folder in MAC_FOLDERS or not folder):
        return stand_in
    if "/" in program:
        return program
    return next((found for folder in MAC_FOLDERS if os.path.exists(found := f"{folder}/{program}")), program)


def job_environment(store: Store, mac: MacState, job: Job) -> dict[str, str]:
    """The whole environment of a job: launchd's few variables, and the strings among its own."""
    own = job.plist.get("EnvironmentVariables", {})
    return {
        "PATH": mac.job_path,
        "HOME": str(store.home),
        "USER": mac.user,
        "LOGNAME": mac.user,
        "SHELL": "/bin/zsh",
        "TMPDIR": f"{store.temporary}/",
        "SSH_AUTH_SOCK": "/private/tmp/com.apple.launchd.0/Listeners",
        "XPC_FLAGS": "0x0",
        "__CF_USER_TEXT_ENCODING": f"0x{mac.own_uid:X}:0x0:0x0",
        **{name: value for name, value in own.items() if isinstance(value, str)},
        "XPC_SERVICE_NAME": job.label,
    }
