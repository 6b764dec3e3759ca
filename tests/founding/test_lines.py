"""Round trip and rate between two Macs, of which both are this one."""

from __future__ import annotations

from kakeya_ops.founding.lines import Line, measure_line
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost
from ports import choose_ports

HERE, THERE = LocalRunner("head"), LocalRunner("allens")


def test_a_line_is_measured_both_ways(mac: MacHost) -> None:
    line = measure_line(HERE, THERE, "127.0.0.1", choose_ports(1)[0])
    assert line.rtt_seconds == 0.000512
    assert line.bytes_per_second is not None
    assert line.bytes_per_second > 2**20


def test_an_address_that_does_not_answer_is_not_tried_further(mac: MacHost) -> None:
    assert measure_line(HERE, THERE, "192.0.2.77") == Line("192.0.2.77", None, None)
    assert not [call for call in mac.calls() if call[0] == "nc"]


def test_a_mac_that_cannot_listen_leaves_the_rate_unknown(mac: MacHost) -> None:
    mac.add_tool("nc", "#!/bin/sh\nexit 1\n")
    line = measure_line(HERE, THERE, "127.0.0.1", choose_ports(1)[0])
    assert (line.rtt_seconds, line.bytes_per_second) == (0.000512, None)
