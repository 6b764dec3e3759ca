"""Whether a node's KV is ours: digest first, then the runtime, each difference by its first field."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kakeya_ops.kv.identity import Runtime
from kakeya_ops.serving.compatibility import Difference, find_difference
from kakeya_ops.wire.cards import Card
from serving.running import make_cache, simple_identity

IDENTITY = simple_identity()
RUNTIME = Runtime(mlx="1", mlx_lm="2", backend="cpu", device="x86", threads="1")


def card(role: str = "worker", **changes: Any) -> Card:
    made = make_cache("peer", identity=changes.pop("of", IDENTITY)).card()
    return made.model_copy(update={"role": role, "runtime": RUNTIME.to_json()} | changes)


def difference(other: Card) -> Difference | None:
    return find_difference(other, IDENTITY, RUNTIME)


def test_equal_nodes_do_not_differ() -> None:
    assert difference(card()) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [({"weights": "99" * 32}, "weights"), ({"block_tokens": 32}, "block_tokens"), ({"window": 128}, "window")],
)
def test_the_first_field_that_differs_is_named(change: dict[str, Any], field: str) -> None:
    other = replace(IDENTITY, **change)
    assert difference(card(of=other)) == Difference(field, getattr(IDENTITY, field), getattr(other, field))


def test_another_wire_version_is_named_before_all_else() -> None:
    other = replace(IDENTITY, weights="99" * 32)
    assert difference(card(of=other, wire=2)) == Difference("wire", 1, 2)


def test_of_several_differences_the_first_is_named() -> None:
    other = replace(IDENTITY, window=128, weights="99" * 32, sink=7)
    found = difference(card(of=other))
    assert found is not None
    assert found.field == "weights"


@pytest.mark.parametrize("document", [None, {}, {"weights": 1}, {**IDENTITY.to_json(), "layout": []}])
def test_without_a_readable_document_the_digests_themselves_differ(document: dict[str, Any] | None) -> None:
    found = difference(card(identity="ab" * 32, identity_document=document))
    assert found == Difference("identity", IDENTITY.digest, "ab" * 32)


def test_a_document_that_is_not_what_the_digest_says_does_not_make_it_ours() -> None:
    found = difference(card(identity="ab" * 32, identity_document=IDENTITY.to_json()))
    assert found is not None
    assert found.field == "identity"


def test_a_node_without_an_identity_differs() -> None:
    found = difference(card(identity=None, identity_document=None))
    assert found == Difference("identity", IDENTITY.digest, None)


def test_another_arithmetic_is_a_difference_for_whoever_computes() -> None:
    other = replace(RUNTIME, mlx_lm="3", threads="4")
    assert difference(card(runtime=other.to_json())) == Difference("runtime.mlx_lm", "2", "3")
    assert difference(card("cache", runtime=other.to_json())) is None
    assert difference(card("cache", runtime=None)) is None


@pytest.mark.parametrize("runtime", [None, {}, {"mlx": "1"}, {**RUNTIME.to_json(), "more": "x"}])
def test_a_worker_that_does_not_say_what_it_computes_with_differs(runtime: dict[str, str] | None) -> None:
    found = difference(card(runtime=runtime))
    assert found is not None
    assert found.field.startswith("runtime")


def test_what_is_shown_is_short_and_plain() -> None:
    shown = Difference("layout", {"a": list(range(200))}, None).to_json()
    assert len(json.dumps(shown)) < 150
    assert shown["theirs"] is None
    assert Difference("window", 2048, 64).to_json() == {"field": "window", "ours": 2048, "theirs": 64}
