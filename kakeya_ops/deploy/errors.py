"""What can go wrong while hosts are changed, as far as it is not another machine's or the user's fault."""

from __future__ import annotations

from kakeya_ops.errors import ExitCode, KakeyaError, RefusedError


class DeployError(KakeyaError):
    """A host could not be brought to what the inventory says."""

    def __init__(self, host: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{host}: {message}", hint=hint)
        self.host = host


class LockHeld(DeployError):
    """Somebody else is changing the host, or was when they stopped."""

    def __init__(self, host: str, holder: str, *, stale: str | None) -> None:
        explanation = f", but it looks abandoned: {stale}" if stale else ""
        super().__init__(
            host,
            f"{holder} holds the lock of this host{explanation}",
            hint=f"see kakeya lock show {host}" + (f"; take it away with kakeya lock break {host}" if stale else ""),
        )
        self.holder = holder
        self.stale = stale


class ServiceError(DeployError):
    """launchd did not do with the service what was asked of it."""


class NotHealthy(DeployError):
    """The service runs, or tries to, but does not do its work."""


class Interrupted(KakeyaError):
    """The person at the terminal gave up; what was begun is taken back."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self) -> None:
        super().__init__("interrupted")


class NothingToReturnTo(RefusedError):
    """There is no generation before the one that runs."""


__all__ = ["DeployError", "Interrupted", "LockHeld", "NotHealthy", "NothingToReturnTo", "ServiceError"]
