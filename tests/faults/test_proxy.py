from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from faults.proxy import Fault, FaultProxy


class Echo:
    """Sends back what it is sent, until the client ends."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
            connection.close()
        except OSError:
            connection.close()


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    server = Echo()
    yield server.listener.getsockname()
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    server.thread.join(5)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(echo) as proxy:
        yield proxy


def ask(proxy: FaultProxy, data: bytes, seconds: float = 5.0) -> bytes:
    """What comes back for `data` until the connection ends. Raises `OSError` when it is reset or silent."""
    answer = b""
    with socket.create_connection(proxy.address, timeout=seconds) as connection:
        connection.sendall(data)
        try:
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ConnectionResetError from error  # "not connected", once the reset has come
        while got := connection.recv(65536):
            answer += got
    return answer


def test_passes_bytes_untouched_and_counts_them(proxy: FaultProxy) -> None:
    data = bytes(range(256)) * 1000
    assert ask(proxy, data) == data
    assert proxy.passed("up") == proxy.passed("down") == len(data)
    assert proxy.accepted == 1


def test_refuse_resets_new_connections_until_healed(proxy: FaultProxy) -> None:
    proxy.set("refuse")
    with pytest.raises(ConnectionError):
        ask(proxy, b"hello")
    proxy.heal()
    assert ask(proxy, b"hello") == b"hello"


def test_cut_passes_exactly_so_many_bytes(proxy: FaultProxy) -> None:
    proxy.set(down=Fault(cut_after_bytes=100_000))
    with pytest.raises(ConnectionError):
        ask(proxy, bytes(300_000))
    assert proxy.wait_until(lambda p: p.passed("down") == 100_000)


def test_one_byte_is_corrupted_and_only_that(proxy: FaultProxy) -> None:
    proxy.set(up=Fault(corrupt_at_byte=70_000))
    answer = ask(proxy, bytes(100_000))
    assert [index for index, byte in enumerate(answer) if byte] == [70_000]


def test_drop_is_one_way_silence(proxy: FaultProxy) -> None:
    proxy.set(down=Fault(drop_after_bytes=3))
    assert ask(proxy, b"hello") == b"hel"
    assert proxy.passed("up") == 5


def test_ignore_accepts_but_never_answers(proxy: FaultProxy) -> None:
    proxy.set("ignore")
    with pytest.raises(TimeoutError):
        ask(proxy, b"hello", seconds=0.1)


def test_delay_and_throttle_take_their_time(proxy: FaultProxy) -> None:
    proxy.set(up=Fault(delay_seconds=0.1), down=Fault(bytes_per_second=1_000_000))
    began = time.monotonic()
    assert len(ask(proxy, bytes(200_000))) == 200_000
    assert time.monotonic() - began >= 0.2


def test_sever_ends_connections_that_exist(proxy: FaultProxy) -> None:
    with socket.create_connection(proxy.address, timeout=5) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        proxy.sever()
        with contextlib.suppress(ConnectionError):  # or an end, where the other half was reset first and passed on
            assert connection.recv(1) == b""


def test_a_dead_target_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with FaultProxy(address) as proxy, pytest.raises(ConnectionError):
        ask(proxy, b"hello")
