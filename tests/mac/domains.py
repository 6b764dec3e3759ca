"""Targets as launchctl takes them, and which domains exist."""

from __future__ import annotations

from mac.codes import EPERM, NO_DOMAIN, NO_SERVICE, USAGE, Failure, error
from mac.state import Job, MacState

KINDS = ("user", "login", "gui", "session", "pid")


class Target:
    """A domain, or a service in one."""

    def __init__(self, kind: str, number: int, label: str | None = None) -> None:
        self.kind = kind
        self.number = number
        self.label = label

    @property
    def domain(self) -> str:
        return self.kind if self.kind == "system" else f"{self.kind}/{self.number}"

    @property
    def described(self) -> str:
        """As error texts name the domain."""
        words = {"system": "system", "gui": f"user gui: {self.number}", "user": f"uid: {self.number}"}
        return words.get(self.kind, f"{self.kind}: {self.number}")


def parse_target(text: str, *, service: bool | None) -> Target:
    """The target that `text` names. `service`: whether it must be (True), must not be (False) or may be a service."""
    parts = text.split("/", 2) if text.startswith(tuple(f"{kind}/" for kind in KINDS)) else text.split("/", 1)
    if parts[0] == "system":
        target = Target("system", 0, (parts[1:] or [""])[0] or None)
    elif parts[0] in KINDS and parts[1].isdigit():
        target = Target(parts[0], int(parts[1]), (parts[2:] or [""])[0] or None)
    else:
        raise unrecognized()
    if service is not None and service != (target.label is not None):
        raise unrecognized()
    return target


def unrecognized() -> Failure:
    return Failure(
        USAGE,
        "Unrecognized target specifier. <service-target> takes a form of <domain-target>/<service-id>.",
        "Please refer to `man launchctl` for explanation of the <domain-target> specifiers.",
        "Usage: launchctl <subcommand> <target>",
    )


def absence(mac: MacState, target: Target) -> int | None:
    """With which code calls about the domain of `target` fail because it does not exist; None: it does."""
    if target.kind == "system":
        return None
    known = target.number in (mac.own_uid, mac.gui_uid) and (mac.user_domain or mac.gui_session == "yes")
    exists = {
        "gui": target.number == mac.gui_uid,
        "user": known and mac.user_domain,
    }.get(target.kind, False)
    if exists:
        return None
    return mac.no_gui_status if known and target.kind == "gui" else NO_DOMAIN


def forbidden(mac: MacState, target: Target) -> bool:
    """Whether the caller may not look into the domain of `target`: it is another account's."""
    return mac.profile != "root" and target.kind != "system" and target.number != mac.own_uid


def require_domain(mac: MacState, target: Target) -> None:
    """Fail as ``print`` does where the domain is missing or another account's."""
    status = absence(mac, target)
    if status == NO_DOMAIN:
        raise Failure(status, "Bad request.", f"Could not find domain for {target.described}")
    if status is not None:
        raise Failure(status, f"Could not print domain: {error(status)}")
    if forbidden(mac, target):
        raise Failure(EPERM, f"Could not print domain: {error(EPERM)}")


def require_service(mac: MacState, target: Target) -> Job:
    """The job that `target` names; fails with 113 where there is none."""
    require_domain(mac, target)
    job = mac.job(target.domain, target.label or "")
    if job is None:
        raise Failure(NO_SERVICE, f'Could not find service "{target.label}" in domain for {target.described}')
    return job
