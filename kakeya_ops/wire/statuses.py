"""The one table between the errors of `kakeya_ops.errors` and what a peer sees of them: an HTTP status and a code."""

from __future__ import annotations

from kakeya_ops.errors import (
    AuthenticationFailed,
    CommandFailed,
    CommandTimeout,
    ConnectFailed,
    ConnectionLost,
    EngineBusy,
    EngineDead,
    EngineError,
    EnvironmentFault,
    FootprintUnknown,
    HostKeyRejected,
    IdentityMismatch,
    InputError,
    InventoryError,
    KakeyaError,
    MemoryShort,
    ModelDirectoryError,
    PeerBusy,
    PeerError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    PoolFull,
    RefusedError,
    ReleaseMismatch,
    RemoteError,
    RemoteRequired,
    SignatureRejected,
    StreamCorrupt,
    TlsFailed,
    TransferFailed,
    UnsupportedModel,
)
from kakeya_ops.wire.bodies import ErrorBody

STATUSES: dict[type[KakeyaError], tuple[int, str]] = {
    KakeyaError: (500, "internal"),
    InputError: (400, "invalid_request"),
    InventoryError: (500, "invalid_inventory"),
    ModelDirectoryError: (500, "invalid_model_directory"),
    RefusedError: (409, "refused"),
    RemoteRequired: (503, "remote_required"),
    UnsupportedModel: (409, "unsupported_model"),
    FootprintUnknown: (409, "footprint_unknown"),
    IdentityMismatch: (409, "identity_mismatch"),
    EnvironmentFault: (500, "environment"),
    PeerError: (502, "peer_failed"),
    PeerUnreachable: (502, "peer_unreachable"),
    PeerTimeout: (504, "peer_timeout"),
    PeerBusy: (503, "peer_busy"),
    PeerRefused: (502, "peer_refused"),
    TlsFailed: (502, "tls_failed"),
    ReleaseMismatch: (409, "release_mismatch"),
    StreamCorrupt: (400, "stream_corrupt"),
    RemoteError: (502, "remote_failed"),
    ConnectFailed: (502, "connect_failed"),
    HostKeyRejected: (502, "host_key_rejected"),
    AuthenticationFailed: (502, "authentication_failed"),
    ConnectionLost: (502, "connection_lost"),
    CommandFailed: (502, "command_failed"),
    CommandTimeout: (504, "command_timeout"),
    TransferFailed: (502, "transfer_failed"),
    SignatureRejected: (401, "signature_rejected"),
    EngineError: (500, "engine_failed"),
    EngineBusy: (503, "engine_busy"),
    MemoryShort: (503, "memory_short"),
    EngineDead: (503, "engine_dead"),
    PoolFull: (507, "pool_full"),
}
"""Every class of the tree, so that a new one cannot be forgotten; a test compares them."""

_BUSY_CODES = frozenset({"engine_busy", "memory_short", "peer_busy"})
_TEXT_LIMIT = 4096


def status_of(error: KakeyaError) -> tuple[int, str]:
    """The status and the code of `error`, or of the nearest class above it in the table."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def describe_error(error: KakeyaError) -> tuple[int, ErrorBody]:
    """The status and the body that tell a peer of `error`."""
    status, code = status_of(error)
    retry_after_seconds = error.retry_after_seconds if isinstance(error, EngineBusy | PeerBusy) else None
    return status, ErrorBody(
        code=code,
        message=error.message[:_TEXT_LIMIT],
        hint=error.hint and error.hint[:_TEXT_LIMIT],
        field=error.field[:256] if isinstance(error, IdentityMismatch) else None,
        retry_after_seconds=retry_after_seconds,
    )


def peer_error(peer: str, status: int, body: ErrorBody) -> PeerError:
    """What it means here that `peer` answered with `status` and `body`: busy if it says for how long, else refused."""
    if body.code in _BUSY_CODES and body.retry_after_seconds is not None:
        return PeerBusy(peer, body.retry_after_seconds)
    return PeerRefused(peer, status, body.code, body.message)


__all__ = ["STATUSES", "describe_error", "peer_error", "status_of"]
