"""The routes of the OpenAI-style API over one head."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from uuid import uuid4

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_ops.engine.contract import DecodeRequest, TokenEvent
from kakeya_ops.errors import EngineError, SignatureRejected
from kakeya_ops.openai_api.bodies import read_json_body
from kakeya_ops.openai_api.errors import ApiError, ClientGone, describe_failure
from kakeya_ops.openai_api.generation import Delta, Generation, Transcript
from kakeya_ops.openai_api.hosts import LoopbackHosts
from kakeya_ops.openai_api.prompts import Prepare, Prepared, prepare_chat, prepare_text
from kakeya_ops.openai_api.requests import ChatBody, CompletionParameters, TextBody, parse_body
from kakeya_ops.openai_api.responses import ChatShape, Heading, TextShape, describe_model, describe_usage
from kakeya_ops.openai_api.settings import ApiSettings, authorize
from kakeya_ops.openai_api.streams import EventStream, Task, prefix_headers, stopping, timed_out
from kakeya_ops.serving.contract import GenerateRequest, Head, PrefixReady
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, Directive

_log = logging.getLogger(__name__)


def make_openai_app(head: Head, settings: ApiSettings, more_routes: Sequence[BaseRoute] = ()) -> Starlette:
    """The API as an app in which every answer, `more_routes` included, has a request id and OpenAI's error form.

    `more_routes` come first. Those that need a key call `authorize` themselves.
    """
    app = Starlette(
        routes=[*more_routes, *openai_routes(head, settings)],
        middleware=[Middleware(RequestIds), *([Middleware(LoopbackHosts)] if settings.keys is None else [])],
        exception_handlers={
            ApiError: _on_api_error,
            EngineError: _on_engine_error,
            HTTPException: _on_http_error,
            ClientGone: _on_client_gone,
            ClientDisconnect: _on_client_gone,
            Exception: _on_bug,
        },
    )
    app.router.redirect_slashes = False
    return app


def openai_routes(head: Head, settings: ApiSettings) -> list[Route]:
    """The routes alone; they raise `ApiError` and `EngineError` for the app to answer."""
    models = _Models(head, settings)
    chat = _Completions(head, settings, _Kind(ChatBody, prepare_chat, ChatShape))
    text = _Completions(head, settings, _Kind(TextBody, prepare_text, TextShape))
    return [
        Route("/v1/chat/completions", chat.answer, methods=["POST"]),
        Route("/v1/completions", text.answer, methods=["POST"]),
        Route("/v1/models", models.list, methods=["GET"]),
        Route("/v1/models/{model:path}", models.get, methods=["GET"]),
        Route("/health", models.health, methods=["GET"]),
        Route("/healthz", models.health, methods=["GET"]),
    ]


class RequestIds:
    """Gives each request an id, in the scope's state and in the answer's ``X-Request-Id``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope.setdefault("state", {})["request_id"] = uuid4().hex

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


_SHORT_BYTES = 4096


@dataclass(frozen=True)
class _Kind:
    """What differs between chat and text completions."""

    body: type[ChatBody] | type[TextBody]
    prepare: Prepare
    shape: type[ChatShape] | type[TextShape]


