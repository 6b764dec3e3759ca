"""Every request of the head's clients while it is answered: how far it is, how fast, and how it ended.

The head's threads only put down what happened and when, which takes no lock and waits for nobody. `Watch.drain`, on
another thread, makes counters, histograms and live jobs of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Literal

from prometheus_client import Histogram

from kakeya_ops.engine.contract import FailedEvent, PrefillEvent, Ticket, TokenEvent
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineBusy, EngineDead, KakeyaError, MemoryShort, RemoteRequired
from kakeya_ops.front.series import Latencies
from kakeya_ops.serving.contract import GenerateRequest, Head, HeadEvent, OnHeadEvent
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.metrics import FIRST_TOKEN, INTER_TOKEN, REQUEST_SECONDS, Metric
from kakeya_ops.serving.receipts import Receipt, ReceiptBook

Stage = Literal["queued", "remote prefill", "prefill", "decode"]

_KEPT_OUTCOMES = 1024
_FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_INTER_TOKEN_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)
_REQUEST_BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

_logger = logging.getLogger(__name__)


@dataclass
class Live:
    """One request under way; `began` is monotonic, `started_at` Unix time. Written by `Watch.drain` alone."""

    request_id: str
    tenant: str
    prompt_tokens: int
    began: float
    started_at: float
    stage: Stage = "queued"
    node: str | None = None
    done_tokens: int = 0
    total_tokens: int = 0
    decoded_tokens: int = 0
    first_token_seconds: float | None = None
    last_token: float = 0.0

    def to_json(self, now: float) -> dict[str, Any]:
        """A plain value; `now` is monotonic."""
        return {
            "request_id": self.request_id,
            "stage": self.stage,
            "node": self.node,
            "prompt_tokens": self.prompt_tokens,
            "done_tokens": self.done_tokens,
            "total_tokens": self.total_tokens,
            "decoded_tokens": self.decoded_tokens,
            "first_token_seconds": self.first_token_seconds,
            "started_at": self.started_at,
            "seconds": round(now - self.began, 3),
        }


@dataclass(frozen=True)
class Outcome:
    """How a request ended: ``stop``, ``length``, ``cancelled`` by its client or a stop string, or why it failed."""

    finish: str
    decoded_tokens: int
    seconds: float
    first_token_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return {
            "finish": self.finish,
            "decoded_tokens": self.decoded_tokens,
            "seconds": round(self.seconds, 6),
            "first_token_seconds": self.first_token_seconds,
        }


@dataclass
class Tally:
    """Tokens since the last look: computed here, come from peers, decoded."""

    local_tokens: int = 0
    remote_tokens: int = 0
    decoded_tokens: int = 0


@dataclass(frozen=True)
class _Arrival:
    """The first of a request's events."""


_Event = HeadEvent | _Arrival


