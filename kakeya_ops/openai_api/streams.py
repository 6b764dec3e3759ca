"""Server-sent events: an answer in pieces, with signs of life while the prompt is long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kakeya_ops.engine.contract import PrefillEvent, TokenEvent
from kakeya_ops.openai_api.errors import ApiError, ClientGone
from kakeya_ops.openai_api.generation import Generation, Transcript
from kakeya_ops.openai_api.responses import Shape, describe_usage
from kakeya_ops.openai_api.settings import ApiLimits
from kakeya_ops.serving.contract import GenerateRequest, Head, PrefixReady

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """One admitted request, and how its answer is written down."""

    head: Head
    request: GenerateRequest
    transcript: Transcript
    shape: Shape
    limits: ApiLimits
    include_usage: bool = False


def prefix_headers(ready: PrefixReady | None) -> dict[str, str]:
    """The headers that tell how the prompt's prefix came to be."""
    if ready is None:
        return {}
    headers = {"X-Kakeya-Receipt": ready.receipt_digest, "X-Kakeya-Cached-Tokens": str(ready.cached_tokens)}
    return headers | ({"X-Kakeya-Forgotten-Tokens": str(ready.forgotten_tokens)} if ready.forgotten_tokens else {})


def stopping() -> ApiError:
    """The fault of a request that was not through when the server had to end."""
    return ApiError(503, "the server stops", code="server_stopping")


def timed_out(limits: ApiLimits) -> ApiError:
    """The fault of a request that took too long as a whole."""
    return ApiError(504, f"the answer took longer than {limits.request_seconds:g} s", code="request_timeout")


_FAREWELL_SECONDS = 10.0


class EventStream(Response):
    """The answer to one request as a stream. It starts when it is sent, and ends when its client goes.

    The status line waits for the receipt, so that an early failure still has its proper status, but not longer than
    `header_seconds`; a receipt that comes later, and a later failure, are in the stream itself.
    """

    media_type = "text/event-stream"

    def __init__(self, task: Task) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request. Raises `ApiError` while the status line is not sent."""
        started = False
        try:
            async with (
                asyncio.timeout(self._task.limits.request_seconds),
                Generation(self._task.head, self._task.request, receive) as generation,
            ):
                ready = await self._await_prefix(generation)
                self.headers.update(prefix_headers(ready))
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                started = True
                async for piece in self._pieces(generation, ready):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            await self._fail(stopping(), send, started=started)
        except TimeoutError:
            await self._fail(timed_out(self._task.limits), send, started=started)
        except ApiError as error:
            await self._fail(error, send, started=started)
        except ClientGone:
            _log.info("client has gone", extra={"request_id": self._task.request.decode.request_id})

    async def _fail(self, error: ApiError, send: Send, *, started: bool) -> None:
        """End a stream that has begun with an error event and without ``[DONE]``."""
        if not started:
            raise error
        fields = {"request_id": self._task.request.decode.request_id}
        _log.error("request failed in its stream", extra=fields | {"reason": error.code}, exc_info=error.__cause__)
        body = f"data: {json.dumps(error.body)}\n\n".encode()
        # A client that takes nothing would hold the connection for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _await_prefix(self, generation: Generation) -> PrefixReady | None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._task.limits.header_seconds
        while (left := end - loop.time()) > 0:
            event = await generation.next(left)
            if isinstance(event, PrefixReady):
                return event
        return None

    async def _pieces(self, generation: Generation, ready: PrefixReady | None) -> AsyncIterator[bytes]:
        shape, late = self._task.shape, ready is None
        if opening := shape.opening():
            yield _data(opening)
        finished = False
        while not finished:
            event = await generation.next(self._task.limits.keep_alive_seconds)
            if isinstance(event, TokenEvent):
                delta = self._task.transcript.take(event)
                finished = delta.finish is not None
                if chunk := shape.chunk(delta):
                    yield _data(chunk)
            elif isinstance(event, PrefixReady):
                ready = event
            else:
                yield _sign_of_life(event)
        if self._task.include_usage:
            yield _data(self._usage(ready))
        yield _late_receipt(ready if late else None) + b"data: [DONE]\n\n"

    def _usage(self, ready: PrefixReady | None) -> BaseModel:
        prompt_tokens = len(self._task.request.decode.tokens)
        cached_tokens = ready.cached_tokens if ready else 0
        usage = describe_usage(prompt_tokens, self._task.transcript.completion_tokens, cached_tokens)
        return self._task.shape.usage(usage)


def _data(chunk: BaseModel) -> bytes:
    return f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n".encode()


def _sign_of_life(event: PrefillEvent | None) -> bytes:
    """A comment, which clients skip."""
    return f": prefill {event.done}/{event.total}\n\n".encode() if event else b": waiting\n\n"


def _late_receipt(ready: PrefixReady | None) -> bytes:
    """The headers' content as comments, when the headers had to go first."""
    if ready is None:
        return b""
    forgotten = f": forgotten-tokens {ready.forgotten_tokens}\n" if ready.forgotten_tokens else ""
    comments = f": receipt {ready.receipt_digest}\n: cached-tokens {ready.cached_tokens}\n{forgotten}\n"
    return comments.encode()


__all__ = ["EventStream", "Task", "prefix_headers", "stopping", "timed_out"]
