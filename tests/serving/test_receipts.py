"""Receipts: what they say is what is signed, and the book does not grow."""

from __future__ import annotations

import json
import threading
from dataclasses import fields, replace
from typing import Any

import pytest

from kakeya_ops.errors import SignatureRejected
from kakeya_ops.secret import Secret
from kakeya_ops.serving.receipts import PURPOSE, Fallback, Receipt, ReceiptBook, RemotePart, SourcePart
from kakeya_ops.serving.scheduler import Decision
from kakeya_ops.wire.signing import verify_document

KEY = Secret(bytes(range(32)))
REMOTE = RemotePart(
    node="worker",
    epoch=7,
    instance="ab" * 16,
    kind="remote_compute",
    job="j1",
    tokens=640,
    computed_tokens=576,
    pool_tokens=64,
    blocks=10,
    payload_bytes=640_000,
    blocks_digest="cd" * 32,
    transfer_seconds=1.5,
    link={"address": "127.0.0.1", "rtt_seconds": 0.0005},
    worker_receipt={"job": "j1", "mac": "ef" * 32},
)
RECEIPT = Receipt(
    request_id="r1",
    node="head",
    epoch=5,
    identity="12" * 32,
    tenant="private-fleet",
    client_nonce=None,
    prompt_tokens=641,
    block_tokens=64,
    decision=Decision("remote_compute", "worker", 10, "faster", {"local": 6.41, "remote_compute worker": 1.6}),
    local_pool_tokens=0,
    remote=REMOTE,
    local_computed_tokens=1,
    cached_tokens=640,
    fallback=None,
    forgotten_tokens=0,
    gain="faster worker",
    times={"lookup": 0.01, "first_token": 1.7},
    started_at=1_700_000_000.25,
)
OTHERWISE: dict[str, Any] = {
    "client_nonce": "99" * 16,
    "decision": replace(RECEIPT.decision, reason="demanded"),
    "remote": replace(REMOTE, blocks_digest="00" * 32),
    "fallback": Fallback("worker", "timeout", "worker: silent", 3),
    "gain": "none",
    "times": {"lookup": 0.02, "first_token": 1.7},
    "mac": "00" * 32,
}
"""Another value for each field that is neither text nor number."""


def changed(field: str) -> Receipt:
    value = getattr(RECEIPT, field)
    if field not in OTHERWISE:
        return replace(RECEIPT, **{field: f"{value}!" if isinstance(value, str) else value + 1})
    return replace(RECEIPT, **{field: OTHERWISE[field]})


def verify(receipt: Receipt, key: Secret = KEY) -> None:
    """As a client does, from what came over HTTP."""
    document = json.loads(json.dumps(receipt.to_json()))
    verify_document([key], PURPOSE, document, document["mac"])


def test_a_receipt_is_plain_json_and_says_what_was_decided() -> None:
    document = RECEIPT.to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["decision"] == {
        "kind": "remote_compute",
        "worker": "worker",
        "blocks": 10,
        "reason": "faster",
        "predicted_seconds": {"local": 6.41, "remote_compute worker": 1.6},
    }
    assert document["remote"]["worker_receipt"] == {"job": "j1", "mac": "ef" * 32}
    assert set(document) == {field.name for field in fields(Receipt)}


def test_a_signed_receipt_verifies_and_one_of_another_key_does_not() -> None:
    verify(RECEIPT.sign(KEY))
    assert RECEIPT.sign(KEY).sign(KEY) == RECEIPT.sign(KEY)
    with pytest.raises(SignatureRejected):
        verify(RECEIPT.sign(KEY), Secret(bytes(32)))
    with pytest.raises(SignatureRejected):
        verify(RECEIPT)


def test_a_fleet_without_a_key_leaves_it_unsigned() -> None:
    assert RECEIPT.sign(None) is RECEIPT


