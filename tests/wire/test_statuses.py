from __future__ import annotations

import pytest

from kakeya_ops import errors
from kakeya_ops.errors import (
    EngineBusy,
    Fault,
    IdentityMismatch,
    InputError,
    InventoryError,
    KakeyaError,
    MemoryShort,
    PeerBusy,
    PeerError,
    PeerRefused,
    PoolFull,
    SignatureRejected,
)
from kakeya_ops.wire.bodies import ErrorBody
from kakeya_ops.wire.statuses import STATUSES, describe_error, peer_error, status_of

TREE = [getattr(errors, name) for name in errors.__all__]


def test_every_error_of_the_tree_has_a_row() -> None:
    assert set(STATUSES) == {kind for kind in TREE if isinstance(kind, type) and issubclass(kind, KakeyaError)}


def test_no_two_errors_share_a_code() -> None:
    codes = [code for _, code in STATUSES.values()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("status", [status for status, _ in STATUSES.values()])
def test_every_status_is_an_error(status: int) -> None:
    assert 400 <= status < 600


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InputError("x"), 400, "invalid_request"),
        (SignatureRejected("x"), 401, "signature_rejected"),
        (IdentityMismatch("sink", 4, 0), 409, "identity_mismatch"),
        (EngineBusy(1), 503, "engine_busy"),
        (MemoryShort(1), 503, "memory_short"),
        (PoolFull(2, 1), 507, "pool_full"),
        (InventoryError("inventory.yaml", (Fault("a", 1, "b"),)), 500, "invalid_inventory"),
    ],
)
def test_statuses_of_what_peers_meet_most(error: KakeyaError, status: int, code: str) -> None:
    assert status_of(error) == (status, code)


def test_a_class_that_is_not_in_the_table_has_its_parents_row() -> None:
    class Odd(PeerRefused):
        pass

    assert status_of(Odd("peer", 400, "odd", "odd")) == STATUSES[PeerRefused]


def test_the_body_tells_what_is_known() -> None:
    status, body = describe_error(IdentityMismatch("sink", 4, 0, peer="allens"))
    assert status == 409
    assert (body.code, body.field) == ("identity_mismatch", "sink")
    assert "4 here, 0 there" in body.message
    assert body.hint is not None
    assert describe_error(EngineBusy(2.5))[1].retry_after_seconds == 2.5


def test_a_text_that_is_too_long_is_cut() -> None:
    _, body = describe_error(KakeyaError("x" * 10_000, hint="y" * 10_000))
    assert (len(body.message), len(body.hint or "")) == (4096, 4096)
    assert ErrorBody.parse(body.encode()) == body


@pytest.mark.parametrize("error", [EngineBusy(2.5), MemoryShort(2.5), PeerBusy("other", 2.5)])
def test_a_busy_peer_is_busy_here(error: KakeyaError) -> None:
    status, body = describe_error(error)
    here = peer_error("allens", status, body)
    assert isinstance(here, PeerBusy)
    assert (here.peer, here.retry_after_seconds, here.reason) == ("allens", 2.5, "busy")


def test_any_other_answer_is_a_refusal_with_the_peers_own_word() -> None:
    here: PeerError = peer_error("allens", *describe_error(PoolFull(2, 1)))
    assert isinstance(here, PeerRefused)
    assert (here.peer, here.status, here.code) == ("allens", 507, "pool_full")
    assert isinstance(peer_error("allens", 503, ErrorBody(code="engine_busy", message="x")), PeerRefused)
