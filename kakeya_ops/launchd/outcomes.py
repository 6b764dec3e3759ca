"""What launchctl's exit codes mean. Its texts are no interface, so the code alone decides.

The code is an error number of macOS, or of launchd itself from 107 on. The table is written out because other systems
number theirs differently: 37 is "No locks available" on Linux.
"""

from __future__ import annotations

from enum import Enum

from kakeya_ops.launchd.launchctl import Verb

TEXTS = {
    0: "Success",
    1: "Operation not permitted",
    2: "No such file or directory",
    3: "No such process",
    5: "Input/output error",
    13: "Permission denied",
    17: "File exists",
    22: "Invalid argument",
    36: "Operation now in progress",
    37: "Operation already in progress",
    64: "Usage",
    107: "Malformed bundle",
    108: "Invalid path",
    109: "Invalid property list",
    110: "Invalid or missing service identifier",
    111: "Invalid or missing Program/ProgramArguments",
    112: "Could not find specified domain",
    113: "Could not find specified service",
    114: "The specified username does not exist",
    115: "The specified group does not exist",
    116: "Routine not yet implemented",
    118: "Bad response from server",
    119: "Service is disabled",
    120: "Bad subsystem destination for request",
    121: "Path not searched for services",
    122: "Path had bad ownership/permissions",
    123: "Path is whitelisted for domain",
    124: "Domain is tearing down",
    125: "Domain does not support specified action",
    126: "Request type is no longer supported",
    129: "The service was superseded by a later version",
    133: "Multiple errors were returned; see stderr",
    134: "Service cannot load in requested session",
    138: "Service cannot be loaded on this hardware",
    139: "Service cannot presently execute",
    140: "Service name is reserved or invalid",
    150: "Operation not permitted while System Integrity Protection is engaged",
    155: "Refusing to execute/trust quarantined program/file",
    159: "Unknown error",
}
"""macOS's text for each exit code."""


class Outcome(Enum):
    """What a call came to, as far as the caller has to tell the cases apart."""

    OK = "ok"
    UNDER_WAY = "under way"
    """launchd is already at it, or still at its opposite, or done: `print_service` tells which."""
    GONE = "gone"
    """The service is not loaded."""
    TRANSIENT = "transient"
    """Perhaps a passing state: worth a bounded number of further tries, seconds apart."""
    NO_DOMAIN = "no domain"
    DISABLED = "disabled"
    REFUSED = "refused"
    """It will not work however often it is tried."""


_ANY_VERB = {
    0: Outcome.OK,
    3: Outcome.GONE,
    5: Outcome.TRANSIENT,
    36: Outcome.UNDER_WAY,
    37: Outcome.UNDER_WAY,
    112: Outcome.NO_DOMAIN,
    113: Outcome.GONE,
    119: Outcome.DISABLED,
    124: Outcome.NO_DOMAIN,
    125: Outcome.NO_DOMAIN,
}
_ONE_VERB: dict[tuple[Verb, int], Outcome] = {
    # A label that does not exist is what these begin with.
    ("bootstrap", 3): Outcome.REFUSED,
    ("bootstrap", 113): Outcome.REFUSED,
    ("bootstrap", 17): Outcome.UNDER_WAY,
    ("enable", 3): Outcome.REFUSED,
    ("enable", 113): Outcome.REFUSED,
}

_HINTS = {
    5: "for a user other than root, launchd gives 5 for nearly every reason: the label is still loaded or disabled, "
    "the plist belongs to another user or others may write it, or it is meant for another kind of session; the Mac's "
    "own log has the reason: log show --last 5m --predicate 'process == \"launchd\"'",
    112: "nobody has logged in as this user since the Mac started",
    119: "launchctl enable lifts it; it outlives the plist and a restart",
    122: "the plist must belong to the user who loads it, and nobody else may write it",
    125: "the user is not logged in at the screen",
    134: "the plist's LimitLoadToSessionType is for another domain",
    138: "the plist's LimitLoadToHardware is for another Mac",
    155: "strip the quarantine attribute from the program: xattr -d com.apple.quarantine FILE",
}


def classify(status: int, verb: Verb) -> Outcome:
    """What exit code `status` of ``launchctl VERB`` means; a code that is not known is a refusal."""
    return _ONE_VERB.get((verb, status)) or _ANY_VERB.get(status, Outcome.REFUSED)


def describe(status: int) -> str:
    """`status` for people: ``113: Could not find specified service``."""
    return f"{status}: {TEXTS.get(status, 'unknown to this table')}"


def hint_for(status: int) -> str | None:
    """What a person can do about `status`, where more is known than its text says."""
    return _HINTS.get(status)


__all__ = ["TEXTS", "Outcome", "classify", "describe", "hint_for"]
