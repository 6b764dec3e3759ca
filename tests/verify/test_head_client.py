from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from kakeya_ops.errors import PeerError, PeerRefused, PeerUnreachable
from kakeya_ops.secret import Secret
from kakeya_ops.verify import head_client
from kakeya_ops.verify.head_client import HeadClient
from verify.scripted_head import ScriptedHead, serve

NODES = "/v1/network/nodes"


@pytest.fixture
def head() -> ScriptedHead:
    return ScriptedHead()


@pytest.fixture
def client(head: ScriptedHead) -> Iterator[HeadClient]:
    with serve(head, time.time) as url, HeadClient(url + "/") as client:
        yield client


def test_the_fleet_is_seen(client: HeadClient) -> None:
    assert client.network()["head"]["node"] == "head"
    assert client.healthy()


def test_a_receipt_that_is_not_there_is_refused(client: HeadClient) -> None:
    with pytest.raises(PeerRefused, match="no such receipt") as caught:
        client.receipt("../etc")
    assert (caught.value.status, caught.value.code) == (404, "some_code")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"head": NaN}', b'{"head": Infinity}', b"\xff", b"1" * 5000]
)
def test_what_is_no_json_object_is_refused(head: ScriptedHead, client: HeadClient, content: bytes) -> None:
    head.replies[NODES] = (200, content)
    with pytest.raises(PeerRefused, match="no JSON object"):
        client.network()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"error": "text"}', b'{"error": {}}', b"[1]", b"<html>"])
def test_an_error_of_any_form_is_an_error(head: ScriptedHead, client: HeadClient, content: bytes) -> None:
    head.replies[NODES] = (502, content)
    with pytest.raises(PeerRefused, match="status 502"):
        client.network()


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"text": "x", "logprobs": null}], "usage": {"prompt_tokens": 1}}',
        b'{"choices": [{"text": "x", "logprobs": {"tokens": [], "token_logprobs": [0]}}]}',
    ],
)
def test_a_completion_without_what_was_asked_for_is_refused(
    head: ScriptedHead, client: HeadClient, content: bytes
) -> None:
    head.replies["/v1/completions"] = (200, content)
    with pytest.raises(PeerRefused, match="its completion lacks"):
        client.complete(b"{}", {})


def test_a_chat_without_an_answer_is_refused(head: ScriptedHead, client: HeadClient) -> None:
    head.replies["/v1/chat/completions"] = (200, b'{"choices": []}')
    with pytest.raises(PeerRefused, match="its answer lacks"):
        client.chat("m", "hello", 1)


def test_nothing_there_is_unreachable_and_unhealthy() -> None:
    with HeadClient("http://127.0.0.1:1") as client:
        assert not client.healthy()
        with pytest.raises(PeerUnreachable) as caught:
            client.network()
    assert caught.value.hint


@pytest.mark.parametrize("url", ["", "no-scheme", "http://", "ftp://head", "http://[bad", "http://x:99999"])
def test_a_url_that_is_none_is_told(url: str) -> None:
    with pytest.raises(PeerError), HeadClient(url) as client:
        client.network()


def test_silence_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_client, "_ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with HeadClient(f"http://127.0.0.1:{port}") as client, pytest.raises(PeerError, match="in time"):
            client.network()


def test_the_api_key_is_sent_and_not_shown(head: ScriptedHead) -> None:
    with serve(head, time.time) as url, HeadClient(url, Secret(b"key")) as client:
        assert client._http.headers["Authorization"] == "Bearer key"
        assert "Bearer key" not in repr(client)


def test_the_environments_proxy_is_left_alone(client: HeadClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with HeadClient(client.url) as other:
        assert other.healthy()
