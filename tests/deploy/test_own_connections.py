"""Whom a service's own process has reached."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from kakeya_ops.deploy.errors import ServiceError
from kakeya_ops.deploy.own_connections import Address, list_call, parse_connections, parse_listing, reached
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost

LABEL = "dev.kakeya.pair.allens"
CONNECT = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(1000)"


def endpoint(address: str, port: int) -> Endpoint:
    return Endpoint(network="lan", address=address, port=port)


def test_what_lsof_says_is_read() -> None:
    text = "p12\nf5\nn10.0.0.1:500->10.0.0.2:51051\nn[fe80:4::1]:6->[fe80:4::2]:53051\nn*:8080\nnonsense->\n"
    assert parse_connections(text) == {("10.0.0.2", 51051), ("fe80:4::2", 53051)}
    assert parse_connections("") == frozenset()


def test_an_address_must_be_the_one_and_a_name_may_be_any() -> None:
    found = {("10.0.0.2", 51051)}
    assert reached(found, [endpoint("10.0.0.3", 51051)]) is None
    assert reached(found, [endpoint("10.0.0.2", 51052)]) is None
    assert reached(found, [endpoint("head.local", 51052)]) is None
    for address in ("10.0.0.2", "head.local", "fe80::2%bridge0"):
        assert reached(found, [endpoint("10.9.9.9", 1), endpoint(address, 51051)]) == endpoint(address, 51051)


def own_connections() -> frozenset[Address]:
    return parse_listing("allens", LocalRunner("allens").run(list_call(LABEL)).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the simulated lsof reads what only Linux has")
def test_only_the_service_s_own_process_counts(mac: MacHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        port = server.getsockname()[1]
        mac.preload({"Label": LABEL, "ProgramArguments": ["/bin/sleep", "1000"], "RunAtLoad": True}, "user")
        assert own_connections() == frozenset(), "this process is connected, the service is not"
        mac.launchctl("bootout", f"{mac.domain('user')}/{LABEL}")
        mac.wait_until_gone(LABEL, "user")
        mac.preload({"Label": LABEL, "ProgramArguments": [sys.executable, "-c", CONNECT, str(port)], "RunAtLoad": True})
        with server.accept()[0], server.accept()[0]:
            mac.wait_for(lambda: ("127.0.0.1", port) in own_connections(), "the connection")


def test_what_cannot_be_told_is_an_error(mac: MacHost) -> None:
    with pytest.raises(ServiceError, match="no process"):
        own_connections()
    mac.preload({"Label": LABEL, "ProgramArguments": ["/bin/sleep", "1000"], "RunAtLoad": True})
    mac.add_tool("lsof", "#!/bin/sh\nexit 127\n")
    with pytest.raises(EnvironmentFault, match="no lsof"):
        own_connections()
    mac.add_tool("lsof", "#!/bin/sh\necho 'lsof: no kernel access' >&2\nexit 1\n")
    with pytest.raises(EnvironmentFault, match="no kernel access"):
        own_connections()
    assert Path(mac.bin, "lsof").exists()
