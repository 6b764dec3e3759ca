"""The API of a head as an OpenAPI document, made of the very classes that read its requests: ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kakeya_ops import __version__
from kakeya_ops.openai_api.requests import ChatBody, TextBody
from kakeya_ops.wire.releases import RELEASE_PATH, ReleaseOrder

_REFERENCE = "#/components/schemas/{model}"
_JSON = "application/json"
_EVENTS = "text/event-stream"
_READING = (401,)
_COMPLETING = (400, 401, 403, 404, 408, 413, 415, 500, 503, 504)
_RELEASING = (400, 401, 403, 404, 408, 413, 415)
_MEANINGS = {
    400: "A parameter is wrong; `param` names it.",
    401: "An API key is needed.",
    403: "The directive or the order is not the fleet's, or the host's name is not this one's.",
    404: "There is no such thing here.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "Only plain JSON is taken.",
    500: "The head failed.",
    503: "The head is busy, or cannot compute.",
    504: "The answer took too long.",
}


@dataclass(frozen=True)
class Operation:
    """One method of one path: what it answers, and with which statuses besides 200 it may refuse."""

    path: str
    summary: str
    refusals: Sequence[int] = _READING
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    content_types: Sequence[str] = (_JSON,)
    parameter: str | None = None
    open: bool = False


OPERATIONS: Sequence[Operation] = (
    Operation(
        "/v1/chat/completions", "Answer a chat.", _COMPLETING, ChatBody, ChatCompletion, content_types=(_JSON, _EVENTS)
    ),
    Operation("/v1/completions", "Continue a text.", _COMPLETING, TextBody, Completion, content_types=(_JSON, _EVENTS)),
    Operation("/v1/models", "The one model."),
    Operation("/v1/models/{model}", "The one model, by its name.", (401, 404), parameter="model"),
    Operation("/v1/network/summary", "The fleet's totals."),
    Operation("/v1/network/nodes", "The head and the other nodes."),
    Operation("/v1/network/prefill", "The last requests of one's own, and those under way."),
    Operation("/v1/network/tokens", "Where the prompt tokens came from."),
    Operation("/v1/network/topology", "The nodes and the ways between them."),
    Operation("/v1/network/estimates", "What the scheduler believes, and from which length each worker helps."),
    Operation("/v1/network/series", "The last quarter of an hour."),
    Operation(
        "/v1/network/events", "All of these, as they change, without end.", (401, 503), content_types=(_EVENTS, _JSON)
    ),
    Operation(
        "/v1/network/receipts/{request_id}",
        "The signed receipt of one of one's own requests.",
        (401, 404),
        parameter="request_id",
    ),
    Operation("/v1/network/quarantine", "The nodes whose KV is not used, with the evidence."),
    Operation(RELEASE_PATH, "Release a node, by an order that the fleet key signed.", _RELEASING, ReleaseOrder),
    Operation("/metrics", "Everything for Prometheus.", content_types=("text/plain", _JSON)),
    Operation("/health", "Whether the engine answers.", (503,), open=True),
    Operation("/healthz", "Whether the engine answers.", (503,), open=True),
    Operation("/openapi.json", "This document.", (), open=True),
)


def openapi_route() -> Route:
    """The document's route, open to all: it is the same for every head."""
    document = describe_api()

    async def answer(request: Request) -> Response:
        return JSONResponse(document)

    return Route("/openapi.json", answer, methods=["GET"])


def describe_api(operations: Sequence[Operation] = OPERATIONS) -> dict[str, Any]:
    """The document."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths = {one.path: {"post" if one.body else "get": _describe(one, schemas)} for one in operations}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kakeya", "version": __version__, "description": __doc__.partition(":")[0] + "."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe(one: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    answer = _add(one.answer, "serialization", schemas) if one.answer else {}
    content = {kind: {"schema": answer if kind == _JSON else {"type": "string"}} for kind in one.content_types}
    described: dict[str, Any] = {
        "operationId": one.path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace(".", "_"),
        "summary": one.summary,
        "responses": {"200": {"description": one.summary, "content": content}} | _refusals(one.refusals),
    }
    if not one.open:
        described["security"] = [{"key": []}]
    if one.body:
        body = _add(one.body, "validation", schemas)
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    if one.parameter:
        place = {"name": one.parameter, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        described["parameters"] = [place]
    return described


def _refusals(statuses: Sequence[int]) -> dict[str, Any]:
    error = {_JSON: {"schema": {"$ref": _REFERENCE.format(model="Error")}}}
    return {str(status): {"description": _MEANINGS[status], "content": error} for status in statuses}


def _add(model: type[BaseModel], mode: Any, schemas: dict[str, Any]) -> Mapping[str, str]:
    """Put the schema of `model` and all that it is made of among `schemas`; the reference to it."""
    prefix = model.__name__
    schema = model.model_json_schema(ref_template=f"#/components/schemas/{prefix}.{{model}}", mode=mode)
    for name, part in schema.pop("$defs", {}).items():
        schemas[f"{prefix}.{name}"] = part
    schemas[prefix] = schema
    return {"$ref": _REFERENCE.format(model=prefix)}


_TEXT = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "param": _TEXT, "code": _TEXT},
        }
    },
}

__all__ = ["OPERATIONS", "Operation", "describe_api", "openapi_route"]
