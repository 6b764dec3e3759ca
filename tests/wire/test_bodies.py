from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import InputError, SignatureRejected
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.bodies import (
    MOST_BLOCKS,
    MOST_PARTS,
    MOST_TOKENS,
    WORKER_RECEIPT_PURPOSE,
    ErrorBody,
    FetchRequest,
    LookupReply,
    LookupRequest,
    PrefillRequest,
    Progress,
    StreamHeader,
    WantedPart,
    WorkerReceipt,
)
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.signing import sign_document
from kakeya_ops.wire.statuses import peer_error

KEY = Secret(bytes(32))
DIGEST, NONCE = "ab" * 32, "cd" * 16

PREFILL = PrefillRequest(
    identity=DIGEST, tenant="one", tokens=(5, 6, 7), from_blocks=0, blocks=1, nonce=NONCE, request_id="req-1"
)
RECEIPT = WorkerReceipt(
    job="job-1",
    node="worker",
    epoch=1_700_000_000_000_000_000,
    instance=NONCE,
    identity=DIGEST,
    request_nonce=NONCE,
    prompt_blocks=4,
    from_blocks=1,
    computed_tokens=128,
    pool_tokens=64,
    blocks_digest=DIGEST,
    payload_bytes=4096,
    queue_seconds=0.0,
    compute_seconds=1.5,
    started_at=1_700_000_000.0,
    finished_at=1_700_000_001.5,
)
BODIES: list[WireBody] = [
    LookupRequest(identity=DIGEST, hashes=(DIGEST,)),
    LookupReply(resume_blocks=3, parts_held=7),
    FetchRequest(identity=DIGEST, blocks=(WantedPart(hash=DIGEST, part=1, block=2),)),
    PREFILL,
    StreamHeader(node="worker", epoch=1, instance=NONCE, identity=DIGEST, job="job-1", from_blocks=1, blocks=4),
    Progress(stage="computing", done_blocks=1, blocks=4, queue_seconds=0.5),
    RECEIPT,
    ErrorBody(code="busy", message="later", hint="wait", field="x", retry_after_seconds=2.0),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_every_body_survives_the_wire(body: WireBody) -> None:
    assert type(body).parse(body.encode()) == body


def change(body: WireBody, **values: object) -> bytes:
    return json.dumps(body.to_json() | values).encode()


@pytest.mark.parametrize(
    "values",
    [
        {"tokens": []},
        {"tokens": [-1]},
        {"tokens": [2**32]},
        {"tokens": [1.0]},
        {"tokens": [True]},
        {"tokens": ["1"]},
        {"tokens": "123"},
        {"tokens": [1] * (MOST_TOKENS + 1)},
        {"from_blocks": 2},
        {"from_blocks": -1},
        {"blocks": 4},
        {"blocks": MOST_BLOCKS + 1},
        {"nonce": "x"},
        {"request_id": ""},
        {"request_id": "with space"},
        {"request_id": "line\nbreak"},
        {"request_id": "x" * 129},
        {"tenant": ""},
        {"extra": 1},
    ],
    ids=lambda values: str(values)[:40],
)
def test_a_prefill_request_with_a_wrong_value_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InputError, match="PrefillRequest"):
        PrefillRequest.parse(change(PREFILL, **values))


def test_the_largest_bodies_fit_their_limits() -> None:
    tokens = (2**32 - 1,) * MOST_TOKENS
    prefill = PREFILL.model_copy(update={"tokens": tokens})
    assert PrefillRequest.parse(prefill.encode()).tokens == tokens
    lookup = LookupRequest(identity=DIGEST, hashes=(DIGEST,) * MOST_BLOCKS)
    assert len(LookupRequest.parse(lookup.encode()).hashes) == MOST_BLOCKS
    fetch = FetchRequest(
        identity=DIGEST, blocks=(WantedPart(hash=DIGEST, part=2**16 - 1, block=MOST_BLOCKS - 1),) * MOST_PARTS
    )
    assert len(FetchRequest.parse(fetch.encode()).blocks) == MOST_PARTS


@pytest.mark.parametrize("hashes", [[DIGEST] * (MOST_BLOCKS + 1), ["zz" * 32], [1], DIGEST])
def test_a_lookup_of_too_much_or_of_something_else_is_refused(hashes: object) -> None:
    with pytest.raises(InputError, match="hashes"):
        LookupRequest.parse(json.dumps({"identity": DIGEST, "hashes": hashes}).encode())


