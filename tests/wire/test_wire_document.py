"""The worked example of ``docs/wire.md`` is made here, from the code, and must stand there word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_ops.errors import KakeyaError
from kakeya_ops.kv.hashing import blocks_digest, chain_hashes, tenant_key
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.wire.bodies import (
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
from kakeya_ops.wire.cards import Card, CardsExchange
from kakeya_ops.wire.drills import DrillRequest, DrillState, Fault
from kakeya_ops.wire.frames import HEAD_BYTES, FrameReader, FrameType, FrameWriter, stream_key
from kakeya_ops.wire.signing import REPLY_HEADER, REQUEST_HEADER, NodeSigner, body_digest, sign_reply
from kakeya_ops.wire.statuses import STATUSES

DOCUMENT = (Path(__file__).parents[2] / "docs/wire.md").read_text()

FLEET_KEY = Secret(bytes(range(32)))
NONCE = "000102030405060708090a0b0c0d0e0f"
IDENTITY = "11" * 32
LAYOUT = KvLayout(
    2,
    ("KVCache",),
    (
        PartLayout(
            "full", (ArrayLayout(0, "keys", "float16", (1, 2, 2)), ArrayLayout(0, "values", "float16", (1, 2, 2)))
        ),
    ),
)
FIELDS = (
    ("magic", 4),
    ("type", 1),
    ("flags", 1),
    ("part", 2),
    ("sequence", 4),
    ("block", 4),
    ("length", 4),
    ("hash", 32),
    ("checksum", 16),
    ("tag", 16),
)


def dissect(head: bytes, payload: bytes) -> Iterator[str]:
    """One line for each field of a frame, in hexadecimal."""
    at = 0
    for name, size in FIELDS:
        yield f"{name:<9}{head[at : at + size].hex()}"
        at += size
    yield f"{'payload':<9}{payload.hex() or '(none)'}"


def tell_request(body: bytes) -> Iterator[str]:
    signer = NodeSigner(NodeId("head"), FLEET_KEY, "private-fleet", lambda: 1_700_000_000.25)
    headers = signer.sign("POST", "/v1/kv/fetch", body, to="allens", nonce=NONCE)
    yield "POST /v1/kv/fetch"
    yield f"{REQUEST_HEADER}: {headers[REQUEST_HEADER]}"
    yield body.decode()
    yield f"body digest {body_digest(body)}"


def tell_stream(key: PartKey, part: StoredPart) -> Iterator[str]:
    writer = FrameWriter(stream_key(FLEET_KEY, "down", NONCE))
    header = StreamHeader(
        node="allens", epoch=1_700_000_000_000_000_000, instance="22" * 16, identity=IDENTITY, blocks=1
    )
    frames = [
        writer.encode(FrameType.HEADER, header.encode()),
        writer.encode_block(key, 0, part),
        writer.encode(FrameType.END),
    ]
    yield f"HEADER   {header.encode().decode()}"
    for head, payload in frames:
        yield ""
        yield from dissect(head, bytes(payload))
    read_back(frames)


def read_back(frames: list[tuple[bytes, memoryview]]) -> None:
    reader = FrameReader(stream_key(FLEET_KEY, "down", NONCE), LAYOUT)
    for head_bytes, payload in frames:
        reader.check(reader.parse_head(head_bytes), payload)
    assert reader.ended


def tell_example() -> str:
    """The whole example as it is printed in the document."""
    (block,) = chain_hashes([3, 70_000], 2, IDENTITY, tenant_key(FLEET_KEY, "private-fleet"))
    part = StoredPart.of(bytes(range(LAYOUT.parts[0].nbytes)))
    body = FetchRequest(identity=IDENTITY, blocks=(WantedPart(hash=block.hex(), part=0, block=0),)).encode()
    lines = [f"block hash {block.hex()}", "", *tell_request(body), "", *tell_stream(PartKey(block, 0), part), ""]
    lines.append(f"blocks digest {blocks_digest([(0, 0, part.checksum)])}")
    lines.append(f"{REPLY_HEADER} of a reply 200 with the body {{}}: {sign_reply(FLEET_KEY, NONCE, 200, b'{}')}")
    return "\n".join(lines)


def test_the_fields_are_the_whole_head() -> None:
    assert sum(size for _, size in FIELDS) == HEAD_BYTES
    assert all(f"| {name} " in DOCUMENT for name, _ in FIELDS)


def test_the_worked_example_is_what_the_code_does() -> None:
    assert f"```text\n{tell_example()}\n```" in DOCUMENT, f"\n{tell_example()}"


@pytest.mark.parametrize("error", STATUSES, ids=lambda kind: kind.__name__)
def test_every_row_of_the_error_table_is_told(error: type[KakeyaError]) -> None:
    status, code = STATUSES[error]
    assert f"| `{code}` | {status} | {error.__name__} |" in DOCUMENT


@pytest.mark.parametrize(
    "body",
    [
        LookupRequest,
        LookupReply,
        FetchRequest,
        PrefillRequest,
        StreamHeader,
        Progress,
        WorkerReceipt,
        Card,
        CardsExchange,
        DrillRequest,
        Fault,
        DrillState,
    ],
)
def test_every_body_and_its_fields_are_told(body: type[WireBody]) -> None:
    row = next(line for line in DOCUMENT.splitlines() if line.startswith(f"| {body.__name__} "))
    assert [name for name in body.model_fields if f"`{name}`" not in row] == []
