"""What an honest fleet would have told the probe, to be spoiled by tests."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.secret import Secret
from kakeya_ops.serving.receipts import PURPOSE as HEAD_RECEIPT
from kakeya_ops.verify.evidence import Answer, Evidence, Facts
from kakeya_ops.wire.bodies import WORKER_RECEIPT_PURPOSE
from kakeya_ops.wire.signing import sign_document

KEY = Secret(bytes(range(32)))
FOREIGN_KEY = Secret(bytes(32))
BLOCK_TOKENS = 64
PROMPT_TOKENS = 150
FLOOR_TOKENS = 128
PART = PartLayout("full", (ArrayLayout(0, "keys", "float32", (1, BLOCK_TOKENS, 4)),))
LAYOUT = KvLayout(BLOCK_TOKENS, ("KVCache",), (PART,))
IDENTITY = CacheIdentity(
    model_type="llama",
    weights="aa" * 32,
    quantization=None,
    geometry={"layers": 1},
    rope={},
    kv_dtype="float32",
    block_tokens=BLOCK_TOKENS,
    sink=4,
    window=None,
    layout=LAYOUT,
    tokenizer="bb" * 32,
    chat_template="cc" * 32,
)
DIGEST = "dd" * 32
NONCES = {label: digit * 32 for label, digit in (("cold", "1"), ("repeated", "2"), ("local", "3"))}
TOKENS = tuple("abcdefghijkl")
LOGPROBS = tuple(-0.1 * index for index in range(len(TOKENS)))


def worker_receipt() -> dict[str, Any]:
    """The worker's account of the cold request."""
    return {
        "job": "job-1",
        "node": "worker",
        "epoch": 7,
        "instance": "e" * 32,
        "identity": IDENTITY.digest,
        "request_nonce": NONCES["cold"],
        "prompt_blocks": 2,
        "from_blocks": 0,
        "computed_tokens": FLOOR_TOKENS,
        "pool_tokens": 0,
        "blocks_digest": DIGEST,
        "payload_bytes": 2 * PART.nbytes,
        "started_at": 100.25,
        "finished_at": 100.5,
    }


def remote_part() -> dict[str, Any]:
    """What the head says came from the worker for the cold request."""
    return {
        "node": "worker",
        "epoch": 7,
        "instance": "e" * 32,
        "kind": "remote_compute",
        "job": "job-1",
        "tokens": FLOOR_TOKENS,
        "computed_tokens": FLOOR_TOKENS,
        "pool_tokens": 0,
        "blocks": 2,
        "payload_bytes": 2 * PART.nbytes,
        "blocks_digest": DIGEST,
        "transfer_seconds": 0.01,
        "link": {},
        "worker_receipt": worker_receipt(),
    }


def receipt(label: str) -> dict[str, Any]:
    """The head's receipt of the request called `label`, unsigned."""
    remote: dict[str, Any] | None = remote_part()
    kind, worker, own = "remote_compute", "worker", PROMPT_TOKENS - FLOOR_TOKENS
    if label == "repeated":
        kind = "import"
        remote = remote_part() | {
            "kind": kind,
            "job": None,
            "computed_tokens": 0,
            "pool_tokens": FLOOR_TOKENS,
            "worker_receipt": None,
        }
    if label == "local":
        kind, worker, own, remote = "local", "", PROMPT_TOKENS, None
    return {
        "request_id": f"request-{label}",
        "node": "head",
        "epoch": 5,
        "identity": IDENTITY.digest,
        "tenant": "t",
        "client_nonce": NONCES[label],
        "prompt_tokens": PROMPT_TOKENS,
        "block_tokens": BLOCK_TOKENS,
        "decision": {"kind": kind, "worker": worker or None, "blocks": 2, "reason": "told so", "predicted_seconds": {}},
        "local_pool_tokens": 0,
        "remote": remote,
        "local_computed_tokens": own,
        "cached_tokens": PROMPT_TOKENS - own,
        "fallback": None,
        "forgotten_tokens": 0,
        "gain": "none",
        "times": {"lookup": 0.001, "first_token": 0.05},
        "started_at": 1000.5,
        "mac": "",
    }


