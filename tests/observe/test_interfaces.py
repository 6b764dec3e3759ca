"""Interfaces as macOS prints them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.observe.interfaces import Interface, parse_interfaces
from mac.host import MacHost


def test_the_interfaces_of_a_mac(mac: MacHost) -> None:
    mac.set(mtu={"bridge0": 9000})
    found = parse_interfaces(mac.run("ifconfig", "-a").stdout)
    assert list(found) == ["lo0", "en0", "bridge0"]
    assert found["lo0"] == Interface(16384, ("127.0.0.1",))
    assert found["bridge0"] == Interface(9000, ("fe80::5e", "169.254.10.2"))


@settings(max_examples=50)
@given(st.text())
def test_any_other_text_is_read_without_fail(text: str) -> None:
    for name, interface in parse_interfaces(text).items():
        assert name
        assert interface.mtu_bytes >= 0
