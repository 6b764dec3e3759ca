"""The JSON bodies of the peer protocol, of requests, replies and control frames. Cards are in `wire.cards`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from kakeya_ops.kv.pool import PartKey
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.body import Count, HexDigest, Name, Nonce, Seconds, TellingBody, WireBody
from kakeya_ops.wire.signing import sign_document, verify_document

MOST_BLOCKS = 16_384
"""The most blocks of one prompt that a request may name."""
MOST_PARTS = 65_536
"""The most payloads that one request may ask for."""
MOST_TOKENS = 262_144

WORKER_RECEIPT_PURPOSE = "worker-receipt"
"""What `wire.signing.sign_document` is told of a worker's receipt."""

BlockCount = Annotated[int, Field(ge=0, le=MOST_BLOCKS)]
TokenCount = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
TokenId = Annotated[int, Field(ge=0, lt=2**32)]
BlockHashes = Annotated[tuple[HexDigest, ...], Field(max_length=MOST_BLOCKS, strict=False)]


class LookupRequest(WireBody):
    """``POST /v1/kv/lookup``: asks how far a prompt with these block hashes could be resumed from the peer's pool."""

    identity: HexDigest
    hashes: BlockHashes

    limit_bytes: ClassVar[int] = 2 * 1024 * 1024

    @property
    def block_hashes(self) -> tuple[BlockHash, ...]:
        """The hashes as bytes."""
        return tuple(BlockHash(bytes.fromhex(text)) for text in self.hashes)


class LookupReply(TellingBody):
    """After `resume_blocks` blocks; `parts_held` counts all payloads of the asked blocks that are held.

    `under_way` says that a job is making the rest, which a request for all of them would join.
    """

    resume_blocks: BlockCount
    parts_held: Annotated[int, Field(ge=0, le=MOST_PARTS * 256)]
    under_way: bool = False


class WantedPart(WireBody):
    """One payload: part `part` of the block with `hash`. `block`, its number in the prompt, comes back with it."""

    hash: HexDigest
    part: Annotated[int, Field(ge=0, lt=2**16)]
    block: Annotated[int, Field(ge=0, lt=MOST_BLOCKS)]

    @property
    def key(self) -> PartKey:
        """The pool's key."""
        return PartKey(BlockHash(bytes.fromhex(self.hash)), self.part)


class _ExtendedRequest(WireBody):
    """A request whose later fields are sent only where they say something: older releases refuse them."""

    later: ClassVar[frozenset[str]] = frozenset({"packing", "background"})

    def encode(self) -> bytes:
        """The body as UTF-8 JSON."""
        silent = {name for name in self.later if not getattr(self, name, None)}
        return self.model_dump_json(exclude=silent).encode()


class FetchRequest(_ExtendedRequest):
    """``POST /v1/kv/fetch``: send these payloads, in this order.

    Of a node that knows it, the caller may ask for `packing`.
    """

    identity: HexDigest
    blocks: Annotated[tuple[WantedPart, ...], Field(min_length=1, max_length=MOST_PARTS, strict=False)]
    packing: Literal["exponents"] | None = None

    limit_bytes: ClassVar[int] = 8 * 1024 * 1024

    @property
    def keys(self) -> tuple[PartKey, ...]:
        """The pool's keys, in order."""
        return tuple(wanted.key for wanted in self.blocks)


class PrefillRequest(_ExtendedRequest):
    """``POST /v1/prefill``: make the KV of a prompt's first `blocks` blocks, and send those from `from_blocks` on.

    `from_blocks` are at the caller already. `nonce` comes back in the receipt, so that it is about this request only.
    In the `background`, the job is begun only by an idle worker, and given up as soon as it is wanted for another.
    `packing` is as for a fetch.
    """

    identity: HexDigest
    tenant: Name
    tokens: Annotated[tuple[TokenId, ...], Field(min_length=1, max_length=MOST_TOKENS, strict=False)]
    from_blocks: BlockCount
    blocks: BlockCount
    nonce: Nonce
    request_id: Annotated[str, Field(pattern=r"^[!-~]{1,128}\z")]
    background: bool = False
    packing: Literal["exponents"] | None = None

    limit_bytes: ClassVar[int] = 4 * 1024 * 1024

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if not self.from_blocks <= self.blocks <= len(self.tokens):
            raise ValueError("from_blocks, blocks and the number of tokens must not fall in this order")
        return self


class StreamHeader(WireBody):
    """The ``HEADER`` frame: who sends, and which blocks of which identity. `job` is None where nothing is computed."""

    node: Name
    epoch: Count
    instance: Nonce
    identity: HexDigest
    job: Name | None = None
    from_blocks: BlockCount = 0
    blocks: BlockCount = 0


class Progress(TellingBody):
    """A ``PROGRESS`` frame, which also tells that the sender lives: blocks done of those wanted, and the time left.

    `stage` is for people: ``queued``, ``computing`` or ``sending``, and newer releases may have others.
    """

    stage: Name
    done_blocks: BlockCount = 0
    blocks: BlockCount = 0
    queue_seconds: Seconds = 0.0


class WorkerReceipt(TellingBody):
    """A worker's signed account of what it did for one prefill request.

    Of the `prompt_blocks` blocks wanted, those from `from_blocks` on were sent. `computed_tokens` were computed by this
    job, `pool_tokens` came from the worker's pool. `blocks_digest` is `kv.hashing.blocks_digest` over all parts that
    were sent. The two ``_at`` are Unix times on the worker's clock.
    """

    job: Name
    node: Name
    epoch: Count
    instance: Nonce
    identity: HexDigest
    request_nonce: Nonce
    prompt_blocks: BlockCount
    from_blocks: BlockCount
    computed_tokens: TokenCount
    pool_tokens: TokenCount
    blocks_digest: HexDigest
    payload_bytes: Count
    queue_seconds: Seconds
    compute_seconds: Seconds
    started_at: Seconds
    finished_at: Seconds
    mac: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?\z")] = ""

    def sign(self, key: Secret | None) -> WorkerReceipt:
        """The same receipt with its MAC; unchanged in a fleet without a key."""
        if key is None:
            return self
        return self.model_copy(update={"mac": sign_document(key, WORKER_RECEIPT_PURPOSE, self.to_json())})

    def verify(self, keys: Sequence[Secret]) -> None:
        """Raise `SignatureRejected` unless one of `keys` signed exactly this receipt."""
        verify_document(keys, WORKER_RECEIPT_PURPOSE, self.to_json(), self.mac)


class ErrorBody(TellingBody):
    """What went wrong: the body of every reply that is not a success, and of an ``ERROR`` frame.

    `code` is one of `wire.statuses`; `field` names what differs or is wrong where that is known.
    """

    code: Name
    message: Annotated[str, Field(max_length=4096)]
    hint: Annotated[str, Field(max_length=4096)] | None = None
    field: Annotated[str, Field(max_length=256)] | None = None
    retry_after_seconds: Seconds | None = None


__all__ = [
    "MOST_BLOCKS",
    "MOST_PARTS",
    "MOST_TOKENS",
    "WORKER_RECEIPT_PURPOSE",
    "ErrorBody",
    "FetchRequest",
    "LookupReply",
    "LookupRequest",
    "PrefillRequest",
    "Progress",
    "StreamHeader",
    "WantedPart",
    "WorkerReceipt",
]
