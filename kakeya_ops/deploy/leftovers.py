"""Ends processes of a service that launchd has let go of.

launchd was seen to start a job once more while it was being unloaded, and to forget that process; it then has the port
of the service that comes after it, and answers in its stead. A service runs from the inventory of its generation, so
once no domain holds the label, whatever still has such a file among its arguments is a leftover.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import ServiceError

_LIST = ("ps", "-axwwo", "pid=,command=")
_KILL_AFTER = 0.5
"""Share of the time for a service to go after which asking becomes killing."""


def end_leftovers(context: HostContext) -> None:
    """Ask every leftover to end, then kill it. Raises `ServiceError` for one that stays all the same."""
    began = time.monotonic()
    asked: set[str] = set()
    while pids := find_leftovers(context):
        waited = time.monotonic() - began
        if waited > context.timing.gone:
            raise ServiceError(
                context.host.name,
                f"process {pids[0]} of the old service cannot be ended",
                hint=f"on the host: ps -p {pids[0]}; kill -9 {pids[0]}",
            )
        if new := [pid for pid in pids if pid not in asked]:
            context.tell(f"ending what launchd left behind of the old service: process {', '.join(new)}")
            _signal(context, "-TERM", new)
            asked.update(new)
        elif waited > context.timing.gone * _KILL_AFTER:
            _signal(context, "-KILL", pids)
        context.pause(context.timing.poll / 5)


def find_leftovers(context: HostContext) -> list[str]:
    """The process ids, as text."""
    mark = f"--inventory {context.places.root}/generations/"
    lines = (line.strip() for line in context.runner.run(_LIST).text.splitlines())
    pairs = (line.split(None, 1) for line in lines if mark in line)
    return [pid for pid, command in pairs if pid.isdecimal() and int(pid) > 1 and " serve " in command]


def _signal(context: HostContext, signal: str, pids: Iterable[str]) -> None:
    context.runner.run(["/bin/kill", signal, *pids])  # one that has ended meanwhile is no error


__all__ = ["end_leftovers", "find_leftovers"]
