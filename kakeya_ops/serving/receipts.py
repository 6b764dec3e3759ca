"""Receipts of the head: the signed account of how one request's prefix came to be, and the last of them in memory."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from pydantic import TypeAdapter

from kakeya_ops.secret import Secret
from kakeya_ops.serving.scheduler import Decision
from kakeya_ops.wire.signing import sign_document

PURPOSE = "head-receipt"
KEPT = 1024
"""How many receipts a head keeps, in memory and in its file."""

Gain = Literal["reuse", "faster worker", "overlap", "none"]


@dataclass(frozen=True)
class SourcePart:
    """What one of several nodes contributed: something of `blocks` blocks, over `link`, in `transfer_seconds`.

    `fault` is why it brought no more, where it failed; others brought the rest. Without a stream that ended well, it is
    not known which process it was (`epoch`, `instance`).
    """

    node: str
    epoch: int | None
    instance: str | None
    blocks: int
    payload_bytes: int
    transfer_seconds: float
    link: dict[str, Any]
    fault: str | None

    def alone(self, whole: RemotePart) -> RemotePart:
        """`whole` reduced to what this node did."""
        return replace(
            whole,
            node=self.node,
            epoch=self.epoch or 0,
            instance=self.instance or "",
            blocks=self.blocks,
            payload_bytes=self.payload_bytes,
            transfer_seconds=self.transfer_seconds,
            link=self.link,
            sources=(),
        )


@dataclass(frozen=True)
class RemotePart:
    """What other nodes contributed: `blocks_digest` is over the checksums of the blocks as they arrived.

    `worker_receipt` is the worker's own signed account, None where nothing was computed for this request. Where several
    nodes were asked, each is among `sources`, and `node`, `epoch`, `instance` and `link` are those of the one that
    brought most; all else is about all of them together.
    """

    node: str
    epoch: int
    instance: str
    kind: str
    job: str | None
    tokens: int
    computed_tokens: int
    pool_tokens: int
    blocks: int
    payload_bytes: int
    blocks_digest: str
    transfer_seconds: float
    link: dict[str, Any]
    worker_receipt: dict[str, Any] | None
    sources: tuple[SourcePart, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A plain value; `sources` is left out where there is but one."""
        document = dict(vars(self))
        sources = [dict(vars(source)) for source in document.pop("sources")]
        return document | {"sources": sources} if sources else document


@dataclass(frozen=True)
class Fallback:
    """Why the head computed locally after all; `kept_blocks` had arrived and were used. `reason` is a counter label."""

    worker: str
    reason: str
    message: str
    kept_blocks: int = 0


@dataclass(frozen=True)
class Receipt:
    """One request's prefix; the fields that end in ``_at`` are Unix times.

    Of the `times`, ``queued``, ``gathered``, ``prefilled`` and ``first_token`` are seconds since the request was
    received, at the end of what they name; ``lookup``, ``transfer``, ``import`` and ``wasted`` are how long it took.
    """

    request_id: str
    node: str
    epoch: int
    identity: str
    tenant: str
    client_nonce: str | None
    prompt_tokens: int
    block_tokens: int
    decision: Decision
    local_pool_tokens: int
    remote: RemotePart | None
    local_computed_tokens: int
    cached_tokens: int
    fallback: Fallback | None
    forgotten_tokens: int
    gain: Gain
    times: dict[str, float]
    started_at: float
    mac: str = field(default="")

    def to_json(self) -> dict[str, Any]:
        """A plain value; `decision` is reduced to kind, worker, reason and predictions."""
        decision = {
            "kind": self.decision.kind,
            "worker": self.decision.node,
            "blocks": self.decision.blocks,
            "reason": self.decision.reason,
            "predicted_seconds": self.decision.predicted_seconds,
        }
        # `asdict` would copy all that is in it, before the first token of each request.
        remote = self.remote.to_json() if self.remote else None
        fallback = dict(vars(self.fallback)) if self.fallback else None
        return vars(self) | {"decision": decision, "remote": remote, "fallback": fallback}

    @classmethod
    def from_json(cls, document: Any) -> Receipt:
        """The receipt of which `to_json` gave `document`. Raises `ValueError` for anything else."""
        decision = document.get("decision") if isinstance(document, dict) else None
        if not isinstance(decision, dict):
            raise ValueError("a receipt is an object that names a decision")
        renamed = {"node" if name == "worker" else name: value for name, value in decision.items()}
        receipt = _RECEIPT.validate_python({**document, "decision": renamed})
        if receipt.to_json() != document:
            raise ValueError("a receipt has its own fields and no others")
        return receipt

    def sign(self, key: Secret | None) -> Receipt:
        """The same receipt with its MAC, over everything but the MAC; unchanged in a fleet without a key."""
        if key is None:
            return self
        return replace(self, mac=sign_document(key, PURPOSE, self.to_json()))

    @property
    def reused_tokens(self) -> int:
        """Tokens of the prompt that no node had to compute for it."""
        return self.cached_tokens - min(self.remote.computed_tokens if self.remote else 0, self.cached_tokens)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON with the MAC, in hexadecimal."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


_RECEIPT = TypeAdapter(Receipt)


class ReceiptBook:
    """The last receipts, by request id. Thread-safe."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._follow: Callable[[Receipt], None] = lambda receipt: None
        self._lock = threading.Lock()
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()

    def add(self, receipt: Receipt) -> None:
        """Keep `receipt`, in the place of one with the same id; the oldest is dropped when there are too many."""
        self._keep(receipt)
        self._follow(receipt)

    def restore(self, receipts: Iterable[Receipt]) -> None:
        """Keep what an earlier process has kept, oldest first; nobody is told of it."""
        for receipt in receipts:
            self._keep(receipt)

    def follow(self, tell: Callable[[Receipt], None]) -> None:
        """Have `tell` called with each receipt that is added from now on. It must return at once."""
        self._follow = tell

    def _keep(self, receipt: Receipt) -> None:
        with self._lock:
            self._receipts[receipt.request_id] = receipt
            self._receipts.move_to_end(receipt.request_id)
            while len(self._receipts) > self._kept:
                self._receipts.popitem(last=False)

    def get(self, request_id: str) -> Receipt | None:
        """The receipt of `request_id`, or None when there is none any more."""
        with self._lock:
            return self._receipts.get(request_id)

    def last(self, count: int, *, tenant: str | None = None) -> list[Receipt]:
        """The newest `count` receipts, newest first; with a `tenant` only its own."""
        with self._lock:
            newest = reversed(self._receipts.values())
            return list(islice((one for one in newest if tenant in (None, one.tenant)), count))


__all__ = ["KEPT", "PURPOSE", "Fallback", "Gain", "Receipt", "ReceiptBook", "RemotePart", "SourcePart"]
