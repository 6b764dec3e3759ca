"""Macs that are heard on loopback, announced by the real library."""

from __future__ import annotations

import socket

from zeroconf import ServiceInfo, Zeroconf

from kakeya_ops.founding.discovery import SSH, Announced, discover
from kakeya_ops.serving.announcing import announcing
from serving.running import make_cache

LOOPBACK = ["127.0.0.1"]


def test_a_mac_with_remote_login_and_a_node_are_one_each() -> None:
    zeroconf = Zeroconf(interfaces=LOOPBACK)
    server, packed = "allens.local.", [socket.inet_aton("192.0.2.7")]
    try:
        zeroconf.register_service(ServiceInfo(SSH, f"Allens' Mac.{SSH}", port=22, addresses=packed, server=server))
        with announcing(make_cache("vault"), LOOPBACK):
            found = {one.name: one for one in discover(1.0, LOOPBACK)}
    finally:
        zeroconf.close()
    assert found["Allens' Mac"] == Announced("Allens' Mac", "allens.local", ("192.0.2.7",))
    assert found["vault"].role == "cache"
    assert not discover(0.3, LOOPBACK)
