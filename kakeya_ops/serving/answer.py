"""One request on the head, from its arrival to its last token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kakeya_ops.engine.contract import DecodeEvent, FailedEvent, PrefillEvent, Ticket, TokenEvent
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.contract import GenerateRequest, OnHeadEvent, PrefixReady
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.serving.underway import Lead

MakeReceipt = Callable[[dict[str, float]], Receipt]


class Answer:
    """A request and whoever listens to it. `cancel` may be called from any thread, at any stage."""

    def __init__(self, request: GenerateRequest, on_event: OnHeadEvent, on_end: Callable[[], None]) -> None:
        self.request = request
        self.started_at = time.time()
        self.stop = StopFlag()
        self.seconds: dict[str, float] = {}
        self.tokens: list[int] = []
        """What was decoded so far."""
        self._began = time.monotonic()
        self._on_event = on_event
        self._on_end = on_end
        self._lock = threading.Lock()
        self._taken = False
        self._ticket: Ticket | None = None
        self._lead: Lead | None = None
        self._left = False
        self._make_receipt: MakeReceipt | None = None
        self._ended = threading.Event()

    def cancel(self) -> None:
        """Stop at the next step, chunk or frame; at once if it is still waiting for its turn.

        A prefill that others may wait for goes on for its grace period, without a listener.
        """
        self.stop.stop()
        if self.begin():
            self.fail(Cancelled())
            return
        with self._lock:
            ticket, lead, prefilling = self._ticket, self._lead, self._make_receipt is not None
        if ticket is None:
            return
        if lead and prefilling and lead.linger(ticket.cancel):
            self._left = True
            self._tell(FailedEvent(Cancelled()))
        else:
            ticket.cancel()

    def begin(self) -> bool:
        """Take it up, which only one can: False when it was taken up, or given up, before."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken

    def elapsed(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self._began

    def share(self, lead: Lead) -> None:
        """Equal requests wait for this one's prefill."""
        with self._lock:
            self._lead = lead

    def expect(self, make_receipt: MakeReceipt) -> None:
        """Say how the receipt is made once the first token is there; before the engine is asked."""
        self._make_receipt = make_receipt

    def follow(self, ticket: Ticket) -> None:
        """The engine works on it now."""
        with self._lock:
            self._ticket = ticket
        if self.stop.stopped:
            ticket.cancel()

    def fail(self, error: Exception) -> None:
        """End with `error`."""
        self.emit(FailedEvent(error))

    def emit(self, event: DecodeEvent) -> None:
        """Pass on what the engine says; the receipt goes before the first token."""
        if self._lead:
            self._lead.hear(event)
        if not self._left:
            self._tell(event)

    def _tell(self, event: DecodeEvent) -> None:
        last = isinstance(event, FailedEvent) or (isinstance(event, TokenEvent) and event.finish is not None)
        try:
            if isinstance(event, PrefillEvent) and event.node is None and event.done == event.total:
                self.seconds["prefilled"] = self.elapsed()
            if isinstance(event, TokenEvent):
                self.tokens.append(event.token)
                if self._make_receipt:
                    self._announce(self._make_receipt)
            if last:  # whoever hears it may ask again at once, and is to find a place
                self.end()
            self._on_event(event)
        finally:
            if last:
                self.end()

    def _announce(self, make_receipt: MakeReceipt) -> None:
        self._make_receipt = None
        self.seconds["first_token"] = self.elapsed()
        receipt = make_receipt(dict(self.seconds))
        self._on_event(PrefixReady(receipt.reused_tokens, receipt.digest, receipt.forgotten_tokens))

    def end(self) -> None:
        """Give the place back; once."""
        with self._lock:
            first = not self._ended.is_set()
            self._ended.set()
        if first:
            self._on_end()

    def wait(self) -> None:
        """Wait for the end."""
        self._ended.wait()


__all__ = ["Answer", "MakeReceipt"]
