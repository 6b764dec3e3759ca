"""A head client that answers by rules, for everything above it: no socket, no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from bench.taken import receipt_of
from kakeya_ops.bench.samples import MODES, Kind
from kakeya_ops.errors import PeerRefused
from kakeya_ops.secret import Secret
from kakeya_ops.verify.head_client import Completion
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, NonceBook, body_digest, verify_directive

KEY = Secret(bytes(range(32)))
NOW_KINDS = {modes: kind for kind, modes in MODES.items()}


class ActingClient:
    """Two workers; the head computes at `local_rate` tokens/s, they at 1,000 after a fixed second.

    `spoil` may change a receipt, `on_complete` is told of every completion before it is answered.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.workers = ["worker", "second"]
        self.epochs = {"worker": 7, "second": 7, "head": 1}
        self.requests = 0
        self.computed = dict.fromkeys(self.workers, 0)
        self.asked: list[tuple[Kind, str | None, int]] = []
        self.documents: dict[str, dict[str, Any]] = {}
        self.live = 0
        self.local_rate = 500.0
        self.spoil: Callable[[dict[str, Any]], Any] = lambda receipt: None
        self.on_complete: Callable[[Kind], Any] = lambda kind: None
        self._clock = clock
        self._looks = 0.0
        self._nonces = NonceBook()
        self._receipts: dict[str, dict[str, Any]] = {}

    def complete(self, body: bytes, headers: Mapping[str, str]) -> Completion:
        kind, node = self._read(body, headers)
        self.on_complete(kind)
        tokens = len(json.loads(body)["prompt"]) // 2
        self.asked.append((kind, node, tokens))
        self.requests += 1
        request_id = f"request-{self.requests}"
        self._receipts[request_id] = self._receipt(kind, node or "worker", tokens)
        return Completion(request_id, tokens, "x", ("x",), (0.0,))

    def receipt(self, request_id: str) -> dict[str, Any]:
        return self._receipts[request_id]

    def network(self) -> dict[str, Any]:
        self._looks += 1
        nodes = [
            {
                "node": name,
                "role": "worker",
                "epoch": self.epochs[name],
                "reachable": True,
                "healthy": True,
                "identity_match": True,
                "usable": True,
                "issued_at": self._looks,
                "counters": {"tokens_computed": self.computed[name]},
                "link": {"network": "cable", "address": "10.0.0.9", "port": 1, "rtt_seconds": 0.001},
            }
            for name in self.workers
        ]
        head = {"node": "head", "role": "head", "epoch": self.epochs["head"], "model": "m"}
        return {"head": head, "nodes": nodes}

    def document(self, path: str) -> dict[str, Any]:
        if path == "/v1/network/summary":
            return {"counters": {"requests": self.requests}, "live": self.live}
        if path not in self.documents:
            raise PeerRefused("head", 404, "not_found", "there is no such path")
        return self.documents[path]

    def _read(self, body: bytes, headers: Mapping[str, str]) -> tuple[Kind, str | None]:
        if DIRECTIVE_HEADER not in headers:
            return "hot_hit", None
        value = headers[DIRECTIVE_HEADER]
        directive = verify_directive(value, [KEY], self._nonces, body_digest(body), self._clock())
        return NOW_KINDS[directive.modes], directive.node

    def _receipt(self, kind: Kind, node: str, tokens: int) -> dict[str, Any]:
        seconds = {"local": tokens / self.local_rate, "remote": 1.0 + tokens / 1000}.get(kind, 0.05)
        receipt = receipt_of(kind, tokens, node, first_token=seconds + 0.1)
        if receipt["remote"]:
            receipt["remote"]["epoch"] = self.epochs[node]
            self.computed[node] += receipt["remote"]["computed_tokens"]
        self.spoil(receipt)
        return receipt
