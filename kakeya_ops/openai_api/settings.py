"""What an operator decides about the front, and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.wire.signing import Directive

VerifyDirective = Callable[[str, bytes], Directive]
"""``(header value, request body)`` to the directive that a fleet key signed; raises `SignatureRejected`."""


@dataclass(frozen=True)
class ApiLimits:
    """Bounds of one request.

    `body_bytes` and `body_seconds` bound its body, `request_seconds` all of it from its admission to its last byte.
    `default_max_tokens` bounds a completion whose request does not. A stream's headers wait at most `header_seconds`
    for the receipt; `keep_alive_seconds` is the longest silence in it.
    """

    body_bytes: int = 8 * 1024 * 1024
    body_seconds: float = 30.0
    request_seconds: float = 3600.0
    default_max_tokens: int = 4096
    header_seconds: float = 5.0
    keep_alive_seconds: float = 10.0


@dataclass(frozen=True)
class ApiSettings:
    """`keys` of None leaves the front open: only for loopback. `cache` is shown by ``/v1/models``.

    Without `verify_directive` every directive is refused.
    """

    keys: ApiKeys | None = None
    default_tenant: str = "private-fleet"
    verify_directive: VerifyDirective | None = None
    fingerprint: str = "kakeya"
    cache: CacheSettings | None = None
    limits: ApiLimits = field(default_factory=ApiLimits)


def authorize(connection: HTTPConnection, settings: ApiSettings) -> str:
    """The tenant on whose behalf `connection` asks. Raises `ApiError` 401 unless its key is one of ours."""
    if settings.keys is None:
        return settings.default_tenant
    tenant = settings.keys.tenant_of(connection.headers.get("authorization"))
    if tenant is None:
        raise ApiError(
            401,
            "a valid API key is needed: Authorization: Bearer <key>",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return tenant


__all__ = ["ApiLimits", "ApiSettings", "VerifyDirective", "authorize"]
