"""Exit codes of launchctl with macOS's texts, and how a failing program says them."""

from __future__ import annotations

EPERM, ENOENT, ESRCH, EIO = 1, 2, 3, 5
EINPROGRESS, EALREADY, USAGE = 36, 37, 64
BAD_PLIST, NO_LABEL, NO_PROGRAM = 109, 110, 111
NO_DOMAIN, NO_SERVICE, DISABLED = 112, 113, 119
BAD_OWNERSHIP, UNSUPPORTED, SEVERAL, WRONG_SESSION = 122, 125, 133, 134

ROOT_HINT = "Try re-running the command as root for richer errors."

TEXTS = {
    EPERM: "Operation not permitted",
    ENOENT: "No such file or directory",
    ESRCH: "No such process",
    EIO: "Input/output error",
    13: "Permission denied",
    17: "File exists",
    22: "Invalid argument",
    EINPROGRESS: "Operation now in progress",
    EALREADY: "Operation already in progress",
    107: "Malformed bundle",
    108: "Invalid path",
    BAD_PLIST: "Invalid property list",
    NO_LABEL: "Invalid or missing service identifier",
    NO_PROGRAM: "Invalid or missing Program/ProgramArguments",
    NO_DOMAIN: "Could not find specified domain",
    NO_SERVICE: "Could not find specified service",
    114: "The specified username does not exist",
    115: "The specified group does not exist",
    116: "Routine not yet implemented",
    118: "Bad response from server",
    DISABLED: "Service is disabled",
    120: "Bad subsystem destination for request",
    121: "Path not searched for services",
    BAD_OWNERSHIP: "Path had bad ownership/permissions",
    123: "Path is whitelisted for domain",
    124: "Domain is tearing down",
    UNSUPPORTED: "Domain does not support specified action",
    126: "Request type is no longer supported",
    129: "The service was superseded by a later version",
    SEVERAL: "Multiple errors were returned; see stderr",
    WRONG_SESSION: "Service cannot load in requested session",
    138: "Service cannot be loaded on this hardware",
    139: "Service cannot presently execute",
    140: "Service name is reserved or invalid",
    150: "Operation not permitted while System Integrity Protection is engaged",
    155: "Refusing to execute/trust quarantined program/file",
    159: "Unknown error",
}


class Failure(Exception):
    """A call that fails: what it exits with, and the lines it writes to stderr."""

    def __init__(self, status: int, *lines: str) -> None:
        super().__init__(status, *lines)
        self.status = status
        self.lines = lines


def error(status: int) -> str:
    """``5: Input/output error``."""
    return f"{status}: {TEXTS.get(status, 'unknown error code')}"