def head_card() -> dict[str, Any]:
    """What the head says of itself."""
    return {
        "node": "head",
        "epoch": 5,
        "identity": IDENTITY.digest,
        "identity_document": IDENTITY.to_json(),
        "tenant": "t",
        "block_tokens": BLOCK_TOKENS,
        "model": "m",
        "window": None,
        "sink": 4,
    }


def worker_card(computed_tokens: int = 0, issued_at: float = 100.0) -> dict[str, Any]:
    """What the head says of the worker."""
    return {
        "node": "worker",
        "role": "worker",
        "epoch": 7,
        "instance": "e" * 32,
        "healthy": True,
        "reachable": True,
        "identity_match": True,
        "identity_difference": None,
        "prefill_tokens_per_second": 1000.0,
        "pool": {"used_bytes": 4096, "budget_bytes": 1 << 20},
        "counters": {"tokens_computed": computed_tokens},
        "issued_at": issued_at,
    }


def sign_receipt(document: dict[str, Any], worker_key: Secret = KEY, head_key: Secret = KEY) -> dict[str, Any]:
    """A copy of `document` with the worker's MAC, then the head's."""
    signed = deepcopy(document)
    inner = (signed["remote"] or {}).get("worker_receipt")
    if inner:
        inner["mac"] = sign_document(worker_key, WORKER_RECEIPT_PURPOSE, inner)
    signed["mac"] = sign_document(head_key, HEAD_RECEIPT, signed)
    return signed


@dataclass
class World:
    """An honest fleet's documents. Spoil them before they are signed (`receipts`), or after (`signed`)."""

    receipts: dict[str, dict[str, Any]] = field(default_factory=lambda: {label: receipt(label) for label in NONCES})
    head: dict[str, Any] = field(default_factory=head_card)
    head_after: dict[str, Any] = field(default_factory=head_card)
    card: dict[str, Any] = field(default_factory=worker_card)
    card_after: dict[str, Any] | None = field(default_factory=lambda: worker_card(FLOOR_TOKENS, 101.0))
    tokens: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(NONCES, TOKENS))
    logprobs: dict[str, tuple[float, ...]] = field(default_factory=lambda: dict.fromkeys(NONCES, LOGPROBS))
    min_tokens: int = 128

    @property
    def cold(self) -> dict[str, Any]:
        """The cold request's receipt."""
        return self.receipts["cold"]

    @property
    def worker_receipt(self) -> dict[str, Any]:
        """The worker's receipt within it."""
        found: dict[str, Any] = self.cold["remote"]["worker_receipt"]
        return found

    def sign(self, worker_key: Secret = KEY, head_key: Secret = KEY) -> World:
        """Sign every receipt."""
        for label, document in self.receipts.items():
            self.receipts[label] = sign_receipt(document, worker_key, head_key)
        return self

    def evidence(self) -> Evidence:
        """All of it as the probe would hold it."""
        cold, again, local = (self._answer(label) for label in NONCES)
        return Evidence(
            keys=(KEY,),
            min_tokens=self.min_tokens,
            head=Facts("head's own card", self.head),
            head_after=Facts("head's own card afterwards", self.head_after),
            card=Facts("worker's card", self.card),
            card_after=Facts("worker's card afterwards", self.card_after),
            cold=cold,
            again=again,
            local=local,
        )

    def _answer(self, label: str) -> Answer:
        return Answer(
            label=label,
            nonce=NONCES[label],
            request_id=f"request-{label}",
            prompt_tokens=PROMPT_TOKENS,
            tokens=self.tokens[label],
            logprobs=self.logprobs[label],
            receipt=self.receipts[label],
        )


__all__ = [
    "DIGEST",
    "FLOOR_TOKENS",
    "FOREIGN_KEY",
    "IDENTITY",
    "KEY",
    "LAYOUT",
    "LOGPROBS",
    "NONCES",
    "PART",
    "PROMPT_TOKENS",
    "TOKENS",
    "World",
    "head_card",
    "receipt",
    "remote_part",
    "sign_receipt",
    "worker_card",
    "worker_receipt",
]
