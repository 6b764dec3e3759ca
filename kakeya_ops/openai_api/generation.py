"""A request while the head works on it: its events brought from the head's threads to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from starlette.types import Receive

from kakeya_ops.engine.contract import FailedEvent, PrefillEvent, TokenEvent
from kakeya_ops.engine.text import Segment, TextStream
from kakeya_ops.openai_api.errors import ClientGone, describe_failure
from kakeya_ops.serving.contract import GenerateRequest, Head, HeadEvent, PrefixReady

Progress = PrefillEvent | PrefixReady | TokenEvent
FinishReason = Literal["stop", "length", "tool_calls"]


class Generation:
    """The events of one request. Entering its context submits it; leaving the context ends it, whatever the reason.

    When the client goes, the head is told at once, even while nobody waits for an event.
    """

    def __init__(self, head: Head, request: GenerateRequest, receive: Receive) -> None:
        """`receive` is the ASGI channel of the request, its body already read."""
        self._head = head
        self._request = request
        self._receive = receive
        # Bounded by what one request can say: its chunks of prompt and its max_tokens.
        self._events: asyncio.Queue[HeadEvent | ClientGone] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        """Raise `EngineBusy` or `EngineDead` as `Head.submit` does."""
        loop = asyncio.get_running_loop()

        def on_event(event: HeadEvent) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it whoever could be told
                loop.call_soon_threadsafe(self._events.put_nowait, event)

        self._ticket = self._head.submit(self._request, on_event)
        self._watch = asyncio.create_task(self._watch_client())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        self._ticket.cancel()

    async def next(self, wait_seconds: float | None = None) -> Progress | None:
        """The next event; None if there is none for `wait_seconds`. Raises `ApiError` and `ClientGone`."""
        try:
            async with asyncio.timeout(wait_seconds):
                event = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(event, ClientGone):
            raise event
        if isinstance(event, FailedEvent):
            raise describe_failure(event.error) from event.error
        return event

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._ticket.cancel()
        self._events.put_nowait(ClientGone())


@dataclass(frozen=True)
class TokenLogprob:
    """One token, how likely it and the likeliest others were, and at which character of the text it begins."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    offset: int


@dataclass(frozen=True)
class Delta:
    """What one more token adds to an answer; with a `finish`, the last."""

    segments: Sequence[Segment]
    logprobs: Sequence[TokenLogprob]
    finish: FinishReason | None


class Transcript:
    """Turns an answer's tokens into what its client sees of them."""

    def __init__(self, text: TextStream) -> None:
        self.completion_tokens = 0
        self._text = text
        self._unsettled: list[TokenLogprob] = []
        self._called = False

    def take(self, event: TokenEvent) -> Delta:
        """Add the next token. It is the last when the engine says so or a stop string is complete."""
        self.completion_tokens += 1
        if event.logprob is not None and event.finish != "stop":
            offset = self._text.decoded_characters
            self._unsettled.append(TokenLogprob(event.token, event.logprob, event.top, offset))
        segments = self._text.feed(event.token, event.finish)
        self._called = self._called or any(segment.tool_call for segment in segments)
        finish = self._finish(event)
        return Delta(segments, self._settle(ended=finish is not None), finish)

    def _finish(self, event: TokenEvent) -> FinishReason | None:
        """A call cut off by ``length`` is no call: only a whole answer ends with ``tool_calls``."""
        finish = "stop" if self._text.stopped else event.finish
        return "tool_calls" if finish == "stop" and self._called else finish

    def _settle(self, *, ended: bool) -> list[TokenLogprob]:
        """The tokens whose text is certain to be given out, each once; those of a stop string never."""
        every = ended and not self._text.stopped
        count = sum(every or entry.offset < self._text.settled_characters for entry in self._unsettled)
        settled, self._unsettled = self._unsettled[:count], self._unsettled[count:]
        return settled


__all__ = ["Delta", "FinishReason", "Generation", "TokenLogprob", "Transcript"]
