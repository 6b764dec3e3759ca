from __future__ import annotations

import dataclasses

import pytest

from kakeya_ops.verify.evidence import Facts, MissingFact
from verify.samples import FLOOR_TOKENS, World

CARD = Facts("card", {"node": "w", "counters": {"jobs": 3, "flag": True}, "nothing": None})


def test_facts_are_found_at_any_depth() -> None:
    assert CARD.get("node") == "w"
    assert CARD.number("counters", "jobs") == 3
    assert CARD.within("counters").get("jobs") == 3
    assert CARD.value("nothing") is None


@pytest.mark.parametrize("path", [("absent",), ("node", "deeper"), ("counters", "absent"), ("nothing",)])
def test_a_missing_fact_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(MissingFact, match=f"card has no {'.'.join(path)}"):
        CARD.get(*path)


@pytest.mark.parametrize("path", [("node",), ("counters", "flag"), ("counters",)])
def test_only_numbers_are_numbers(path: tuple[str, ...]) -> None:
    with pytest.raises(MissingFact, match="no number"):
        CARD.number(*path)


def test_only_documents_are_documents() -> None:
    with pytest.raises(MissingFact, match="card has no node"):
        CARD.within("node")


def test_a_document_that_never_came_is_named() -> None:
    with pytest.raises(MissingFact, match="there is no receipt"):
        Facts("receipt", None).get("mac")


def test_the_floor_is_all_whole_blocks_before_the_last_token() -> None:
    evidence = World().evidence()
    assert evidence.floor_tokens == FLOOR_TOKENS
    for prompt_tokens, blocks in ((65, 1), (128, 1), (129, 2)):
        cold = dataclasses.replace(evidence.cold, prompt_tokens=prompt_tokens)
        assert dataclasses.replace(evidence, cold=cold).floor_blocks == blocks


@pytest.mark.parametrize("block_tokens", [0, -64, 64.5, 1024, "64"])
def test_a_floor_of_nothing_is_no_floor(block_tokens: object) -> None:
    world = World()
    world.cold["block_tokens"] = block_tokens
    with pytest.raises(MissingFact):
        _ = world.evidence().floor_tokens
