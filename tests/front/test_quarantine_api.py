"""``/v1/network/quarantine`` over real HTTP: told to whoever has an API key, released by the fleet key alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from front.towns import Town
from kakeya_ops.front.quarantine_api import LIST_PATH
from kakeya_ops.secret import Secret
from kakeya_ops.wire.releases import RELEASE_PATH, ReleaseOrder
from serving.findings import EVIDENCE
from serving.running import KEY


@pytest.fixture(autouse=True)
def held(town: Town) -> Iterator[None]:
    quarantine = town.observatory.quarantine
    quarantine.hold("store", replace(EVIDENCE, max_deviation=0.5))
    yield
    if quarantine.holds("store"):
        quarantine.release("store", "the test is over")


def order(key: Secret = KEY, node: str = "store", head: str = "head", reason: str = "checked") -> bytes:
    return ReleaseOrder.sign(key, (head, node), reason, time.time()).encode()


def send(town: Town, body: bytes) -> httpx.Response:
    return town.http.post(RELEASE_PATH, content=body, headers={"Content-Type": "application/json"})


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_who_is_held_is_told_with_the_evidence_and_on_the_card(town: Town) -> None:
    told = town.get(LIST_PATH)
    [held] = told["held"]
    assert (told["head"], held["node"]) == ("head", "store")
    assert (held["evidence"]["request_id"], held["evidence"]["epoch"]) == (EVIDENCE.request_id, EVIDENCE.epoch)
    assert (held["evidence"]["max_deviation"], held["evidence"]["tolerance"]) == (0.5, 0.0)
    assert town.node.card().quarantine == ("store",)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_is_told_or_done_without_an_api_key(town: Town, method: str) -> None:
    path = LIST_PATH if method == "GET" else RELEASE_PATH
    assert code(httpx.request(method, f"{town.http.base_url}{path}", content=order())) == (401, "invalid_api_key")
    assert town.observatory.quarantine.holds("store")


def test_an_order_of_the_fleet_releases_and_is_good_once(town: Town) -> None:
    body = order()
    answer = send(town, body)
    assert (answer.status_code, answer.json()["node"], answer.json()["release_reason"]) == (200, "store", "checked")
    assert town.get(LIST_PATH)["held"] == []
    assert town.get(LIST_PATH)["released"][-1]["node"] == "store"
    assert town.node.card().quarantine == ()
    town.observatory.quarantine.hold("store", EVIDENCE)
    assert code(send(town, body)) == (403, "release_rejected")
    assert town.observatory.quarantine.holds("store")


def test_others_release_nobody(town: Town) -> None:
    assert code(send(town, order(Secret(bytes(32))))) == (403, "release_rejected")
    assert code(send(town, order(head="another"))) == (403, "release_rejected")
    assert code(send(town, b'{"node": "store"}')) == (400, "invalid_value")
    assert town.observatory.quarantine.holds("store")


def test_who_is_not_held_cannot_be_released(town: Town) -> None:
    assert code(send(town, order(node="allens"))) == (404, "not_found")
    assert code(send(town, order(reason="\x07"))) == (400, "invalid_value")
