from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kakeya_ops.errors import PeerTimeout, PeerUnreachable
from kakeya_ops.peer.connection import Call, CallAborted, Connections, Endpoint, StopFlag, Timeouts
from peer.scripted import Request, ScriptedPeer, response

TIMEOUTS = Timeouts(connect_seconds=5.0, reply_seconds=5.0, silence_seconds=5.0)


Connect = Callable[[ScriptedPeer], Connections]


@pytest.fixture
def connect() -> Iterator[Connect]:
    opened: list[Connections] = []

    def make(peer: ScriptedPeer) -> Connections:
        opened.append(Connections("peer", peer.endpoint, TIMEOUTS))
        return opened[-1]

    yield make
    for connections in opened:
        connections.close()


def call(body: bytes = b"", *, wait_seconds: float = 5.0) -> Call:
    return Call("POST", "/x", dict, lambda headers: body, wait_seconds)


def ask(connections: Connections, one: Call | None = None, stop: StopFlag | None = None) -> bytes:
    with connections.call(one or call(), stop or StopFlag()) as answer:
        return answer.response.read()


def echo(request: Request) -> bytes:
    return response(request.body)


def test_one_connection_serves_many_calls(connect: Connect) -> None:
    with ScriptedPeer(echo) as peer:
        connections = connect(peer)
        assert [ask(connections, call(b"%d" % i)) for i in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert {request.connection for request in peer.requests} == {1}


def test_a_call_on_a_connection_that_was_closed_while_idle_is_made_again(connect: Connect) -> None:
    with ScriptedPeer(echo, closes=1) as peer:
        connections = connect(peer)
        for count in range(1, 4):
            assert ask(connections, call(b"x")) == b"x"
            peer.wait_for_closed(count)
        assert [request.connection for request in peer.requests] == [1, 2, 3]


def test_a_call_that_an_idle_connection_swallows_is_made_again_with_headers_of_its_own(connect: Connect) -> None:
    """The server closes just when the request comes: nothing can be known before."""
    signed = iter(["first", "second", "third"])

    def script(request: Request) -> bytes:
        return b"" if request.connection == 1 and request.index == 1 else response(b"ok")

    one = Call("POST", "/x", lambda: {"Signature": next(signed)}, lambda headers: b"", 5.0)
    with ScriptedPeer(script) as peer:
        connections = connect(peer)
        assert [ask(connections, one), ask(connections, one)] == [b"ok", b"ok"]
        seen = [(request.connection, request.headers["Signature"]) for request in peer.requests]
        assert seen == [(1, "first"), (1, "second"), (2, "third")]


def test_a_new_connection_that_breaks_is_not_tried_again(connect: Connect) -> None:
    with ScriptedPeer(lambda request: b"") as peer:
        with pytest.raises(PeerUnreachable):
            ask(connect(peer))
        assert len(peer.requests) == 1


def test_a_timeout_is_not_tried_again(connect: Connect) -> None:
    release = threading.Event()

    def script(request: Request) -> bytes:
        if request.index:
            release.wait(10)
        return response(b"ok")

    with ScriptedPeer(script) as peer:
        connections = connect(peer)
        ask(connections)
        with pytest.raises(PeerTimeout):
            ask(connections, call(wait_seconds=0.1))
        assert len(peer.requests) == 2
        release.set()


def test_a_response_that_was_not_read_to_its_end_costs_its_connection(connect: Connect) -> None:
    with ScriptedPeer(lambda request: response(bytes(1000))) as peer:
        connections = connect(peer)
        with connections.call(call(), StopFlag()) as answer:
            answer.response.read(10)
        ask(connections)
        assert [request.connection for request in peer.requests] == [1, 2]


def test_a_server_that_wants_to_close_is_heeded(connect: Connect) -> None:
    with ScriptedPeer(lambda request: response(b"ok", Connection="close")) as peer:
        connections = connect(peer)
        assert [ask(connections), ask(connections)] == [b"ok", b"ok"]
        assert [request.connection for request in peer.requests] == [1, 2]


def test_calls_at_the_same_time_have_connections_of_their_own(connect: Connect) -> None:
    together = threading.Barrier(3, timeout=10)

    def script(request: Request) -> bytes:
        together.wait()
        return response(b"ok")

    with ScriptedPeer(script) as peer:
        connections = connect(peer)
        threads = [threading.Thread(target=ask, args=(connections,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert {request.connection for request in peer.requests} == {1, 2, 3}


def test_an_answer_that_came_before_the_body_was_sent_is_read() -> None:
    """A peer that refuses hangs up on the rest of the body, and sending that fails."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1)
                link.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")

        peer = threading.Thread(target=refuse)
        peer.start()
        connections = Connections("peer", Endpoint("127.0.0.1", server.getsockname()[1]), TIMEOUTS)
        with connections.call(call(bytes(64 * 1024 * 1024)), StopFlag()) as answer:
            assert (answer.response.status, answer.response.read()) == (401, b"no")
        peer.join()


def test_what_is_no_http_is_unreachable(connect: Connect) -> None:
    with ScriptedPeer(lambda request: b"SSH-2.0-OpenSSH_9.6\r\n\r\n") as peer, pytest.raises(PeerUnreachable):
        ask(connect(peer))


def test_a_listener_that_takes_nobody_is_unreachable_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):  # so many connections fill its queue
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        connections = Connections("peer", Endpoint("127.0.0.1", port), Timeouts(connect_seconds=0.1))
        with pytest.raises(PeerUnreachable, match=r"within 0\.1 s"):
            ask(connections)
        for one in waiting:
            one.close()


def test_stop_breaks_a_call_that_waits_for_its_reply(connect: Connect) -> None:
    release, asked = threading.Event(), threading.Event()

    def script(request: Request) -> bytes:
        asked.set()
        release.wait(10)
        return response(b"late")

    with ScriptedPeer(script) as peer:
        stop, errors = StopFlag(), []

        def run() -> None:
            with pytest.raises(CallAborted) as caught:
                ask(connect(peer), stop=stop)
            errors.append(caught.value)

        thread = threading.Thread(target=run)
        thread.start()
        assert asked.wait(10)
        stop.stop()
        thread.join(5)
        assert [error.reason for error in errors] == ["aborted"]
        release.set()


def test_stop_leaves_other_calls_alone(connect: Connect) -> None:
    with ScriptedPeer(echo) as peer:
        connections = connect(peer)
        stop = StopFlag()
        ask(connections, stop=stop)
        stop.stop()
        assert ask(connections, call(b"x")) == b"x"
        assert stop.stopped
        assert {request.connection for request in peer.requests} == {1}


def test_an_endpoint_is_written_as_people_write_it() -> None:
    assert str(Endpoint("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Endpoint("fe80::1", 80)) == "[fe80::1]:80"


def test_a_flag_that_is_relayed_stops_with_the_other_and_not_the_reverse() -> None:
    parent, child, late = StopFlag(), StopFlag(), StopFlag()
    parent.relay(child)
    child.stop()
    assert not parent.stopped
    parent.stop()
    parent.relay(late)
    assert late.stopped
