"""What a head writes down of each request: counters, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.engine.engine import Engine
from kakeya_ops.serving.answer import Answer
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.gather import Gathered
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import Gain, Receipt, ReceiptBook, RemotePart
from kakeya_ops.serving.scheduler import Decision

_FASTER = 1.25
"""A worker counts as faster from this ratio of prefill speeds on; two equal machines differ by less."""


@dataclass(frozen=True)
class Settled:
    """A request whose prefix is in the cache and whose first token is there; `seconds` are its receipt's times."""

    answer: Answer
    prompt: Prompt
    decision: Decision
    gathered: Gathered
    seconds: dict[str, float]


class Ledger:
    """Thread-safe, as its parts are."""

    def __init__(self, node: Node, engine: Engine) -> None:
        self.receipts = ReceiptBook()
        self._node = node
        self._engine = engine

    def record_transfer(self, decision: Decision, gathered: Gathered) -> None:
        """Count what a peer contributed, or why it did not."""
        counters, worker = self._node.counters, decision.node or ""
        counters.add(CounterName.IMPORT_SECONDS, gathered.seconds.get("import", 0.0))
        for node, received_bytes in _received(worker, gathered):
            counters.add(CounterName.BYTES_RECEIVED, received_bytes, worker=node)
        if fallback := gathered.fallback:
            counters.add(CounterName.FALLBACKS, worker=fallback.worker, reason=fallback.reason)
            if decision.kind == "remote_compute":
                counters.add(CounterName.REMOTE_JOB_FAILURES, worker=worker)
        if remote := gathered.remote:
            counters.add(CounterName.TRANSFER_SECONDS, remote.transfer_seconds, worker=remote.node)
            if remote.pool_tokens:
                counters.add(CounterName.REMOTE_HITS, worker=remote.node)
            for share in remote.sources:
                if share.fault:
                    counters.add(CounterName.TRANSFERS_RESUMED, worker=share.node, reason=share.fault)

    def settle(self, settled: Settled) -> Receipt:
        """Sign and keep the receipt of a request whose first token is there."""
        receipt = self._draw_up(settled).sign(self._node.fleet_key)
        self.receipts.add(receipt)
        self._count_tokens(receipt)
        return receipt

    def _count_tokens(self, receipt: Receipt) -> None:
        """Count each prompt token once: as computed here, as computed by a worker, or as reused."""
        counters = self._node.counters
        if remote := receipt.remote:
            computed_elsewhere = receipt.cached_tokens - receipt.reused_tokens
            counters.add(CounterName.TOKENS_COMPUTED_REMOTE, computed_elsewhere, worker=remote.node)
        counters.add(CounterName.TOKENS_COMPUTED_LOCAL, receipt.local_computed_tokens)
        counters.add(CounterName.TOKENS_REUSED, receipt.reused_tokens)
        if receipt.local_pool_tokens:
            counters.add(CounterName.LOCAL_HITS)

    def _draw_up(self, settled: Settled) -> Receipt:
        prompt, gathered = settled.prompt, settled.gathered
        block_tokens = prompt.layout.block_tokens
        cached_tokens = gathered.blocks * block_tokens
        directive = settled.answer.request.directive
        return Receipt(
            request_id=prompt.request_id,
            node=self._node.id,
            epoch=self._node.epoch,
            identity=self._engine.identity.digest,
            tenant=settled.answer.request.tenant,
            client_nonce=directive.nonce if directive else None,
            prompt_tokens=len(prompt.tokens),
            block_tokens=block_tokens,
            decision=settled.decision,
            local_pool_tokens=gathered.local_blocks * block_tokens,
            remote=gathered.remote,
            local_computed_tokens=len(prompt.tokens) - cached_tokens,
            cached_tokens=cached_tokens,
            fallback=gathered.fallback,
            forgotten_tokens=self._forgotten(len(prompt.tokens)),
            gain=self._gain(gathered),
            times={name: round(value, 6) for name, value in settled.seconds.items()},
            started_at=settled.answer.started_at,
        )

    def _forgotten(self, prompt_tokens: int) -> int:
        settings = self._engine.settings
        if settings.window is None:
            return 0
        return max(prompt_tokens - settings.sink - settings.window, 0)

    def _gain(self, gathered: Gathered) -> Gain:
        remote = gathered.remote
        if gathered.local_blocks or (remote and remote.pool_tokens):
            return "reuse"
        if remote is None:
            return "none"
        if self._is_known_faster(remote):
            return "faster worker"
        return "overlap" if self._engine.decoding > 1 else "none"

    def _is_known_faster(self, remote: RemotePart) -> bool:
        """Whether asking, computing there and receiving took less than this head would have needed."""
        own = self._engine.measured.tokens_per_second
        return bool(own and remote.computed_tokens > own * remote.transfer_seconds * _FASTER)


def _received(worker: str, gathered: Gathered) -> list[tuple[str, int]]:
    """The bytes that came from each peer, where any did."""
    shares = [(share.node, share.payload_bytes) for share in gathered.sources] or [(worker, gathered.received_bytes)]
    return [share for share in shares if share[1]]


__all__ = ["Ledger", "Settled"]
