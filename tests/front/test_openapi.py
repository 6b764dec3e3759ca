"""The API keeps what its document promises, also when schemathesis makes up the requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from front.towns import KEYS, Town, open_town
from kakeya_ops.front.network_api import network_routes
from kakeya_ops.front.openapi import OPERATIONS, describe_api
from kakeya_ops.openai_api.app import openai_routes
from kakeya_ops.openai_api.settings import ApiSettings

DOCUMENT = describe_api()
ENDLESS = "/v1/network/events"
CONTEXT_TOKENS = 64
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

tried = describe_api([operation for operation in OPERATIONS if operation.path != ENDLESS])
schema: Any = schemathesis.openapi.from_dict(tried)
schema.config.phases.coverage.enabled = False  # hundreds of cases, nearly all of which are refused alike


@pytest.fixture(scope="module")
def small_town(tiny_llama_with_tools: Path) -> Iterator[Town]:
    """One whose answers end soon, whatever is asked for."""
    with open_town(tiny_llama_with_tools, CONTEXT_TOKENS) as town:
        yield town


@schema.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=[*HealthCheck])
def test_nothing_that_can_be_made_up_breaks_a_promise(case: Any, small_town: Town) -> None:
    headers = {"Authorization": f"Bearer {next(iter(KEYS))}"}
    case.call_and_validate(base_url=str(small_town.http.base_url), headers=headers, checks=CHECKS, timeout=60)


def test_every_route_is_described(town: Town) -> None:
    settings = ApiSettings()
    routes: list[Route] = [
        *openai_routes(town.observatory.head, settings),
        *network_routes(town.observatory, settings),
    ]
    served = {(route.path.replace(":path", ""), method) for route in routes for method in route.methods or ()}
    described = {(path, method.upper()) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == {(path, method) for path, method in served if method != "HEAD"}


def test_what_needs_a_key_is_what_the_document_says(town: Town) -> None:
    for operation in OPERATIONS:
        path = operation.path.format(model="tiny", request_id="r")
        if operation.path == ENDLESS or operation.body:
            continue
        answer = town.http.get(path, headers={"Authorization": ""})
        assert (answer.status_code == 401) is not operation.open, path
        if not operation.open:
            assert DOCUMENT["paths"][operation.path]["get"]["security"] == [{"key": []}]


def test_the_document_is_served_to_all_and_refers_to_nothing_that_is_missing(town: Town) -> None:
    served = town.http.get("/openapi.json", headers={"Authorization": ""}).json()
    assert served == DOCUMENT
    assert set(references(served)) <= {f"#/components/schemas/{name}" for name in served["components"]["schemas"]}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(found := value.get("$ref"), str):
            yield found
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)
