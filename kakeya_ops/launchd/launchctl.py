"""The argv of each launchctl call. Where it runs, and what becomes of its exit code, is not known here.

launchctl is found on PATH: on a Mac it is in ``/bin``, which is on every PATH that sshd or launchd gives.
"""

from __future__ import annotations

from typing import Literal

from kakeya_ops.errors import InputError
from kakeya_ops.launchd.domain import Domain, Service

Argv = tuple[str, ...]
Verb = Literal["bootstrap", "bootout", "enable", "kickstart", "print", "print-disabled", "managername"]


def bootstrap(domain: Domain, plist_path: str) -> Argv:
    """Load the plist at the absolute `plist_path`, which launchd reads now and not again."""
    if not plist_path.startswith("/"):
        raise InputError(f"launchd wants the whole path of a plist, not {plist_path[:60]!r}")
    return ("launchctl", "bootstrap", domain.target, plist_path)


def bootout(service: Service) -> Argv:
    """Begin to stop and unload `service`. It is gone only when `print_service` says so."""
    return ("launchctl", "bootout", service.target)


def enable(service: Service) -> Argv:
    """Lift launchd's own note, kept outside the plist, that `service` is disabled."""
    return ("launchctl", "enable", service.target)


def kickstart(service: Service) -> Argv:
    """Start `service` now if it is loaded and does not run."""
    return ("launchctl", "kickstart", service.target)


def print_service(service: Service) -> Argv:
    """Tell whether `service` is loaded, and its state. What it prints may hold secrets of others: never log it."""
    return ("launchctl", "print", service.target)


__all__ = [
    "Argv",
    "Verb",
    "bootout",
    "bootstrap",
    "enable",
    "kickstart",
    "print_service",
]
