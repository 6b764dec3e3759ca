"""What launchd demands of a property list before it loads it, and how a refusal looks to whom."""

from __future__ import annotations

import os
import plistlib
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from mac.codes import (
    BAD_OWNERSHIP,
    BAD_PLIST,
    DISABLED,
    EALREADY,
    EIO,
    ENOENT,
    EPERM,
    NO_LABEL,
    NO_PROGRAM,
    ROOT_HINT,
    SEVERAL,
    TEXTS,
    WRONG_SESSION,
    Failure,
    error,
)
from mac.domains import Target, absence, forbidden
from mac.state import Job, MacState, Store
from mac.supervisor import fork_supervisor

SESSIONS = {"gui": "Aqua", "user": "Background", "system": "System"}


def bootstrap(store: Store, mac: MacState, target: Target, paths: list[str]) -> None:
    """Load every plist that `paths` name, or fail as launchctl would."""
    status = _domain_fault(mac, target)
    if status is not None:
        raise _failed(mac, status)
    faults = {}
    for path in _plists(paths):
        fault = load(store, mac, target, path)
        if fault:
            faults[path] = fault
    if not faults:
        return
    status = SEVERAL if len(faults) > 1 else next(iter(faults.values()))
    raise _failed(mac, status, [f"{path}: {_path_text(mac, fault)}" for path, fault in faults.items()])


def _domain_fault(mac: MacState, target: Target) -> int | None:
    status = absence(mac, target)
    if status is not None and target.kind == "gui" and status == mac.no_gui_status:
        return mac.no_gui_bootstrap_status
    if status is None and forbidden(mac, target):
        return EPERM
    if target.kind == "system" and mac.profile != "root":
        return EPERM
    if status is None and mac.eio_next_bootstraps:
        mac.eio_next_bootstraps -= 1
        return EIO
    return status


def _plists(paths: Iterable[str]) -> list[str]:
    """Absolute paths, with folders replaced by the plists in them."""
    found = []
    for path in map(os.path.abspath, paths):
        found += sorted(map(str, Path(path).glob("*.plist"))) if os.path.isdir(path) else [path]
    return found


def _path_text(mac: MacState, fault: int) -> str:
    if fault == EALREADY:
        return "service already loaded" if mac.profile == "catalina" else "service already bootstrapped"
    return TEXTS[fault]


def _failed(mac: MacState, status: int, lines: Iterable[str] = ()) -> Failure:
    if status == 0:
        return Failure(0)
    if mac.profile == "catalina" and status == EALREADY:
        return Failure(status, *lines)
    if mac.profile == "modern":
        if status == DISABLED:
            status = mac.disabled_bootstrap_status
        # Only what launchctl finds out without launchd keeps its number.
        elif status not in (ENOENT, mac.no_gui_bootstrap_status, mac.no_gui_status, 112):
            status = EIO
        lines = lines if status == ENOENT else ()
    hint = [ROOT_HINT] if mac.profile == "modern" and status == EIO else []
    return Failure(status, *lines, f"Bootstrap failed: {error(status)}", *hint)


def load(store: Store, mac: MacState, target: Target, path: str) -> int:
    """Load the plist at `path` into the domain; 0, or the number of launchd's own reason not to."""
    fault = _file_fault(mac, path)
    if fault:
        return fault
    try:
        plist = plistlib.loads(Path(path).read_bytes())
    except (ExpatError, plistlib.InvalidFileException, ValueError):
        return BAD_PLIST
    fault = _plist_fault(plist, target) or _label_fault(mac, target, plist["Label"])
    if fault or mac.bootstrap_ok_but_absent:
        return fault
    job = Job(label=plist["Label"], domain=target.domain, path=path, plist=plist)
    starts = bool(plist.get("RunAtLoad") or plist.get("KeepAlive")) and not mac.bootstrap_ok_but_not_started
    if starts:
        job.state = "spawn scheduled"
    job.supervisor = fork_supervisor(store, target.domain, job.label, starts=starts)
    mac.add(job)
    return 0


def _file_fault(mac: MacState, path: str) -> int:
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            if mac.refuse_symlinks:
                return BAD_OWNERSHIP
            found = os.stat(path)
    except OSError:
        return ENOENT
    trusted = found.st_uid == os.geteuid() and not found.st_mode & 0o022 and stat.S_ISREG(found.st_mode)
    return 0 if trusted else BAD_OWNERSHIP


def _plist_fault(plist: Any, target: Target) -> int:
    if not isinstance(plist, dict):
        return BAD_PLIST
    if not isinstance(plist.get("Label"), str) or not plist["Label"]:
        return NO_LABEL
    if not plist.get("ProgramArguments") and not plist.get("Program"):
        return NO_PROGRAM
    sessions = plist.get("LimitLoadToSessionType", "Aqua")
    wanted = SESSIONS[target.kind]
    return 0 if wanted in ([sessions] if isinstance(sessions, str) else sessions) else WRONG_SESSION


def _label_fault(mac: MacState, target: Target, label: str) -> int:
    if mac.disabled.get(label):
        return DISABLED
    if mac.job(target.domain, label):
        return EALREADY
    return EIO if mac.home_on_volume and target.kind == "gui" else 0
