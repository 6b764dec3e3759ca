"""A node is announced with its id and role; that it cannot be is no fault of the node."""

from __future__ import annotations

import errno
import logging

import pytest
from zeroconf import Zeroconf

from kakeya_ops.serving import announcing as announcing_module
from kakeya_ops.serving.announcing import TYPE, announcing
from serving.running import make_cache

LOOPBACK = ["127.0.0.1"]


def test_what_is_announced_is_nothing_of_the_fleet() -> None:
    listener = Zeroconf(interfaces=LOOPBACK)
    try:
        with announcing(make_cache("vault"), LOOPBACK):
            info = listener.get_service_info(TYPE, f"vault.{TYPE}", 3000)
        assert info is not None
        assert info.decoded_properties == {"role": "cache"}
    finally:
        listener.close()


def test_a_network_that_does_not_take_it_costs_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENETDOWN, "Network is down")

    monkeypatch.setattr(announcing_module, "Zeroconf", refuse)
    with caplog.at_level(logging.WARNING), announcing(make_cache("vault"), LOOPBACK):
        pass
    assert "not announced on the local network" in caplog.text