class _Completions:
    """One completion route."""

    def __init__(self, head: Head, settings: ApiSettings, kind: _Kind) -> None:
        self._head = head
        self._settings = settings
        self._kind = kind

    async def answer(self, request: Request) -> Response:
        tenant = authorize(request, self._settings)
        content = await read_json_body(request, self._settings.limits)
        # A short body is read sooner than a thread is found for it; the largest take seconds.
        short = len(content) <= _SHORT_BYTES
        body = (
            parse_body(self._kind.body, content)
            if short
            else await run_in_threadpool(parse_body, self._kind.body, content)
        )
        _check_model(self._head, body.model)
        directive = self._read_directive(request, content)
        prepared = await run_in_threadpool(
            self._kind.prepare, body, self._head, self._settings.limits.default_max_tokens
        )
        request_id = str(request.state.request_id)
        decode = DecodeRequest(request_id, prepared.tokens, prepared.max_tokens, body.sampling())
        task = self._make_task(GenerateRequest(decode, tenant, directive), body, prepared)
        return EventStream(task) if body.stream else await _answer_whole(task, request.receive)

    def _make_task(self, request: GenerateRequest, body: CompletionParameters, prepared: Prepared) -> Task:
        heading = Heading(
            request.decode.request_id, self._head.model_id, self._settings.fingerprint, body.include_usage
        )
        return Task(
            head=self._head,
            request=request,
            transcript=Transcript(prepared.text),
            shape=self._kind.shape(heading, self._head.text),
            limits=self._settings.limits,
            include_usage=body.include_usage,
        )

    def _read_directive(self, request: Request, content: bytes) -> Directive | None:
        value = request.headers.get(DIRECTIVE_HEADER)
        if value is None:
            return None
        try:
            if self._settings.verify_directive is None:
                raise SignatureRejected("this server takes no directives")
            return self._settings.verify_directive(value, content)
        except SignatureRejected as error:
            message = f"{DIRECTIVE_HEADER}: {error.message}"
            raise ApiError(403, message, param=DIRECTIVE_HEADER, code="directive_rejected") from error


async def _answer_whole(task: Task, receive: Receive) -> Response:
    deltas: list[Delta] = []
    ready: PrefixReady | None = None
    try:
        async with (
            asyncio.timeout(task.limits.request_seconds),
            Generation(task.head, task.request, receive) as generation,
        ):
            while not deltas or deltas[-1].finish is None:
                event = await generation.next()
                if isinstance(event, TokenEvent):
                    deltas.append(task.transcript.take(event))
                elif isinstance(event, PrefixReady):
                    ready = event
    except asyncio.CancelledError:
        raise stopping() from None
    except TimeoutError:
        raise timed_out(task.limits) from None
    cached_tokens = ready.cached_tokens if ready else 0
    usage = describe_usage(len(task.request.decode.tokens), task.transcript.completion_tokens, cached_tokens)
    content = task.shape.whole(deltas, usage).model_dump_json(exclude_unset=True)
    return Response(content, headers=prefix_headers(ready), media_type="application/json")


class _Models:
    """The one model, and whether it answers."""

    def __init__(self, head: Head, settings: ApiSettings) -> None:
        self._head = head
        self._settings = settings
        self._created = int(time.time())

    async def list(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse({"object": "list", "data": [describe_model(self._head, self._settings, self._created)]})

    async def get(self, request: Request) -> Response:
        authorize(request, self._settings)
        _check_model(self._head, request.path_params["model"])
        return JSONResponse(describe_model(self._head, self._settings, self._created))

    async def health(self, request: Request) -> Response:
        if not self._head.healthy():
            raise ApiError(503, "the engine does not answer", code="engine_dead")
        return JSONResponse({"status": "ok"})


def _check_model(head: Head, model: str | None) -> None:
    """Another model's name changes nothing here but the answer."""
    if model is not None and model != head.model_id:
        message = f"the model {model[:200]!r} does not exist here; this server has {head.model_id!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request failed", extra={"request_id": request.state.request_id}, exc_info=error)
    return error.response()


async def _on_engine_error(request: Request, error: Exception) -> Response:
    return describe_failure(error).response()


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: f"no route {request.url.path[:200]!r}", 405: f"{request.method} is not a method of this route"}
    codes = {404: "not_found", 405: "method_not_allowed"}
    message = messages.get(error.status_code, error.detail)
    return ApiError(error.status_code, message, code=codes.get(error.status_code), headers=error.headers).response()


async def _on_client_gone(request: Request, error: Exception) -> Response:
    """Nobody reads this answer."""
    _log.info("client has gone", extra={"request_id": request.state.request_id})
    return Response(status_code=499)


async def _on_bug(request: Request, error: Exception) -> Response:
    response = describe_failure(error).response()
    # This handler stands outside of the middleware that sets it elsewhere.
    response.headers["X-Request-Id"] = str(request.state.request_id)
    return response


__all__ = ["RequestIds", "make_openai_app", "openai_routes"]
