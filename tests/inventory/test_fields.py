from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kakeya_ops.inventory import fields
from kakeya_ops.inventory.fields import is_loopback, is_unspecified


def accepts(kind: Any, value: object) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (fields.Label, ["a", "0", "mac-mini-2", "a" * 63], ["", "A", "-a", "a.b", "a_b", "all", "a" * 64, "a\n", "é"]),
        (
            fields.Address,
            ["169.254.187.239", "allens.local", "mac", "::1", "fe80::1%bridge0", "LOCALHOST", "a.b."],
            ["", "0.0.0.0", "::", "1.2.3.300", "1.2.3", "a b", "a:1", "http://a", "fe80::1%a b", "a..b", "a" * 254],
        ),
        (fields.BindAddress, ["0.0.0.0", "::", "127.0.0.1"], ["*", ""]),
        (fields.HostPath, ["/a", "~", "~/a b", "/"], ["", "a", "./a", "~me/a", "$HOME/a", "/a\n", "/a\0"]),
        (fields.Port, [1, 65535], [0, 65536, -1, "80", True, 80.0]),
        (fields.BlockTokens, [16, 32, 64, 128, 256, 512], [0, 8, 15, 48, 63, 65, 511, 513, 1024, -64, 64.0]),
        (fields.Gigabytes, [0.01, 4, 4096], [0, -1, 4097, float("nan"), "4"]),
        (fields.VariableName, ["A", "_a1"], ["", "1A", "A-B", "A=B", "A B"]),
        (fields.Text, ["a", "two words"], ["", "a\nb", "a\0", "a" * 201, "a\n"]),
    ],
)
def test_what_single_values_may_be(kind: Any, good: list[object], bad: list[object]) -> None:
    assert [value for value in good if not accepts(kind, value)] == []
    assert [value for value in bad if accepts(kind, value)] == []


def test_addresses_are_kept_in_one_spelling() -> None:
    assert TypeAdapter(fields.Address).validate_python("0:0:0::1") == "::1"


@pytest.mark.parametrize(
    ("address", "loopback", "unspecified"),
    [
        ("127.0.0.1", True, False),
        ("127.8.9.1", True, False),
        ("::1", True, False),
        ("Localhost", True, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("192.168.1.4", False, False),
        ("localhost.example", False, False),
    ],
)
def test_which_addresses_are_this_machines_own(address: str, loopback: bool, unspecified: bool) -> None:
    assert (is_loopback(address), is_unspecified(address)) == (loopback, unspecified)


@given(st.text(max_size=80))
def test_any_text_is_an_address_or_not(text: str) -> None:
    accepts(fields.Address, text)
    accepts(fields.HostPath, text)
