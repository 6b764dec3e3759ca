"""Every error that Kakeya raises on purpose: one tree, typed fields, a hint, an exit code.

::

    KakeyaError
    ├── InputError (2)            the user's input: usage, files, inventory
    │   ├── InventoryError        every fault of an inventory at once
    │   └── ModelDirectoryError   a model directory that cannot be read or is not one
    ├── RefusedError (1)          the command ran and its answer is no
    │   ├── RemoteRequired        a local prefill where the inventory demands a remote one
    │   ├── UnsupportedModel      a family or setting that cannot be carried exactly
    │   ├── FootprintUnknown      how much memory a model takes cannot be known; `missing` is the fact
    │   └── IdentityMismatch      two sides whose KV differs, by first differing field
    ├── EnvironmentFault (3)      ports, permissions, child processes, disk
    ├── PeerError (3)             another node
    │   ├── PeerUnreachable       no connection, or it broke
    │   ├── PeerTimeout           connected, but silent for too long
    │   ├── PeerBusy              queue full; `retry_after_seconds`
    │   ├── PeerRefused           it answered with an error of its own
    │   ├── TlsFailed             no connection by certificates that both sides accept; `reason`
    │   ├── ReleaseMismatch       it is of a release that this one does not understand
    │   └── StreamCorrupt         a frame whose form, checksum or signature is wrong
    ├── RemoteError (3)           another machine, reached by ssh, or this one as if it were
    │   ├── ConnectFailed         no connection was made
    │   ├── HostKeyRejected       its key is unknown, changed or revoked; `fingerprint`
    │   ├── AuthenticationFailed  it is the right machine, and it let nobody in
    │   ├── ConnectionLost        connected, and then no longer; what ran may have run or not
    │   ├── CommandFailed         a command that had to succeed did not
    │   ├── CommandTimeout        a command took too long; `ended` says whether it is gone
    │   └── TransferFailed        a file there could not be read, written or sent
    ├── SignatureRejected (3)     a request, reply or receipt that is not the fleet's
    ├── EngineError (70)          the compute thread
    │   ├── EngineBusy            bounded queue is full; `retry_after_seconds`
    │   │   └── MemoryShort       no memory for another request
    │   └── EngineDead            it stopped; nothing more can be computed
    └── PoolFull (3)              no room even after evicting all that may be evicted

Errors of libraries are translated where they arise (`remote/`, `peer/`, `engine/`) and shown once, by the CLI.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import IntEnum

_SHOWN_CHARACTERS = 200


class ExitCode(IntEnum):
    """Exit codes of the `kakeya` command."""

    OK = 0
    NO = 1
    INPUT = 2
    FAILED = 3
    PARTIAL = 4
    CHANGES_PENDING = 5
    BUG = 70
    INTERRUPTED = 130


class KakeyaError(Exception):
    """One sentence of what is wrong (`message`), and what to do about it (`hint`)."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(KakeyaError):
    """The user's input is wrong."""

    exit_code = ExitCode.INPUT


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an input file: where (`path` such as ``hosts.allens.role``, 1-based `line`) and what."""

    path: str
    line: int | None
    message: str


class InventoryError(InputError):
    """Every fault found in one inventory."""

    def __init__(self, file: str, faults: tuple[Fault, ...], *, hint: str | None = None) -> None:
        count = f"{len(faults)} faults" if len(faults) != 1 else "1 fault"
        super().__init__(f"{file} has {count}", hint=hint)
        self.file = file
        self.faults = faults


class ModelDirectoryError(InputError):
    """A model directory that is missing, incomplete or not MLX."""


class RefusedError(KakeyaError):
    """The command ran, and its answer is no."""

    exit_code = ExitCode.NO


class RemoteRequired(RefusedError):
    """`prefill.require_remote` is set, and no worker delivered the prefix."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no worker delivered the prefix: {reason}", hint="see kakeya verify remote-prefill")


class UnsupportedModel(RefusedError):
    """A model family or setting whose KV cannot be carried exactly."""