def test_hashes_become_the_pools_keys() -> None:
    assert LookupRequest(identity=DIGEST, hashes=(DIGEST,)).block_hashes == (BlockHash(b"\xab" * 32),)
    fetch = FetchRequest(identity=DIGEST, blocks=(WantedPart(hash=DIGEST, part=3, block=0),))
    assert fetch.keys == (PartKey(BlockHash(b"\xab" * 32), 3),)


def test_a_receipt_is_its_signers() -> None:
    signed = RECEIPT.sign(KEY)
    WorkerReceipt.parse(signed.encode()).verify([Secret(b"other"), KEY])
    assert signed.mac == sign_document(KEY, WORKER_RECEIPT_PURPOSE, json.loads(RECEIPT.encode()))
    assert RECEIPT.sign(None) is RECEIPT


RECORDED = Path(__file__).parent / "recorded/newer"


def test_what_a_newer_release_tells_beyond_is_no_fault() -> None:
    reply = LookupReply.parse((RECORDED / "lookup_reply.json").read_bytes())
    assert (reply.resume_blocks, reply.parts_held) == (3, 7)
    progress = Progress.parse((RECORDED / "progress.json").read_bytes())
    assert (progress.stage, progress.done_blocks) == ("compressing", 1)
    error = ErrorBody.parse((RECORDED / "error.json").read_bytes())
    assert peer_error("worker", 409, error).message == "worker: the machine is too warm to compute"


def test_a_newer_receipt_is_still_its_signers_with_all_that_it_says() -> None:
    receipt = WorkerReceipt.parse((RECORDED / "worker_receipt.json").read_bytes())
    receipt.verify([KEY])
    with pytest.raises(SignatureRejected):
        receipt.model_copy(update={"energy_joules": 1.0}).verify([KEY])


def test_what_a_newer_release_asks_beyond_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"PrefillRequest has a field that release .* does not know: precision"):
        PrefillRequest.parse((RECORDED / "prefill_request.json").read_bytes())


CHANGES: dict[str, Any] = {
    "job": "job-2",
    "node": "other",
    "epoch": 1,
    "instance": "ee" * 16,
    "identity": "ee" * 32,
    "request_nonce": "ee" * 16,
    "prompt_blocks": 5,
    "from_blocks": 0,
    "computed_tokens": 192,
    "pool_tokens": 0,
    "blocks_digest": "ee" * 32,
    "payload_bytes": 1,
    "queue_seconds": 1.0,
    "compute_seconds": 1.0,
    "started_at": 1.0,
    "finished_at": 1.0,
    "mac": "",
}


@pytest.mark.parametrize("field", list(WorkerReceipt.model_fields))
def test_whatever_is_changed_in_a_receipt_it_is_refused(field: str) -> None:
    forged = RECEIPT.sign(KEY).model_copy(update={field: CHANGES[field]})
    with pytest.raises(SignatureRejected, match="worker-receipt"):
        forged.verify([KEY])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from(BODIES), st.data())
def test_hostile_json_is_refused_or_read_but_never_anything_else(body: WireBody, data: st.DataObject) -> None:
    document = body.to_json()
    for name in data.draw(st.sets(st.sampled_from(sorted(document)), max_size=3)):
        document[name] = data.draw(JSON)
    try:
        parsed = type(body).parse(json.dumps(document).encode())
    except InputError:
        return
    assert type(body).parse(parsed.encode()) == parsed


@given(st.sampled_from(BODIES), st.binary(max_size=100), st.integers(0, 400))
def test_hostile_bytes_are_refused_or_read_but_never_anything_else(body: WireBody, noise: bytes, at: int) -> None:
    data = body.encode()
    with suppress(InputError):
        type(body).parse(data[:at] + noise + data[at + len(noise) :])


def test_earlier_releases_do_not_hear_of_what_they_do_not_know() -> None:
    assert not {b"background", b"packing"} & set(re.findall(rb'"(\w+)":', PREFILL.encode()))
    quiet = PREFILL.model_copy(update={"background": True})
    assert PrefillRequest.parse(quiet.encode()) == quiet
    assert PrefillRequest.parse(PREFILL.encode()) == PREFILL
