from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import paramiko
import pytest

from kakeya_ops.errors import ConnectionLost
from kakeya_ops.remote.sftp_session import SftpSessions


class Client:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Connection:
    """Opens clients that do nothing, and counts them."""

    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.alive = True
        self.abandoned = 0

    def open_small(self) -> Client:
        self.clients.append(Client())
        return self.clients[-1]

    open_bulk = open_small

    def is_alive(self) -> bool:
        return self.alive

    def abandon(self) -> None:
        self.abandoned += 1


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.fixture
def sessions(connection: Connection) -> SftpSessions:
    return SftpSessions("mac", connection)


def test_the_small_one_is_kept_and_the_big_ones_are_not(connection: Connection, sessions: SftpSessions) -> None:
    for _ in range(2):
        with sessions.small("testing"):
            pass
        with sessions.bulk("testing"):
            pass
    assert [client.closed for client in connection.clients] == [False, True, True]
    sessions.close()
    assert connection.clients[0].closed


def test_a_files_own_failure_changes_nothing(connection: Connection, sessions: SftpSessions) -> None:
    with pytest.raises(FileNotFoundError), sessions.small("testing"):
        raise FileNotFoundError
    with sessions.small("testing"):
        pass
    assert (len(connection.clients), connection.abandoned) == (1, 0)


@pytest.mark.parametrize(
    "error",
    [EOFError(), TimeoutError(), BrokenPipeError(), paramiko.SSHException(), paramiko.SFTPError()],
    ids=lambda error: type(error).__name__,
)
def test_a_broken_connection_is_given_up(connection: Connection, sessions: SftpSessions, error: Exception) -> None:
    with pytest.raises(ConnectionLost) as caught, sessions.small("testing"):
        raise error
    assert ("nothing came" in caught.value.during) is isinstance(error, TimeoutError)
    assert connection.abandoned == 1
    assert connection.clients[0].closed
    with sessions.small("testing"):
        assert len(connection.clients) == 2


def test_any_failure_of_a_connection_that_is_gone_is_its_own(connection: Connection, sessions: SftpSessions) -> None:
    connection.alive = False
    with pytest.raises(ConnectionLost), sessions.bulk("testing"):
        raise OSError("Socket is closed")


def test_one_user_at_a_time(sessions: SftpSessions) -> None:
    inside = threading.Event()
    leave = threading.Event()

    def use() -> None:
        with sessions.small("testing"):
            inside.set()
            assert leave.wait(10)

    with ThreadPoolExecutor(1) as pool:
        using = pool.submit(use)
        assert inside.wait(10)
        assert not sessions.release()
        leave.set()
        using.result()
    assert sessions.release()
    assert not sessions.release()


def test_a_client_that_cannot_even_be_closed(connection: Connection, sessions: SftpSessions) -> None:
    def fail() -> None:
        raise OSError

    with contextlib.suppress(ConnectionLost), sessions.small("testing"):
        connection.clients[0].close = fail  # type: ignore[method-assign]
        raise EOFError
    assert connection.abandoned == 1
