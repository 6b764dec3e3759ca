from __future__ import annotations

import socket

import pytest

from kakeya_ops.bench.raw import copy_seconds, loopback_bytes_per_second


def test_bytes_pass_and_copies_take_time() -> None:
    assert loopback_bytes_per_second(1_000_000, repeats=2) > 1e6
    assert 0 < copy_seconds(1_000_000, repeats=2) < 1


def test_a_machine_without_loopback_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(OSError, match="no"):
        loopback_bytes_per_second(1000)
