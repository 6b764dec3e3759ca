"""The door: keys, sessions, hosts, origins and methods, in front of a page that tells what reaches it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from kakeya_ops.dashboard.door import SOCKET_PATH, Door
from kakeya_ops.dashboard.sessions import MOST_TRIES
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.settings import ApiLimits, ApiSettings

KEY = "sesame-sesame-sesame"
HOST = "http://127.0.0.1:8080"
SOCKET = f"ws://127.0.0.1:8080{SOCKET_PATH}socket.io/?EIO=4&transport=websocket"


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells who came."""
    if scope["type"] == "websocket":
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.send_json(scope["state"])
        await socket.close()
    else:
        await JSONResponse(scope["state"])(scope, receive, send)


async def api(request: Any) -> JSONResponse:
    return JSONResponse("api")


def client(keys: ApiKeys | None, base_url: str = HOST) -> TestClient:
    door = Door(page, ApiSettings(keys=keys, default_tenant="private"))
    app = Starlette(routes=[door, Route("/v1/models", api)])
    return TestClient(app, base_url=base_url, follow_redirects=False)


@pytest.fixture
def open_door() -> Iterator[TestClient]:
    with client(None) as made:
        yield made


@pytest.fixture
def locked() -> Iterator[TestClient]:
    with client(ApiKeys({KEY: "one", "another-another-another": "two"})) as made:
        yield made


def test_without_keys_whoever_is_on_this_machine_may_look(open_door: TestClient) -> None:
    answer = open_door.get("/")
    assert answer.json() == {"tenant": "private", "session": ""}
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert open_door.get("/v1/models").json() == "api"
    with open_door.websocket_connect(SOCKET) as socket:
        assert socket.receive_json()["tenant"] == "private"


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1.example.com:8080", "", "localhost.evil"])
def test_without_keys_no_other_name_is_answered_to(open_door: TestClient, host: str) -> None:
    assert open_door.get("/", headers={"Host": host}).status_code == 403
    with pytest.raises(WebSocketDisconnect), open_door.websocket_connect(SOCKET, headers={"Host": host}):
        pass


@pytest.mark.parametrize(
    "origin", ["http://example.com", "http://127.0.0.1:9999", "null", "http://127.0.0.1:8080.evil"]
)
def test_a_page_of_another_origin_gets_nothing(open_door: TestClient, locked: TestClient, origin: str) -> None:
    headers = {"Origin": origin}
    assert open_door.get("/", headers=headers).status_code == 403
    assert locked.post("/login", data={"key": KEY}, headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), open_door.websocket_connect(SOCKET, headers=headers):
        pass


def test_the_pages_own_origin_is_let_through(open_door: TestClient) -> None:
    with open_door.websocket_connect(SOCKET, headers={"Origin": HOST}) as socket:
        assert socket.receive_json()["session"] == ""


def test_with_keys_a_stranger_sees_the_form_and_nothing_else(locked: TestClient) -> None:
    answer = locked.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert "API key" in locked.get("/login").text
    assert locked.get("/_nicegui/3/static/nicegui.js").status_code == 401
    with pytest.raises(WebSocketDisconnect), locked.websocket_connect(SOCKET):
        pass


def test_a_key_opens_a_session_of_its_tenant(locked: TestClient) -> None:
    answer = locked.post("/login", data={"key": f" {KEY} "}, headers={"Origin": HOST})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert KEY not in cookie
    told = locked.get("/").json()
    assert told["tenant"] == "one"
    assert told["session"]
    with locked.websocket_connect(SOCKET) as socket:
        assert socket.receive_json()["tenant"] == "one"


def test_after_leaving_the_session_is_worth_nothing(locked: TestClient) -> None:
    locked.post("/login", data={"key": KEY})
    cookies = dict(locked.cookies)
    assert locked.post("/logout").headers["location"] == "/login"
    locked.cookies.update(cookies)
    assert locked.get("/").status_code == 303


@pytest.mark.parametrize(
    "body", [{}, {"key": ""}, {"key": KEY[:-1]}, {"key": KEY + "x"}, {"other": KEY}, {"key": "ключ"}]
)
def test_a_wrong_key_is_refused(locked: TestClient, body: dict[str, str]) -> None:
    answer = locked.post("/login", data=body)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert locked.get("/").status_code == 303


def test_tries_are_bounded_also_for_the_right_key(locked: TestClient) -> None:
    for _ in range(MOST_TRIES):
        assert locked.post("/login", data={"key": "wrong"}).status_code == 401
    answer = locked.post("/login", data={"key": KEY})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 61


async def log_in(door: Door, body: asyncio.Future[bytes]) -> int:
    """The status of a login whose form comes when `body` does."""
    told: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await body}

    async def send(message: Any) -> None:
        told.append(message)

    scope = {"type": "http", "method": "POST", "path": "/login", "query_string": b"", "headers": []}
    await door.handle(scope | {"client": ("10.0.0.9", 1)}, receive, send)
    return int(told[0]["status"])


def test_tries_are_bounded_also_when_all_come_at_once() -> None:
    async def act() -> Counter[int]:
        door = Door(page, ApiSettings(keys=ApiKeys({KEY: "one"})))
        body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        logins = asyncio.gather(*(log_in(door, body) for _ in range(40)))
        await asyncio.sleep(0)  # all of them have begun
        body.set_result(b"key=wrong")
        return Counter(await logins)

    assert asyncio.run(act()) == {401: MOST_TRIES, 429: 40 - MOST_TRIES}


def test_a_form_that_does_not_come_is_not_waited_for() -> None:
    async def act() -> int:
        settings = ApiSettings(keys=ApiKeys({KEY: "one"}), limits=ApiLimits(body_seconds=0.05))
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await asyncio.wait_for(log_in(Door(page, settings), never), 20)

    assert asyncio.run(act()) == 408


def test_a_form_that_is_no_form_is_not_read_to_its_end(locked: TestClient) -> None:
    assert locked.post("/login", content=b"key=" + b"x" * 5000).status_code == 413


def test_nothing_is_taken_but_what_the_page_needs(open_door: TestClient) -> None:
    assert open_door.post("/_nicegui/client/1/upload/2", content=b"x").status_code == 405
    assert open_door.post("/").status_code == 405
    # Long polling would be a second way in.
    assert open_door.get(f"{SOCKET_PATH}socket.io/?EIO=4&transport=polling").status_code == 404
    with pytest.raises(WebSocketDisconnect), open_door.websocket_connect("ws://127.0.0.1:8080/"):
        pass


def test_without_keys_there_is_nothing_to_log_in_to(open_door: TestClient) -> None:
    assert open_door.get("/login").headers["location"] == "/"
    assert open_door.post("/login", data={"key": "x"}).headers["location"] == "/"
