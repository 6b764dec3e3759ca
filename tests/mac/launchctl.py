"""The verbs of launchctl. A call is one function; a failure is raised with its code and its lines."""

from __future__ import annotations

import os
import sys
import time

from mac.codes import EALREADY, EINPROGRESS, EIO, ENOENT, EPERM, ESRCH, ROOT_HINT, USAGE, Failure, error
from mac.domains import Target, absence, forbidden, parse_target, require_domain, require_service
from mac.printing import disabled_text, domain_text, list_service_text, list_text, service_text
from mac.state import Job, MacState, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOAD_HINT = "Try running `launchctl bootstrap` as root for richer errors."
LOAD_WARNING = "Warning: Expecting a LaunchDaemons path since the command was ran as root. Got LaunchAgents instead."
START_SECONDS = 10.0


def run(store: Store, arguments: list[str]) -> str:
    """What the call writes to stdout; `Failure` where it fails."""
    if not arguments:
        return "Usage: launchctl <subcommand> ...\n"
    verb, *rest = arguments
    _delay(store, verb)
    if verb not in VERBS:
        raise Failure(1, f"Unrecognized subcommand: {verb}", "Usage: launchctl <subcommand> ...")
    return VERBS[verb](store, rest)


def _delay(store: Store, verb: str) -> None:
    while verb in store.read().hang:
        time.sleep(0.05)
    time.sleep(store.read().latency_seconds)


def _demand(arguments: list[str], least: int) -> None:
    if len(arguments) < least:
        raise Failure(USAGE, "Usage: launchctl <subcommand> <target> ...")


def _wake(job: Job) -> None:
    import signal

    os.kill(job.supervisor, signal.SIGUSR1)


def _bootstrap(store: Store, arguments: list[str]) -> str:
    from mac.bootstrap import bootstrap

    _demand(arguments, 2)
    target = parse_target(arguments[0], service=False)
    with store.change() as mac:
        bootstrap(store, mac, target, arguments[1:])
    return ""


def _bootout(store: Store, arguments: list[str]) -> str:
    _demand(arguments, 1)
    target = parse_target(arguments[0], service=None)
    with store.change() as mac:
        jobs = _jobs_to_boot_out(mac, target, arguments[1:])
        busy = [_boot_out(mac, job) for job in jobs]
    for job in jobs:
        _wake(job)
    while mac.bootout_blocks and any(store.read().job(job.domain, job.label) for job in jobs):
        time.sleep(0.02)
    if any(busy) and mac.profile == "catalina":
        raise Failure(EINPROGRESS, f"Boot-out failed: {error(EINPROGRESS)}")
    return ""


def _jobs_to_boot_out(mac: MacState, target: Target, paths: list[str]) -> list[Job]:
    status = absence(mac, target) or (EPERM if forbidden(mac, target) else None)
    if status is None and mac.eio_next_bootouts:
        mac.eio_next_bootouts -= 1
        status = EIO
    if status is not None:
        raise _bootout_failure(mac, status)
    loaded = mac.jobs.get(target.domain, {})
    if target.label is not None:
        if target.label not in loaded:
            raise _bootout_failure(mac, ESRCH)
        return [loaded[target.label]]
    for path in paths:
        if not os.path.exists(path):
            raise _bootout_failure(mac, ENOENT, f"{path}: No such file or directory")
    wanted = [os.path.abspath(path) for path in paths]
    jobs = [job for job in loaded.values() if not paths or job.path in wanted]
    if paths and not jobs:
        raise _bootout_failure(mac, EIO)
    return jobs


def _bootout_failure(mac: MacState, status: int, *lines: str) -> Failure:
    hint = [ROOT_HINT] if status == EIO and mac.profile == "modern" else []
    return Failure(status, *lines, f"Boot-out failed: {error(status)}", *hint)


def _boot_out(mac: MacState, job: Job) -> bool:
    """Ask the supervisor to unload the job; whether that takes a while."""
    job.order = "out"
    job.state = "SIGTERMed"
    if mac.bootout_disables:
        mac.disabled[job.label] = True
    return job.pid is not None


def _switch(disabled: bool) -> Callable[[Store, list[str]], str]:
    def call(store: Store, arguments: list[str]) -> str:
        _demand(arguments, 1)
        target = parse_target(arguments[0], service=True)
        with store.change() as mac:
            if target.kind != "gui" or target.number != mac.own_uid:
                require_domain(mac, target)
            mac.disabled[target.label or ""] = disabled
        return ""

    return call


def _print(store: Store, arguments: list[str]) -> str:
    _demand(arguments, 1)
    mac, target = store.read(), parse_target(arguments[0], service=None)
    require_domain(mac, target)
    if target.label is None:
        return domain_text(mac, target.domain)
    try:
        return service_text(mac, require_service(mac, target))
    except Failure as failure:
        raise Failure(failure.status, "Bad request.", *failure.lines) from None


def _print_disabled(store: Store, arguments: list[str]) -> str:
    _demand(arguments, 1)
    mac, target = store.read(), parse_target(arguments[0], service=False)
    require_domain(mac, target)
    return disabled_text(mac)


