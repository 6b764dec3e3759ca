"""Clients of a head without its model are told why there is no answer."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from kakeya_ops.front.refused_api import make_refused_api


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/healthz"), ("GET", "/"), ("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/metrics")],
)
def test_every_answer_is_503_with_the_verdict(method: str, path: str) -> None:
    with TestClient(make_refused_api("does not fit: working set")) as client:
        answer = client.request(method, path)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "does_not_fit"
    assert "does not fit: working set" in answer.json()["error"]["message"]
