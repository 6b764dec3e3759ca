"""The one form of every refusal: OpenAI's error body, with the status and headers that belong to it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from starlette.responses import JSONResponse

from kakeya_ops.errors import EngineBusy, EngineDead, KakeyaError, MemoryShort, RefusedError, RemoteRequired


class ApiError(RefusedError):
    """A request that is not answered: HTTP `status`, the parameter at fault, and a `code` for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as OpenAI's clients expect it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The whole HTTP answer."""
        return JSONResponse(self.body, self.status, self.headers)


class ClientGone(Exception):
    """The client closed its connection; nobody is left to answer."""


def invalid(param: str | None, message: str, code: str = "invalid_value") -> ApiError:
    """A 400 that names the parameter at fault."""
    return ApiError(400, message, param=param, code=code)


def describe_failure(error: Exception) -> ApiError:
    """What a client is told when the head could not answer: never more than the kind of fault, unless it is ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineBusy):
        retry = {"Retry-After": str(max(1, math.ceil(error.retry_after_seconds)))}
        code = "memory_short" if isinstance(error, MemoryShort) else "engine_busy"
        return ApiError(503, error.message, code=code, headers=retry)
    if isinstance(error, EngineDead):
        return ApiError(503, "the engine has stopped; this server restarts it", code="engine_dead")
    if isinstance(error, RemoteRequired):
        return ApiError(503, error.message, code="remote_required")
    if isinstance(error, KakeyaError):
        return ApiError(500, error.message, code="internal_error")
    return ApiError(500, "the request failed inside the engine", code="internal_error")


__all__ = ["ApiError", "ClientGone", "describe_failure", "invalid"]