def _kickstart(store: Store, arguments: list[str]) -> str:
    flags = "".join(argument[1:] for argument in arguments if argument.startswith("-"))
    targets = [argument for argument in arguments if not argument.startswith("-")]
    _demand(targets, 1)
    target = parse_target(targets[0], service=True)
    with store.change() as mac:
        job = require_service(mac, target)
        _check_kickstart(mac, job)
        job.order = "out" if mac.kickstart_kill_unregisters and "k" in flags else _kick_order(job, flags)
    _wake(job)
    return f"{_await_pid(store, job)}\n" if "p" in flags else ""


def _kick_order(job: Job, flags: str) -> str | None:
    return "restart" if "k" in flags else None if job.pid else "start"


def _check_kickstart(mac: MacState, job: Job) -> None:
    if mac.eio_next_kickstarts:
        mac.eio_next_kickstarts -= 1
        raise Failure(EIO, f'Could not kickstart service "{job.label}": {error(EIO)}')
    if job.leaving:
        raise Failure(EALREADY)


def _await_pid(store: Store, job: Job) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = store.read().job(job.domain, job.label)
        if found and found.pid and (job.order is None or found.runs > job.runs):
            return found.pid
        time.sleep(0.01)
    raise Failure(EIO, f'Could not kickstart service "{job.label}": {error(EIO)}')


def _kill(store: Store, arguments: list[str]) -> str:
    import signal

    _demand(arguments, 2)
    name = arguments[0].upper()
    number = int(name) if name.isdigit() else signal.Signals[f"SIG{name.removeprefix('SIG')}"]
    job = require_service(store.read(), parse_target(arguments[1], service=True))
    if job.pid is None:
        raise Failure(ESRCH, "No process to signal.")
    os.kill(job.pid, number)
    return ""


def _blame(store: Store, arguments: list[str]) -> str:
    _demand(arguments, 1)
    job = require_service(store.read(), parse_target(arguments[0], service=True))
    if job.pid is None:
        raise Failure(ESRCH, "No process to signal.")
    return f"{job.immediate_reason}\n"


def _callers_domain(mac: MacState) -> Target:
    return Target("gui" if mac.manager == "Aqua" else "user", mac.own_uid)


def _load(store: Store, arguments: list[str]) -> str:
    from mac.bootstrap import load

    paths = [argument for argument in arguments if not argument.startswith("-")]
    _demand(paths, 1)
    with store.change() as mac:
        for path in map(os.path.abspath, paths):
            if "-w" in arguments:
                mac.disabled[os.path.basename(path).removesuffix(".plist")] = False
            if load(store, mac, _callers_domain(mac), path):
                sys.stderr.write(f"Load failed: {error(EIO)}\n{LOAD_HINT}\n")
            if mac.profile == "root" and "LaunchAgents" in path:
                sys.stderr.write(f"{LOAD_WARNING}\n")
    return ""


def _unload(store: Store, arguments: list[str]) -> str:
    paths = [os.path.abspath(argument) for argument in arguments if not argument.startswith("-")]
    _demand(paths, 1)
    with store.change() as mac:
        loaded = mac.jobs.get(_callers_domain(mac).domain, {}).values()
        jobs = [job for job in loaded if job.path in paths]
        for job in jobs:
            _boot_out(mac, job)
        if "-w" in arguments:
            mac.disabled.update({os.path.basename(path).removesuffix(".plist"): True for path in paths})
    for job in jobs:
        _wake(job)
    if len(jobs) < len(paths):
        sys.stderr.write(f"Unload failed: {error(EIO)}\n{LOAD_HINT}\n")
    return ""


def _remove(store: Store, arguments: list[str]) -> str:
    _demand(arguments, 1)
    return _bootout(store, [f"{_callers_domain(store.read()).domain}/{arguments[0]}"])


def _list(store: Store, arguments: list[str]) -> str:
    mac = store.read()
    domain = _callers_domain(mac).domain
    if not arguments:
        return list_text(mac, domain)
    job = mac.job(domain, arguments[0])
    if job is None:
        raise Failure(113)
    return list_service_text(job)


def _asuser(store: Store, arguments: list[str]) -> str:
    _demand(arguments, 2)
    if store.read().profile != "root":
        raise Failure(EPERM, f"Could not switch to audit session: {error(EPERM)}")
    os.execvp(arguments[1], arguments[1:])


VERBS: dict[str, Callable[[Store, list[str]], str]] = {
    "asuser": _asuser,
    "blame": _blame,
    "bootout": _bootout,
    "bootstrap": _bootstrap,
    "disable": _switch(True),
    "enable": _switch(False),
    "error": lambda _, arguments: f"{error(int(arguments[0]))}\n",
    "help": lambda *_: "Usage: launchctl <subcommand> ...\n",
    "kickstart": _kickstart,
    "kill": _kill,
    "list": _list,
    "load": _load,
    "managername": lambda store, _: f"{store.read().manager}\n",
    "managerpid": lambda *_: "1\n",
    "manageruid": lambda store, _: f"{store.read().own_uid}\n",
    "print": _print,
    "print-disabled": _print_disabled,
    "remove": _remove,
    "unload": _unload,
}
