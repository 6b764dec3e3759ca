from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kakeya_ops.errors import EngineDead, EnvironmentFault, KakeyaError
from kakeya_ops.serving.server import Server, Site, address_of, bind


class Background:
    """A server running in a thread."""

    def __init__(self, *apps: Starlette) -> None:
        self.sockets = [bind("127.0.0.1", 0) for _ in apps]
        self.ports = [address_of(listener)[1] for listener in self.sockets]
        sites = [Site("site", app, [listener]) for app, listener in zip(apps, self.sockets, strict=True)]
        self.server = Server(sites, drain_seconds=5)
        self.ready = threading.Event()
        self.error: KakeyaError | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.ready.wait(10)

    def _run(self) -> None:
        try:
            self.server.run(self.ready.set)
        except KakeyaError as error:
            self.error = error

    def end(self) -> None:
        self.server.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def start() -> Iterator[Callable[..., Background]]:
    running: list[Background] = []

    def begin(*apps: Starlette) -> Background:
        running.append(Background(*apps))
        return running[-1]

    yield begin
    for one in running:
        one.end()


def app(text: str) -> Starlette:
    async def answer(request: Request) -> Response:
        return PlainTextResponse(text)

    return Starlette(routes=[Route("/", answer)])


def get(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_two_apps_are_served_in_one_process_on_their_own_ports(start: Callable[..., Background]) -> None:
    running = start(app("peer"), app("api"))
    assert [get(port) for port in running.ports] == ["peer", "api"]


def test_stop_frees_the_ports(start: Callable[..., Background]) -> None:
    running = start(app("x"))
    running.end()
    assert running.error is None
    bind("127.0.0.1", running.ports[0]).close()


def test_a_request_that_is_being_answered_may_end(start: Callable[..., Background]) -> None:
    asked, release = threading.Event(), threading.Event()

    def slow(request: Request) -> Response:
        asked.set()
        assert release.wait(10)
        return PlainTextResponse("whole")

    running = start(Starlette(routes=[Route("/", slow)]))
    answers: list[str] = []
    client = threading.Thread(target=lambda: answers.append(get(running.ports[0])))
    client.start()
    assert asked.wait(5)
    running.server.stop()
    release.set()
    client.join(10)
    running.thread.join(10)
    assert answers == ["whole"]


def test_a_failure_ends_at_once_and_is_raised(start: Callable[..., Background]) -> None:
    running = start(app("x"))
    running.server.fail(EngineDead("the compute thread failed"))
    running.server.fail(EngineDead("later"))
    running.thread.join(10)
    assert isinstance(running.error, EngineDead)
    assert running.error.message == "the compute thread failed"


def test_a_port_in_use_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"cannot listen on 127.0.0.1 port {port}") as caught:
            bind("127.0.0.1", port)
    assert caught.value.hint is not None
    assert "another" in caught.value.hint


def test_an_address_of_another_host_is_explained() -> None:
    with pytest.raises(EnvironmentFault, match=r"192\.0\.2\.1") as caught:
        bind("192.0.2.1", 0)
    assert caught.value.hint is not None


def test_a_name_that_is_no_address_is_explained() -> None:
    with pytest.raises(EnvironmentFault, match="no address"):
        bind("no-such-host.invalid", 0)


SCRIPT = """
import sys
from starlette.applications import Starlette
from kakeya_ops.serving.server import Server, Site, bind
server = Server([Site("site", Starlette(), [bind("127.0.0.1", 0)])])
try:
    server.run(lambda: print("ready", flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_stop_the_process(number: signal.Signals, code: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, errors) == (code, b"")