@pytest.mark.parametrize("field", [field.name for field in fields(Receipt)])
def test_every_field_counts(field: str) -> None:
    other = changed(field)
    assert other != RECEIPT
    assert other.digest != RECEIPT.digest
    forged = replace(other, mac=RECEIPT.sign(KEY).mac if field != "mac" else other.mac)
    with pytest.raises(SignatureRejected):
        verify(forged)


@pytest.mark.parametrize("field", [field.name for field in fields(RemotePart) if field.name != "sources"])
def test_every_field_of_the_workers_part_counts(field: str) -> None:
    value = getattr(REMOTE, field)
    other = {**value, "more": 1} if isinstance(value, dict) else f"{value}!" if isinstance(value, str) else value + 1
    forged = replace(RECEIPT, remote=replace(REMOTE, **{field: other}), mac=RECEIPT.sign(KEY).mac)
    with pytest.raises(SignatureRejected):
        verify(forged)


SOURCES = (
    SourcePart("worker", 7, "ab" * 16, 7, 448_000, 1.4, {"address": "127.0.0.1"}, None),
    SourcePart("cache", None, None, 3, 192_000, 0.6, {"address": "127.0.0.2"}, "unreachable"),
)
JOINT = replace(
    RECEIPT,
    decision=Decision("import", "worker", 10, "held"),
    remote=replace(
        REMOTE, kind="import", job=None, computed_tokens=0, pool_tokens=640, worker_receipt=None, sources=SOURCES
    ),
    gain="reuse",
)


def test_several_sources_are_each_named_signed_and_read_again() -> None:
    signed = JOINT.sign(KEY)
    document = json.loads(json.dumps(signed.to_json()))
    assert [
        (one["node"], one["blocks"], one["payload_bytes"], one["fault"]) for one in document["remote"]["sources"]
    ] == [
        ("worker", 7, 448_000, None),
        ("cache", 3, 192_000, "unreachable"),
    ]
    assert Receipt.from_json(document) == signed
    document["remote"]["sources"][1]["blocks"] = 4
    with pytest.raises(SignatureRejected):
        verify_document([KEY], PURPOSE, document, signed.mac)


def test_one_source_is_the_remote_part_itself() -> None:
    assert "sources" not in RECEIPT.to_json()["remote"]


def test_each_source_can_be_seen_alone() -> None:
    assert JOINT.remote is not None
    alone = SOURCES[1].alone(JOINT.remote)
    assert (alone.node, alone.payload_bytes, alone.transfer_seconds, alone.sources) == ("cache", 192_000, 0.6, ())


def test_the_digest_names_the_signed_receipt() -> None:
    signed = RECEIPT.sign(KEY)
    assert signed.digest == RECEIPT.sign(KEY).digest
    assert signed.digest != RECEIPT.digest
    assert len(bytes.fromhex(signed.digest)) == 32


def numbered(number: int) -> Receipt:
    return replace(RECEIPT, request_id=f"r{number}")


def test_the_book_keeps_the_newest() -> None:
    book = ReceiptBook(kept=3)
    for number in range(5):
        book.add(numbered(number))
    assert [receipt.request_id for receipt in book.last(9)] == ["r4", "r3", "r2"]
    assert [receipt.request_id for receipt in book.last(2)] == ["r4", "r3"]
    assert book.last(0) == []
    assert book.get("r1") is None
    assert book.get("r2") == numbered(2)


def test_a_receipt_with_a_known_id_takes_its_place_as_the_newest() -> None:
    book = ReceiptBook(kept=2)
    again = replace(numbered(0), epoch=9)
    for receipt in (numbered(0), numbered(1), again, numbered(2)):
        book.add(receipt)
    assert book.last(9) == [numbered(2), again]


def test_the_book_may_be_written_and_read_at_once() -> None:
    book = ReceiptBook(kept=10)

    def write(first: int) -> None:
        for number in range(first, first + 300):
            book.add(numbered(number))
            assert len(book.last(99)) <= 10

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 1000, 2000)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(book.last(99)) == 10