@dataclass
class Watch:
    """What happened on one head, in memory that does not grow. Thread-safe."""

    counters: Counters
    receipts: ReceiptBook
    block_tokens: int
    _events: deque[tuple[float, Live, _Event]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._live: dict[str, Live] = {}
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._tally = Tally()
        self.first_token, self.inter_token = Latencies(), Latencies()
        self._first_token_histogram = self._histogram(FIRST_TOKEN, _FIRST_TOKEN_BUCKETS)
        self._inter_token_histogram = self._histogram(INTER_TOKEN, _INTER_TOKEN_BUCKETS)
        self._request_histogram = self._histogram(REQUEST_SECONDS, _REQUEST_BUCKETS)

    def _histogram(self, metric: Metric, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(metric.name, metric.description, buckets=buckets, registry=self.counters.registry)

    def begin(self, request: GenerateRequest) -> Live:
        """Put down that `request` came."""
        decode, now = request.decode, time.monotonic()
        live = Live(decode.request_id, request.tenant, len(decode.tokens), now, time.time())
        self._events.append((now, live, _Arrival()))
        return live

    def note(self, live: Live, event: HeadEvent) -> None:
        """Put down an event; from any thread, at once."""
        self._events.append((time.monotonic(), live, event))

    def drain(self) -> None:
        """Take everything that was put down into account."""
        with self._lock:
            while self._events:
                self._take(*self._events.popleft())

    def tally(self) -> Tally:
        """The tokens since this was last asked for."""
        with self._lock:
            tally, self._tally = self._tally, Tally()
        return tally

    def __len__(self) -> int:
        """How many requests are under way."""
        return len(self._live)

    def live(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """The requests under way, oldest first; with a `tenant` only its own."""
        now = time.monotonic()
        with self._lock:
            return [one.to_json(now) for one in self._live.values() if tenant in (None, one.tenant)]

    def outcome(self, request_id: str) -> Outcome | None:
        """How a request ended, None while it has not, or when that was too long ago."""
        with self._lock:
            return self._outcomes.get(request_id)

    def quantiles(self) -> dict[str, float | None]:
        """TTFT and inter-token latency of the last minute: ``first_token_seconds_p50`` and so on."""
        now = time.monotonic()
        with self._lock:
            measured = {"first_token_seconds": self.first_token, "inter_token_seconds": self.inter_token}
            return {
                f"{name}_{quantile}": value
                for name, latencies in measured.items()
                for quantile, value in latencies.quantiles(now).items()
            }

    def _take(self, now: float, live: Live, event: _Event) -> None:
        if isinstance(event, _Arrival):
            self._live[live.request_id] = live
            self.counters.add(CounterName.REQUESTS)
        elif isinstance(event, PrefillEvent):
            self._progress(live, event)
        elif isinstance(event, TokenEvent):
            self._token(now, live)
            if event.finish:
                self._end(now, live, event.finish)
        elif isinstance(event, FailedEvent):
            self._end(now, live, _reason(event.error))

    def _progress(self, live: Live, event: PrefillEvent) -> None:
        # Chunks end on the grid, so that the last one begins at the block boundary before.
        chunk = event.done - (event.done - 1) // self.block_tokens * self.block_tokens
        if event.node is None:
            self._tally.local_tokens += chunk
        else:
            self._tally.remote_tokens += chunk
        live.stage = "remote prefill" if event.node else "prefill"
        live.node, live.done_tokens, live.total_tokens = event.node, event.done, event.total

    def _token(self, now: float, live: Live) -> None:
        self._tally.decoded_tokens += 1
        self.counters.add(CounterName.TOKENS_DECODED)
        live.decoded_tokens += 1
        live.stage, live.node = "decode", None
        if live.first_token_seconds is None:
            live.first_token_seconds = round(now - live.began, 6)
            self.first_token.add(now, now - live.began)
            self._first_token_histogram.observe(now - live.began)
        else:
            self.inter_token.add(now, now - live.last_token)
            self._inter_token_histogram.observe(now - live.last_token)
        live.last_token = now

    def _end(self, now: float, live: Live, finish: str) -> None:
        if self._live.pop(live.request_id, None) is None:
            return
        outcome = Outcome(finish, live.decoded_tokens, now - live.began, live.first_token_seconds)
        self._outcomes[live.request_id] = outcome
        while len(self._outcomes) > _KEPT_OUTCOMES:
            self._outcomes.popitem(last=False)
        failed = finish not in ("stop", "length", "cancelled")
        if failed:
            self.counters.add(CounterName.REQUESTS_FAILED, reason=finish)
        else:
            self._request_histogram.observe(outcome.seconds)
        fields = _log_fields(live, outcome, self.receipts.get(live.request_id))
        _logger.log(logging.WARNING if failed else logging.INFO, "request ended", extra=fields)


def _log_fields(live: Live, outcome: Outcome, receipt: Receipt | None) -> dict[str, Any]:
    """What the log says of a request: numbers, names and ids."""
    fields = {"request_id": live.request_id, "tenant": live.tenant, "prompt_tokens": live.prompt_tokens}
    if receipt is not None:
        remote, fallback = receipt.remote, receipt.fallback
        fields |= {"decision": receipt.decision.kind, "gain": receipt.gain, "cached_tokens": receipt.reused_tokens}
        fields |= {"worker": remote.node, "job": remote.job} if remote else {}
        fields |= {"fallback": fallback.reason, "fallback_from": fallback.worker} if fallback else {}
    return fields | outcome.to_json()


def _reason(error: Exception) -> str:
    for kind, reason in _REASONS.items():
        if isinstance(error, kind):
            return reason
    return "internal"


_REASONS: dict[type[Exception], str] = {
    Cancelled: "cancelled",
    MemoryShort: "memory_short",
    EngineBusy: "busy",
    EngineDead: "engine_dead",
    RemoteRequired: "remote_required",
    KakeyaError: "error",
}


class WatchedHead:
    """`kakeya_ops.serving.contract.Head`: `head`, with every request of it watched."""

    def __init__(self, head: Head, watch: Watch) -> None:
        self.model_id = head.model_id
        self.text = head.text
        self.context_tokens = head.context_tokens
        self.vocabulary_size = head.vocabulary_size
        self._head = head
        self._watch = watch

    def submit(self, request: GenerateRequest, on_event: OnHeadEvent) -> Ticket:
        """See `Head.submit`."""
        live = self._watch.begin(request)

        def relay(event: HeadEvent) -> None:
            self._watch.note(live, event)
            on_event(event)

        try:
            return self._head.submit(request, relay)
        except Exception as error:  # nobody else would end what was begun
            self._watch.note(live, FailedEvent(error))
            raise

    def healthy(self) -> bool:
        """See `Head.healthy`."""
        return self._head.healthy()


__all__ = ["Live", "Outcome", "Stage", "Tally", "Watch", "WatchedHead"]
