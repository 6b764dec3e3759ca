"""Directed requests to a running head, and what its network API tells. Streams go by `streams`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from kakeya_ops.bench.gaps import Directed
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.samples import MODES, Kind, Sample, read_sample
from kakeya_ops.bench.streams import StreamServer, encode_stream_request
from kakeya_ops.bench.texts import Texts
from kakeya_ops.errors import PeerRefused
from kakeya_ops.units import NodeId
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.workers import find_workers
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, Directive, body_digest, encode_directive, new_nonce

CARD_SECONDS = 15.0
"""Longest wait for the workers' next cards."""
_POLL_SECONDS = 0.2


class Asker:
    """Asks the head at `plan.url`, and counts what it had done: `requests`, `computed_tokens` by worker."""

    def __init__(self, plan: BenchPlan, client: HeadClient) -> None:
        self._plan = plan
        self._client = client
        self.texts = Texts()
        self.model = ""
        self.requests = 0
        self.computed_tokens: dict[str, int] = {}

    def ask(self, kind: Kind, text: str, length: int, node: str | None = None) -> Sample:
        """One completion of a single token about `text`, its prefix made as `kind` says, by `node` if given.

        Raises `NotMeasured` if it went another way, `PeerUnreachable`, `PeerTimeout` or `PeerRefused` of the head.
        """
        request = {"model": self.model, "prompt": text, "temperature": 0, "max_tokens": 1, "logprobs": 1}
        body = json.dumps(request).encode()
        self.requests += 1
        completion = self._client.complete(body, self._direct(body, kind, node))
        self.texts.learn(text, completion.prompt_tokens)
        return self.sample(kind, length, completion.request_id)

    def sample(self, kind: Kind, length: int, request_id: str) -> Sample:
        """The sample in the receipt of a request of the bench's own. Raises as `ask` does."""
        receipt = self._client.receipt(request_id)
        self._count(receipt)
        return read_sample(kind, length, receipt)

    def _direct(self, body: bytes, kind: Kind, node: str | None) -> Mapping[str, str]:
        modes = MODES[kind]
        if not modes:
            return {}
        directive = Directive(modes, new_nonce(), None if node is None else NodeId(node))
        value = encode_directive(self._plan.fleet_keys[0], directive, body_digest(body), time.time())
        return {DIRECTIVE_HEADER: value}

    def stream_server(self) -> StreamServer:
        """The head as a server of streams."""
        key = self._plan.api_key
        headers = {"Authorization": f"Bearer {key.reveal().decode()}"} if key else {}
        return StreamServer(self._plan.url.rstrip("/"), self.model, headers)

    def stream_request(self, text: str, max_tokens: int, kind: Kind, node: str | None = None) -> Directed:
        """A streaming completion about `text`, to be sent within a minute, and count it."""
        self.requests += 1
        body = encode_stream_request(self.model, {"prompt": text, "max_tokens": max_tokens})
        return Directed(body, self._direct(body, kind, node))

    def network(self) -> dict[str, Any]:
        """The head and the nodes it knows."""
        return self._client.network()

    def summary(self) -> dict[str, Any]:
        """The fleet's totals."""
        return self._client.document("/v1/network/summary")

    def estimates(self) -> dict[str, Any] | None:
        """What the head itself predicts; None of a head that does not tell."""
        try:
            return self._client.document("/v1/network/estimates")
        except PeerRefused as error:
            if error.status == 404:
                return None
            raise

    def fresh_network(self) -> dict[str, Any]:
        """The same as `network`, once every live worker has sent a card that is newer than this call's beginning."""
        first = self.network()
        old = _marks(first)
        return self.look_until(lambda now: not old & _marks(now), CARD_SECONDS) if old else first

    def look_until(self, done: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        """The fleet as it is when `done` holds, or when `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while not done(network := self.network()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return network

    def _count(self, receipt: Mapping[str, Any]) -> None:
        remote = receipt.get("remote")
        if isinstance(remote, Mapping):
            node = str(remote.get("node"))
            self.computed_tokens[node] = self.computed_tokens.get(node, 0) + int(remote.get("computed_tokens") or 0)


def _marks(network: Mapping[str, Any]) -> set[tuple[Any, Any]]:
    nodes = network.get("nodes")
    _, workers = find_workers(nodes if isinstance(nodes, list) else [])
    return {(card.get("node"), card.get("issued_at")) for card in workers}


__all__ = ["CARD_SECONDS", "Asker"]
