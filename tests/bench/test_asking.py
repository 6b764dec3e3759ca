from __future__ import annotations

import time
from typing import Any, cast

import pytest

from bench.acting import KEY, ActingClient
from kakeya_ops.bench.asking import Asker
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.samples import NotMeasured
from kakeya_ops.errors import PeerRefused
from kakeya_ops.secret import Secret
from kakeya_ops.wire.signing import DIRECTIVE_HEADER


@pytest.fixture
def client() -> ActingClient:
    return ActingClient(time.time)


@pytest.fixture
def asker(client: ActingClient) -> Asker:
    return Asker(BenchPlan("http://head/", (KEY,), api_key=Secret(b"word")), cast(Any, client))


def test_each_kind_is_asked_for_by_its_directive(asker: Asker, client: ActingClient) -> None:
    text = asker.texts.make(500)
    assert asker.ask("remote", text, 500, "second").node == "second"
    assert asker.ask("local", text, 500).node is None
    asker.ask("hot_hit", text, 500)
    assert [(kind, node) for kind, node, _ in client.asked] == [
        ("remote", "second"),
        ("local", None),
        ("hot_hit", None),
    ]


def test_what_it_had_done_is_counted(asker: Asker) -> None:
    text = asker.texts.make(500)
    done = [asker.ask("remote", text, 500, "second"), asker.ask("remote_hit", text, 500, "second")]
    assert asker.requests == 2
    assert asker.computed_tokens == {"second": done[0].computed_tokens}


def test_a_request_that_went_another_way_counts_and_is_no_sample(asker: Asker, client: ActingClient) -> None:
    client.spoil = lambda receipt: receipt.update(remote=None)
    with pytest.raises(NotMeasured):
        asker.ask("remote", asker.texts.make(500), 500)
    assert asker.requests == 1


def test_streams_go_to_the_same_head_with_the_same_key(asker: Asker) -> None:
    server = asker.stream_server()
    assert (server.url, server.headers) == ("http://head", {"Authorization": "Bearer word"})
    request = asker.stream_request("text", 5, "remote", "second")
    assert b'"stream": true' in request.body
    assert "node=second" in request.headers[DIRECTIVE_HEADER]
    assert asker.requests == 1


def test_a_head_that_predicts_nothing_is_no_error(asker: Asker, client: ActingClient) -> None:
    assert asker.estimates() is None
    client.documents["/v1/network/estimates"] = {"peers": []}
    assert asker.estimates() == {"peers": []}


def test_another_refusal_is_one(asker: Asker, client: ActingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> dict[str, Any]:
        raise PeerRefused("head", 401, "invalid_api_key", "no")

    monkeypatch.setattr(client, "document", refuse)
    with pytest.raises(PeerRefused):
        asker.estimates()


def test_cards_are_waited_for(asker: Asker, client: ActingClient) -> None:
    first = client.network()["nodes"][0]["issued_at"]
    assert asker.fresh_network()["nodes"][0]["issued_at"] > first + 1
    client.workers = []
    assert asker.fresh_network()["nodes"] == []


def test_waiting_ends(asker: Asker) -> None:
    assert asker.look_until(lambda network: False, 0.0)["nodes"]