class FootprintUnknown(RefusedError):
    """How much memory a model takes cannot be known, and is not guessed. `missing` names the fact that is lacking."""

    def __init__(self, model: str, missing: str, *, hint: str | None = None) -> None:
        super().__init__(f"how much memory {model} takes is unknown: {missing}", hint=hint)
        self.model = model
        self.missing = missing


class IdentityMismatch(RefusedError):
    """Two cache identities differ; `field` is the first that does."""

    def __init__(self, field: str, ours: object, theirs: object, *, peer: str | None = None) -> None:
        whose = f" of {peer}" if peer else ""
        super().__init__(
            f"cache identity{whose} differs in {field}: {ours} here, {theirs} there",
            hint="give both nodes the same model directory and the same cache section of the inventory",
        )
        self.field = field
        self.ours = ours
        self.theirs = theirs
        self.peer = peer


class EnvironmentFault(KakeyaError):
    """This machine does not let the command be carried out: a port, a permission, a child process, the disk."""


class PeerError(KakeyaError):
    """Another node could not do its part. `peer` is its node id or address; `reason` is a counter label."""

    reason = "failed"

    def __init__(self, peer: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{peer}: {message}", hint=hint)
        self.peer = peer


class PeerUnreachable(PeerError):
    """No connection to the peer, or the connection broke."""

    reason = "unreachable"


class PeerTimeout(PeerError):
    """The peer is connected but sent nothing for too long."""

    reason = "timeout"


class PeerBusy(PeerError):
    """The peer's queue is full."""

    reason = "busy"

    def __init__(self, peer: str, retry_after_seconds: float) -> None:
        super().__init__(peer, f"busy, about {retry_after_seconds:.1f} s of work before ours")
        self.retry_after_seconds = retry_after_seconds


class PeerRefused(PeerError):
    """The peer answered with an error; `status` is HTTP's, `code` the peer's own word for it."""

    reason = "refused"

    def __init__(self, peer: str, status: int, code: str, message: str) -> None:
        super().__init__(peer, message)
        self.status = status
        self.code = code


class TlsFailed(PeerError):
    """No TLS connection that both sides accept, and none is made in clear.

    `reason` is ``certificate_missing`` (this side has none), ``certificate_expired``, ``certificate_foreign`` (of no
    authority of the fleet), ``certificate_wrong_node`` (of another node than was called), ``cleartext`` (the other side
    does not speak TLS there) or ``tls`` for anything else.
    """

    reason = "tls"

    def __init__(self, peer: str, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(peer, message, hint=hint)
        self.reason = reason


class ReleaseMismatch(PeerError):
    """The peer is of a release that this one does not understand; `what` says in what it shows."""

    reason = "release"

    def __init__(self, peer: str, what: str) -> None:
        super().__init__(peer, what, hint="give all nodes the same release: kakeya deploy all")
        self.what = what


class StreamCorrupt(PeerError):
    """A frame whose form, checksum or signature is wrong."""

    reason = "corrupt"


class RemoteError(KakeyaError):
    """Another machine, reached by ssh, could not do its part. `host` is its name in the inventory."""

    def __init__(self, host: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{host}: {message}", hint=hint)
        self.host = host


class ConnectFailed(RemoteError):
    """No connection. `transient` says that the server may only have been busy, so that trying again makes sense."""

    def __init__(self, host: str, reason: str, *, transient: bool = False, hint: str | None = None) -> None:
        super().__init__(host, f"cannot connect: {reason}", hint=hint)
        self.reason = reason
        self.transient = transient


class HostKeyRejected(RemoteError):
    """The host key is ``unknown``, ``changed`` or ``revoked`` (`reason`); the hint is the command that accepts it."""

    def __init__(self, host: str, reason: str, fingerprint: str, *, hint: str | None = None) -> None:
        super().__init__(host, f"its host key is {reason}: {fingerprint}", hint=hint)
        self.reason = reason
        self.fingerprint = fingerprint


class AuthenticationFailed(RemoteError):
    """The server did not let `user` in; `tried` names the keys that were offered."""

    def __init__(self, host: str, user: str, tried: tuple[str, ...], *, hint: str | None = None) -> None:
        offered = f"refused every key: {', '.join(tried)}" if tried else "was offered no key"
        super().__init__(host, f"did not let {user} in; it {offered}", hint=hint)
        self.user = user
        self.tried = tried


class ConnectionLost(RemoteError):
    """The connection broke `during` something, of which nobody knows how far it came."""

    def __init__(self, host: str, during: str) -> None:
        super().__init__(host, f"the connection broke while {during}", hint="what ran there may have run to its end")
        self.during = during


class CommandFailed(RemoteError):
    """`argv` had to succeed and did not. `stderr` is the end of what it said; `status` is None if it was ended here."""

    def __init__(self, host: str, argv: tuple[str, ...], status: int | None, stderr: str) -> None:
        outcome = "was ended" if status is None else f"failed with status {status}"
        super().__init__(host, f"{_shown(argv)} {outcome}: {stderr or 'it said nothing'}")
        self.argv = argv
        self.status = status
        self.stderr = stderr


class CommandTimeout(RemoteError):
    """`argv` took longer than `timeout_seconds`. `ended`: it was surely stopped; otherwise it may still be running."""

    def __init__(self, host: str, argv: tuple[str, ...], timeout_seconds: float, *, ended: bool) -> None:
        fate = "was ended" if ended else "may still be running there"
        super().__init__(host, f"{_shown(argv)} took longer than {timeout_seconds:g} s and {fate}")
        self.argv = argv
        self.timeout_seconds = timeout_seconds
        self.ended = ended


def _shown(argv: tuple[str, ...]) -> str:
    """The start of a command as one line: what is not printable is escaped."""
    line = shlex.join(argv)
    line = line if line.isprintable() else line.encode("unicode_escape").decode()
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"


class TransferFailed(RemoteError):
    """The file or folder `path` on the host could not be read, written or sent."""

    def __init__(self, host: str, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(host, f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class SignatureRejected(KakeyaError):
    """A request, reply, directive or receipt that the fleet's key did not sign, or that is stale or replayed."""


class EngineError(KakeyaError):
    """The compute thread failed."""

    exit_code = ExitCode.BUG


class EngineBusy(EngineError):
    """The engine's bounded queue is full."""

    exit_code = ExitCode.FAILED

    def __init__(self, retry_after_seconds: float, what: str = "the engine's queue is full") -> None:
        super().__init__(f"{what}; try again in {retry_after_seconds:.0f} s")
        self.retry_after_seconds = retry_after_seconds


class MemoryShort(EngineBusy):
    """The machine has no memory for another request, and the pool has nothing more to give."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(retry_after_seconds, "memory is short on this machine")


class EngineDead(EngineError):
    """The compute thread has stopped."""

    exit_code = ExitCode.FAILED


class PoolFull(KakeyaError):
    """No room in the pool, even after evicting everything that is not pinned."""

    def __init__(self, needed_bytes: int, budget_bytes: int) -> None:
        super().__init__(f"the pool has no room for {needed_bytes} bytes within its {budget_bytes}")
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes


__all__ = [
    "AuthenticationFailed",
    "CommandFailed",
    "CommandTimeout",
    "ConnectFailed",
    "ConnectionLost",
    "EngineBusy",
    "EngineDead",
    "EngineError",
    "EnvironmentFault",
    "ExitCode",
    "Fault",
    "FootprintUnknown",
    "HostKeyRejected",
    "IdentityMismatch",
    "InputError",
    "InventoryError",
    "KakeyaError",
    "MemoryShort",
    "ModelDirectoryError",
    "PeerBusy",
    "PeerError",
    "PeerRefused",
    "PeerTimeout",
    "PeerUnreachable",
    "PoolFull",
    "RefusedError",
    "ReleaseMismatch",
    "RemoteError",
    "RemoteRequired",
    "SignatureRejected",
    "StreamCorrupt",
    "TlsFailed",
    "TransferFailed",
    "UnsupportedModel",
]
