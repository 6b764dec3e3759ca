"""The requests of a drill: prompts that nobody has seen, sent through the head under a signed directive."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.verify.head_client import Completion, HeadClient
from kakeya_ops.verify.probe import probe_text
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, Directive, body_digest, encode_directive, new_nonce

BLOCKS = 8
"""Of a prompt at least, so that a first, a middle and a last one are three."""
DECODED_TOKENS = 16
LOCAL = frozenset({"local"})
_POLL_SECONDS = 0.1

Receipt = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """An answer, its receipt, and how long it took here."""

    completion: Completion
    receipt: Receipt
    seconds: float


class Inquirer:
    """Asks the head behind `client`, in the name of whoever holds `key`. Every method raises `PeerError`."""

    def __init__(self, client: HeadClient, key: Secret) -> None:
        self.client = client
        self._key = key
        self._words = 0
        self._model: str = ""

    def size(self, worker: str, least_tokens: int) -> None:
        """Find out how many words a prompt takes to be long enough, which depends on the tokenizer."""
        head = self.client.network()["head"]
        self._model = str(head.get("model"))
        wanted = max(least_tokens, BLOCKS * int(head["block_tokens"])) + int(head["block_tokens"]) + 1
        self._words = wanted // 2
        sample = self.ask(self.body(), frozenset({"remote"}), new_nonce(), worker).completion
        # A third more than by this sample, since the next prompt's words are others.
        self._words = max(self._words * wanted * 4 // (3 * max(sample.prompt_tokens, 1)), 1)

    def body(self, max_tokens: int = DECODED_TOKENS) -> bytes:
        """A request about a prompt that nobody has seen."""
        prompt = probe_text(new_nonce(), self._words)
        request = {"model": self._model, "prompt": prompt, "temperature": 0, "max_tokens": max_tokens, "logprobs": 1}
        return json.dumps(request).encode()

    def ask(self, body: bytes, modes: frozenset[str], nonce: str, node: str | None = None) -> Asked:
        """Send `body` under a directive of `modes`, with which no node but `node` is asked."""
        directive = Directive(modes, nonce, NodeId(node) if node else None)
        value = encode_directive(self._key, directive, body_digest(body), time.time())
        began = time.monotonic()
        completion = self.client.complete(body, {DIRECTIVE_HEADER: value})
        seconds = time.monotonic() - began
        return Asked(completion, self.client.receipt(completion.request_id), seconds)

    def fallbacks(self) -> Mapping[str, float]:
        """The head's fallbacks so far, by reason."""
        return dict(self.client.summary()["fallbacks_by_reason"])

    def node(self, name: str) -> Mapping[str, Any]:
        """What the head says of the node called `name`; empty if it knows none."""
        return next((node for node in self.client.network()["nodes"] if node.get("node") == name), {})

    def wait(self, condition: Callable[[], bool], seconds: float) -> float | None:
        """How many seconds it took until `condition` held; None when it did not within `seconds`."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                return None
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began


__all__ = ["BLOCKS", "DECODED_TOKENS", "LOCAL", "Asked", "Inquirer", "Receipt"]
