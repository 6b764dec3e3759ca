from __future__ import annotations

import json

import pytest

from kakeya_ops.errors import EngineBusy, EngineDead, InputError, MemoryShort, RemoteRequired
from kakeya_ops.openai_api.errors import ApiError, describe_failure, invalid


def test_the_body_is_openais() -> None:
    answer = invalid("top_k", "too large").response()
    assert answer.status_code == 400
    assert json.loads(bytes(answer.body)) == {
        "error": {
            "message": "too large",
            "type": "invalid_request_error",
            "param": "top_k",
            "code": "invalid_value",
        }
    }


def test_headers_are_sent() -> None:
    assert (
        ApiError(401, "no", headers={"WWW-Authenticate": "Bearer"}).response().headers["www-authenticate"] == "Bearer"
    )


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineBusy(0.2), 503, "engine_busy"),
        (MemoryShort(5.0), 503, "memory_short"),
        (EngineDead("why"), 503, "engine_dead"),
        (RemoteRequired("why"), 503, "remote_required"),
        (InputError("why"), 500, "internal_error"),
        (RuntimeError("a secret"), 500, "internal_error"),
        (invalid("x", "y"), 400, "invalid_value"),
    ],
)
def test_each_failure_has_its_status(error: Exception, status: int, code: str) -> None:
    described = describe_failure(error)
    assert (described.status, described.code) == (status, code)
    assert "secret" not in described.message
    assert described.body["error"]["type"] == ("server_error" if status >= 500 else "invalid_request_error")


def test_a_busy_engine_says_when_to_come_back() -> None:
    assert describe_failure(EngineBusy(0.2)).headers["Retry-After"] == "1"
    assert describe_failure(MemoryShort(5.0)).headers["Retry-After"] == "5"
    assert describe_failure(EngineBusy(12.1)).headers["Retry-After"] == "13"
