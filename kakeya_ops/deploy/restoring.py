"""The way back of a service: its property list and the loaded job as they were observed, whatever was done to them."""

from __future__ import annotations

import plistlib
from dataclasses import replace
from xml.parsers.expat import ExpatError

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.desired import INVENTORY
from kakeya_ops.deploy.errors import ServiceError
from kakeya_ops.deploy.health import wait_healthy
from kakeya_ops.deploy.leftovers import end_leftovers
from kakeya_ops.deploy.remote_files import make_folder, remove
from kakeya_ops.deploy.served import read_served_host
from kakeya_ops.deploy.service import ServiceControl
from kakeya_ops.launchd import ServiceState
from kakeya_ops.observe.state import Job

PLIST_MODE = 0o644
"""launchd refuses a property list that others may write."""
_ATTEMPTS = 3


def note_service(context: HostContext) -> None:
    """Note how the service as it was observed is brought back, whatever was done to it."""
    context.undo("the service", lambda: restore_service(context))


def note_running_service(context: HostContext) -> None:
    """Do so, where there was one, before a file is changed that it reads: then it is started again after the file is
    as it was.
    """
    if context.before.job is not None:
        note_service(context)


def restore_service(context: HostContext) -> None:
    """The property list and the loaded job as they were before; returns when the old service lives and is healthy."""
    _bring_back(context)
    context.stand_down()


def _bring_back(context: HostContext) -> None:
    job = context.before.job
    for _ in range(_ATTEMPTS):
        for domain in context.before.domains:
            _unload_newcomer(context, ServiceControl(context, domain))
        _restore_plist(context)
        if job is None:
            end_leftovers(context)
            return
        if _load_old(context, job):
            return
    raise ServiceError(context.host.name, f"{context.places.label} is loaded with other arguments again and again")


def _load_old(context: HostContext, job: Job) -> bool:
    """Load the old service where none is loaded, and wait until it is healthy.

    False: what is loaded is another, because a call of launchctl that had been given up came to its end after all.
    """
    control = ServiceControl(context, job.domain)
    state = control.state()
    if state is None:
        end_leftovers(context)
        control.start(context.places.plist)
        if not _is_old(context, control.state()):
            return False
        if job.service.running:
            wait_healthy(_as_served_before(context), job.domain)
        return True
    return state.pid == job.service.pid or _is_old(context, state)


def _is_old(context: HostContext, state: ServiceState | None) -> bool:
    """Whether a loaded service is the one of the old property list, as far as that can be read."""
    try:
        arguments = plistlib.loads(context.before.plist or b"")["ProgramArguments"]
        return state is not None and state.loaded_with(arguments)
    except (ExpatError, plistlib.InvalidFileException, ValueError, KeyError, TypeError):
        return state is not None


def _as_served_before(context: HostContext) -> HostContext:
    """The context with the host as the old service knows it: it may listen elsewhere than the new one would."""
    id = context.before.generation
    data = context.runner.read(f"{context.places.generation(id)}/{INVENTORY}") if id else None
    return replace(context, host=read_served_host(data, context.host.name) or context.host)


def _restore_plist(context: HostContext) -> None:
    old = context.before.plist
    found = context.runner.stat(context.places.plist)
    loadable = found is None or found.kind != "file" or found.mode == PLIST_MODE
    if loadable and context.runner.read(context.places.plist) == old:
        return
    if old is None:
        remove(context, context.places.plist)
    else:
        write_plist(context, old)


def _unload_newcomer(context: HostContext, control: ServiceControl) -> None:
    """Unload what is loaded there, unless it is the very job that was running before."""
    state, job = control.state(), context.before.job
    if state is None:
        return
    same = job is not None and job.domain == control.domain and state.running and state.pid == job.service.pid
    if not same:
        control.stop()


def write_plist(context: HostContext, data: bytes) -> None:
    """Write the property list with the one mode that launchd accepts."""
    make_folder(context, context.places.agents, "755")
    context.runner.write(context.places.plist, data, PLIST_MODE)


__all__ = ["PLIST_MODE", "note_service", "restore_service", "write_plist"]
