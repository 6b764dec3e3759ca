from __future__ import annotations

import pytest

from kakeya_ops.errors import ReleaseMismatch
from kakeya_ops.wire.version import WIRE_HEADER, check_wire, wire_headers


def test_a_message_of_this_release_is_understood_and_so_is_one_from_before_versions_were_told() -> None:
    check_wire("peer", wire_headers())
    check_wire("peer", {name.lower(): value for name, value in wire_headers().items()})
    check_wire("peer", {})


@pytest.mark.parametrize("said", ["2", "0", "", "1.0", "x" * 1000])
def test_another_version_is_refused_by_name(said: str) -> None:
    with pytest.raises(ReleaseMismatch, match=r"^peer: speaks wire version .* speaks version 1$") as caught:
        check_wire("peer", {WIRE_HEADER: said})
    assert caught.value.hint is not None
    assert len(caught.value.message) < 120


def test_a_newer_release_takes_silence_for_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_ops.wire.version.WIRE_VERSION", 2)
    check_wire("peer", wire_headers())
    with pytest.raises(ReleaseMismatch, match=r"speaks wire version 1,"):
        check_wire("peer", {})
