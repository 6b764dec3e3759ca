"""Workers that hold the key, or do not, and send something else than what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kakeya_ops.errors import PeerError
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.client import BlockArrival, PeerClient, PrefillCall, ReceiptRejected
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash, NodeId
from kakeya_ops.wire.bodies import PrefillRequest, StreamHeader, WorkerReceipt
from kakeya_ops.wire.frames import FrameType, FrameWriter, stream_key
from kakeya_ops.wire.signing import new_nonce, nonce_of
from peer.scripted import Request, ScriptedPeer
from serving.running import KEY, TENANT, hash_prompt, make_caller, payload, simple_identity, simple_layout

LAYOUT = simple_layout()
IDENTITY = simple_identity(LAYOUT)
PROMPT = hash_prompt(IDENTITY, tuple(range(81)))
BLOCKS = 5
WANTED = tuple((block, part) for block, part in LAYOUT.needed(BLOCKS) if block >= 1)
INSTANCE = "a" * 32


@dataclass(frozen=True)
class Lie:
    """How a worker differs from an honest one. With `named_as` every block bears the hash of that one."""

    header: dict[str, Any] | None = None
    receipt: dict[str, Any] | None = None
    blocks: tuple[tuple[int, int], ...] = WANTED
    named_as: int | None = None
    stream: Secret = KEY
    signer: Secret | None = KEY
    frames: tuple[str, ...] = ("header", "blocks", "receipt", "end")

    def hash(self, block: int) -> BlockHash:
        return PROMPT.hashes[block if self.named_as is None else self.named_as]


def tell(lie: Lie, request: Request) -> bytes:
    """The response of such a worker."""
    asked = PrefillRequest.parse(request.body)
    writer = FrameWriter(stream_key(lie.stream, "down", nonce_of(request.headers)))
    header = {"node": "worker", "epoch": 1, "instance": INSTANCE, "identity": asked.identity, "job": "j"}
    parts = {(block, part): payload(LAYOUT, part, block) for block, part in lie.blocks}
    receipt = WorkerReceipt.model_validate(
        header
        | {
            "request_nonce": asked.nonce,
            "prompt_blocks": asked.blocks,
            "from_blocks": asked.from_blocks,
            "computed_tokens": 64,
            "pool_tokens": 16,
            "blocks_digest": blocks_digest((*place, stored.checksum) for place, stored in parts.items()),
            "payload_bytes": sum(stored.nbytes for stored in parts.values()),
            "queue_seconds": 0.0,
            "compute_seconds": 1.0,
            "started_at": 1.0,
            "finished_at": 2.0,
        }
        | (lie.receipt or {})
    ).sign(lie.signer)
    made: dict[str, Callable[[], list[Any]]] = {
        "header": lambda: [
            writer.encode(FrameType.HEADER, StreamHeader.model_validate(header | (lie.header or {})).encode())
        ],
        "blocks": lambda: [
            writer.encode_block(PartKey(lie.hash(block), part), block, payload(LAYOUT, part, block))
            for block, part in lie.blocks
        ],
        "receipt": lambda: [writer.encode(FrameType.RECEIPT, receipt.encode())],
        "end": lambda: [writer.encode(FrameType.END)],
    }
    body = b"".join(fields + bytes(data) for name in lie.frames for fields, data in made[name]())
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def prefill(lie: Lie, arrived: list[BlockArrival]) -> WorkerReceipt:
    request = PrefillRequest(
        identity=IDENTITY.digest,
        tenant=TENANT,
        tokens=PROMPT.tokens,
        from_blocks=1,
        blocks=BLOCKS,
        nonce=new_nonce(),
        request_id="r",
    )
    with ScriptedPeer(lambda received: tell(lie, received)) as peer:
        client = PeerClient(NodeId("worker"), peer.endpoint, make_caller(), LAYOUT)
        try:
            return client.prefill(PrefillCall(request, PROMPT.hashes, arrived.append))
        finally:
            client.close()


def test_an_honest_worker_is_believed() -> None:
    arrived: list[BlockArrival] = []
    receipt = prefill(Lie(), arrived)
    assert receipt.computed_tokens == 64
    assert tuple((arrival.block, arrival.part) for arrival in arrived) == WANTED


@pytest.mark.parametrize(
    "lie",
    [
        Lie(signer=None),
        Lie(signer=Secret(b"another")),
        Lie(stream=Secret(b"another")),
        Lie(receipt={"request_nonce": "0" * 32}),
        Lie(receipt={"job": "another"}),
        Lie(receipt={"node": "another"}),
        Lie(receipt={"epoch": 2}),
        Lie(receipt={"instance": "b" * 32}),
        Lie(receipt={"identity": "0" * 64}),
        Lie(receipt={"blocks_digest": "0" * 64}),
        Lie(header={"node": "another"}),
        Lie(header={"identity": "0" * 64}),
        Lie(header={"job": "another"}),
        Lie(header={"epoch": 2}),
        Lie(named_as=0),
        Lie(blocks=((0, 0), *WANTED)),
        Lie(blocks=(*WANTED, WANTED[-1])),
        Lie(frames=("header", "blocks", "end")),
        Lie(frames=("header", "receipt", "blocks", "end")),
        Lie(frames=("header", "blocks", "receipt", "receipt", "end")),
        Lie(frames=("header", "blocks", "receipt")),
    ],
)
def test_a_worker_that_lies_is_found_out(lie: Lie) -> None:
    arrived: list[BlockArrival] = []
    with pytest.raises(PeerError):
        prefill(lie, arrived)
    for arrival in arrived:
        assert arrival.hash == PROMPT.hashes[arrival.block]


def test_a_lie_is_called_corrupt() -> None:
    with pytest.raises(ReceiptRejected, match="another request"):
        prefill(Lie(receipt={"request_nonce": "0" * 32}), [])
    with pytest.raises(ReceiptRejected, match="other blocks"):
        prefill(Lie(receipt={"blocks_digest": "0" * 64}), [])
    with pytest.raises(ReceiptRejected, match="worker-receipt rejected"):
        prefill(Lie(signer=None), [])
    with pytest.raises(ReceiptRejected, match="without a receipt"):
        prefill(Lie(frames=("header", "blocks", "end")), [])
