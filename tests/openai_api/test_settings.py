from __future__ import annotations

import pytest
from starlette.requests import HTTPConnection

from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.settings import ApiSettings, authorize

KEY = "anna-0123456789abcdef"


def connection(authorization: str | None) -> HTTPConnection:
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    return HTTPConnection({"type": "http", "headers": headers})


def test_without_keys_everybody_is_the_default_tenant() -> None:
    assert authorize(connection(None), ApiSettings(default_tenant="home")) == "home"


def test_a_key_names_the_tenant() -> None:
    settings = ApiSettings(keys=ApiKeys({KEY: "family"}))
    assert authorize(connection(f"Bearer {KEY}"), settings) == "family"


@pytest.mark.parametrize("authorization", [None, "", "Bearer wrong", "Bearer \xe9"])
def test_without_a_key_of_ours_nobody_passes(authorization: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        authorize(connection(authorization), ApiSettings(keys=ApiKeys({KEY: "family"})))
    assert caught.value.status == 401


def test_no_keys_at_all_let_nobody_pass() -> None:
    with pytest.raises(ApiError):
        authorize(connection(f"Bearer {KEY}"), ApiSettings(keys=ApiKeys({})))
