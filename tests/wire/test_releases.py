from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kakeya_ops.errors import InputError, SignatureRejected
from kakeya_ops.secret import Secret
from kakeya_ops.wire.nonces import WINDOW_SECONDS, NonceBook
from kakeya_ops.wire.releases import ReleaseOrder

KEY, OTHER = Secret(bytes(range(32))), Secret(bytes(32))
NOW = 1_000_000.0


def order(key: Secret = KEY) -> ReleaseOrder:
    return ReleaseOrder.sign(key, ("head", "allens"), "new memory", NOW)


def test_an_order_of_the_fleet_is_good_once() -> None:
    nonces, read = NonceBook(), ReleaseOrder.parse(order().encode())
    read.verify([OTHER, KEY], nonces, NOW + 1)
    with pytest.raises(SignatureRejected, match="replayed"):
        read.verify([KEY], nonces, NOW + 2)


@pytest.mark.parametrize("changes", [{"head": "other"}, {"node": "other"}, {"reason": "x"}, {"signed_at": NOW + 1}])
def test_no_word_of_it_can_be_changed(changes: dict[str, Any]) -> None:
    with pytest.raises(SignatureRejected, match="wrong key"):
        order().model_copy(update=changes).verify([KEY], NonceBook(), NOW)


def test_others_cannot_give_it_and_it_does_not_keep() -> None:
    with pytest.raises(SignatureRejected, match="wrong key"):
        order(OTHER).verify([KEY], NonceBook(), NOW)
    with pytest.raises(SignatureRejected, match="wrong key"):
        order().verify([], NonceBook(), NOW)
    with pytest.raises(SignatureRejected, match="stale"):
        order().verify([KEY], NonceBook(), NOW + WINDOW_SECONDS + 1)


def test_what_is_no_order_is_refused() -> None:
    with pytest.raises(ValidationError):
        ReleaseOrder.sign(KEY, ("head", "allens"), "", NOW)
    with pytest.raises(InputError, match="ReleaseOrder has a wrong head"):
        ReleaseOrder.parse(b'{"node": "allens"}')
