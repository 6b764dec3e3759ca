"""The error tree: drawn as it is, and each error with what its reader needs."""

from __future__ import annotations

import re

import pytest

from kakeya_ops import errors
from kakeya_ops.errors import (
    EngineBusy,
    ExitCode,
    Fault,
    IdentityMismatch,
    InputError,
    InventoryError,
    KakeyaError,
    PeerBusy,
    PeerError,
    PeerRefused,
    PoolFull,
)

CLASSES = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
TREE = {name: value for name, value in CLASSES.items() if issubclass(value, KakeyaError)}


def drawn() -> dict[str, tuple[int, int | None]]:
    """Depth and exit code of each class in the module's drawing."""
    lines = re.findall(r"^((?:│   |    )*(?:├── |└── )?)([A-Z]\w+)(?: \((\d+)\))?", errors.__doc__ or "", re.MULTILINE)
    return {name: (len(indent) // 4 - 1, int(code) if code else None) for indent, name, code in lines if name in TREE}


def test_the_drawing_is_the_tree() -> None:
    drawing = drawn()
    assert set(drawing) == set(TREE)
    for name, (depth, _) in drawing.items():
        assert len([base for base in TREE[name].__mro__ if issubclass(base, KakeyaError)]) - 1 == depth, name


def test_the_drawn_exit_codes_are_the_real_ones() -> None:
    for name, (_, code) in drawn().items():
        assert code is None or TREE[name].exit_code == code, name


def test_every_error_is_public() -> None:
    assert set(TREE) <= set(errors.__all__)


def test_an_error_has_a_sentence_and_perhaps_a_hint() -> None:
    error = InputError("the file is missing", hint="make one")
    assert (str(error), error.message, error.hint, error.exit_code) == (
        "the file is missing",
        "the file is missing",
        "make one",
        ExitCode.INPUT,
    )
    assert KakeyaError("no").hint is None


@pytest.mark.parametrize(("count", "words"), [(1, "1 fault"), (2, "2 faults")])
def test_an_inventory_error_counts_its_faults(count: int, words: str) -> None:
    faults = tuple(Fault(f"hosts.{index}", index, "wrong") for index in range(count))
    error = InventoryError("fleet.yaml", faults)
    assert error.message == f"fleet.yaml has {words}"
    assert error.faults == faults


def test_a_mismatch_names_the_field_both_sides_and_whose() -> None:
    error = IdentityMismatch("window", 2048, 64, peer="allens")
    assert error.message == "cache identity of allens differs in window: 2048 here, 64 there"
    assert (error.field, error.ours, error.theirs, error.peer) == ("window", 2048, 64, "allens")
    assert IdentityMismatch("window", 1, 2).message.startswith("cache identity differs")


def test_peer_errors_name_the_peer_and_a_counter_label() -> None:
    reasons = {name: value.reason for name, value in TREE.items() if issubclass(value, PeerError)}
    assert len(set(reasons.values())) == len(reasons), "two errors would be counted as one"
    assert PeerBusy("allens", 1.25).message == "allens: busy, about 1.2 s of work before ours"
    refused = PeerRefused("allens", 409, "identity_mismatch", "another window")
    assert (str(refused), refused.status, refused.code) == ("allens: another window", 409, "identity_mismatch")


def test_errors_of_capacity_say_how_much() -> None:
    assert EngineBusy(3.6).retry_after_seconds == 3.6
    assert "4 s" in EngineBusy(3.6).message
    full = PoolFull(10, 4)
    assert (full.needed_bytes, full.budget_bytes) == (10, 4)
