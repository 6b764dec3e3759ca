"""A receipt is explained, and believed only when the fleet's key signed it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kakeya_ops.errors import ExitCode, PeerRefused, RefusedError
from kakeya_ops.secret import Secret
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.verify.explain import Explanation, explain
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.wire.bodies import WORKER_RECEIPT_PURPOSE
from kakeya_ops.wire.signing import sign_document
from serving.test_receipts import RECEIPT, REMOTE
from verify.samples import FOREIGN_KEY, KEY, worker_receipt
from verify.scripted_head import ScriptedHead, serve


def signed(worker_key: Secret = KEY, head_key: Secret | None = KEY) -> Receipt:
    worker = worker_receipt() | {"queue_seconds": 0.0, "compute_seconds": 0.2}
    worker["mac"] = sign_document(worker_key, WORKER_RECEIPT_PURPOSE, worker)
    return replace(RECEIPT, remote=replace(REMOTE, worker_receipt=worker)).sign(head_key)


Ask = Callable[..., Explanation]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """``(receipt as the head tells it, keys)`` to its explanation."""
    head = ScriptedHead()
    with serve(head, time.time) as url, HeadClient(url) as client:

        def ask(told: Any, keys: tuple[Secret, ...] = (KEY,), request_id: str = "r1") -> Explanation:
            document = told.to_json() if isinstance(told, Receipt) else told
            head.replies["/v1/network/receipts/r1"] = (200, json.dumps(document).encode())
            return explain(client, request_id, keys, "there is no key here")

        yield ask


def verdicts(found: Explanation) -> list[tuple[str, str]]:
    return [(seal.whose, seal.verdict) for seal in found.seals]


def test_both_signatures_are_checked(ask: Ask) -> None:
    found = ask(signed())
    assert verdicts(found) == [("head", "valid"), ("worker", "valid")]
    assert found.trustworthy
    assert found.receipt == signed()
    assert found.digest == signed().digest
    assert found.gain.startswith("A faster worker: worker computed 576 of 641 prompt tokens in 0.200 s")
    assert [span.step for span in found.spans if span.node == "worker"] == ["transfer", "compute"]


def test_all_of_it_is_json(ask: Ask) -> None:
    document = json.loads(json.dumps(ask(signed()).to_json(), allow_nan=False))
    assert Receipt.from_json(document["receipt"]) == signed()
    assert document["signatures"][0] == {
        "whose": "head",
        "verdict": "valid",
        "detail": "signed with the fleet's key",
    }


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        (signed(head_key=FOREIGN_KEY), ["head"]),
        (replace(signed(), cached_tokens=1), ["head"]),
        (signed(head_key=None), ["head"]),
        (signed(worker_key=FOREIGN_KEY), ["worker"]),
        (RECEIPT.sign(KEY), ["worker"]),
    ],
)
def test_what_the_key_did_not_sign_is_not_believed(ask: Ask, told: Receipt, wrong: list[str]) -> None:
    found = ask(told)
    assert [whose for whose, verdict in verdicts(found) if verdict == "wrong"] == wrong
    assert not found.trustworthy


def test_without_a_key_nothing_is_claimed(ask: Ask) -> None:
    found = ask(signed(), keys=())
    assert [(seal.verdict, seal.detail) for seal in found.seals] == [("unchecked", "there is no key here")] * 2
    assert verdicts(ask(replace(RECEIPT, remote=None), keys=())) == [("head", "unsigned")]
    assert found.trustworthy


def test_a_key_that_is_being_replaced_counts_too(ask: Ask) -> None:
    assert ask(signed(), keys=(FOREIGN_KEY, KEY)).trustworthy


def test_what_is_not_kept_is_a_no(ask: Ask) -> None:
    with pytest.raises(RefusedError, match="keeps no receipt of request r2") as raised:
        ask(signed(), request_id="r2")
    assert raised.value.exit_code == ExitCode.NO


@pytest.mark.parametrize("told", [{}, signed().to_json() | {"more": 1}, signed().to_json() | {"times": []}])
def test_what_is_no_receipt_is_a_fault_of_the_head(ask: Ask, told: dict[str, Any]) -> None:
    with pytest.raises(PeerRefused, match="is no receipt"):
        ask(told)
