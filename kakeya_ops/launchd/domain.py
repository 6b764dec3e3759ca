"""Where a service lives in launchd: its domain and its label, and which domain a host's services belong in.

``gui/UID`` exists only while the user is logged in at the screen, and SSH reaches it too; ``user/UID`` exists from the
user's first login of any kind on. The two keep separate lists, so one label can be loaded twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kakeya_ops.errors import EnvironmentFault, InputError

DomainKind = Literal["gui", "user"]
Preference = Literal["auto", "gui", "user"]

SESSION_TYPES: dict[DomainKind, str] = {"gui": "Aqua", "user": "Background"}
"""``LimitLoadToSessionType`` that makes an agent loadable in a domain of this kind."""

MAX_LABEL_CHARACTERS = 200
"""The label is a file name with ``.plist`` behind it, and a file name has at most 255 bytes."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+")
_DOMAIN = re.compile(r"(gui|user)/(0|[1-9][0-9]{0,9})/?")


@dataclass(frozen=True, slots=True)
class Domain:
    """One user's domain of one kind."""

    kind: DomainKind
    uid: int

    @property
    def target(self) -> str:
        """As launchctl takes it: ``gui/501``."""
        return f"{self.kind}/{self.uid}"

    @property
    def session_type(self) -> str:
        """``LimitLoadToSessionType`` of the agents in it."""
        return SESSION_TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Service:
    """A label in a domain. Raises `InputError` for a label that could be taken for anything else."""

    domain: Domain
    label: str

    def __post_init__(self) -> None:
        check_label(self.label)

    @property
    def target(self) -> str:
        """As launchctl takes it: ``gui/501/dev.kakeya.home.allens``."""
        return f"{self.domain.target}/{self.label}"


@dataclass(frozen=True, slots=True)
class DomainChoice:
    """The domain that was chosen, and why, in words for the plan."""

    domain: Domain
    reason: str


def service_label(fleet: str, host: str) -> str:
    """The label of the service of `host` in `fleet`: ``dev.kakeya.<fleet>.<host>``, lower case as both names are."""
    label = f"dev.kakeya.{fleet}.{host}"
    check_label(label)
    if label != label.lower() or label.count(".") != 3:
        raise InputError(f"{label!r} is not made of two lower-case names without dots")
    return label


def check_label(label: str) -> None:
    """Raise `InputError` unless `label` is a reverse domain name, safe as an argument and as a file name."""
    if not _LABEL.fullmatch(label) or len(label) > MAX_LABEL_CHARACTERS:
        raise InputError(
            f"{label[:60]!r} cannot be the label of a service",
            hint="a label is at least two names of letters, digits, _ and - with dots between them",
        )


def parse_domain(target: str) -> Domain:
    """The domain that `target` (``gui/501``, also with a slash behind it) names. Raises `InputError` for others."""
    match = _DOMAIN.fullmatch(target)
    if match is None:
        raise InputError(f"{target[:60]!r} is not a domain that services of a user can be in")
    return Domain("gui" if match[1] == "gui" else "user", int(match[2]))


def candidate_domains(uid: int) -> tuple[Domain, Domain]:
    """Both domains in which a label of `uid` can be loaded, the one at the screen first."""
    return Domain("gui", uid), Domain("user", uid)


def choose_domain(
    console_uid: int, uid: int, preference: Preference, gui_exists: bool, user_exists: bool
) -> DomainChoice:
    """The domain for the services of `uid` on a host whose screen belongs to `console_uid` (0: nobody is logged in).

    Left to itself, it is ``gui`` while the user sits at the screen, otherwise ``user``. Raises `EnvironmentFault`
    where the host does not have the domain that is asked for, or has neither.
    """
    gui, user = candidate_domains(uid)
    at_screen = gui_exists and console_uid == uid
    if preference == "gui":
        return DomainChoice(_existing(gui, gui_exists), "the inventory says domain: gui")
    if preference == "user":
        return DomainChoice(_existing(user, user_exists), "the inventory says domain: user")
    if at_screen:
        return DomainChoice(gui, f"uid {uid} is logged in at the screen")
    if user_exists:
        return DomainChoice(user, _absence(console_uid, uid, gui_exists))
    return DomainChoice(_existing(gui, gui_exists), "the user domain does not exist")


def _absence(console_uid: int, uid: int, gui_exists: bool) -> str:
    if gui_exists:
        return f"uid {uid} is logged in, but the screen belongs to uid {console_uid}"
    return f"uid {uid} is not logged in at the screen" + (f", uid {console_uid} is" if console_uid else "")


def _existing(domain: Domain, exists: bool) -> Domain:
    if exists:
        return domain
    hint = (
        "log in at the screen (a headless Mac needs automatic login), or write domain: user in the inventory"
        if domain.kind == "gui"
        else "log in once, by SSH or at the screen: the domain exists from then on"
    )
    raise EnvironmentFault(f"launchd has no domain {domain.target}", hint=hint)


__all__ = [
    "MAX_LABEL_CHARACTERS",
    "SESSION_TYPES",
    "Domain",
    "DomainChoice",
    "DomainKind",
    "Preference",
    "Service",
    "candidate_domains",
    "check_label",
    "choose_domain",
    "parse_domain",
    "service_label",
]
