from __future__ import annotations

from typing import Any

import pytest

from kakeya_ops.verify.workers import find_workers, shortcoming
from verify.samples import worker_card

LIVE = worker_card()


def test_a_live_worker_with_the_same_identity_is_found() -> None:
    check, workers = find_workers([LIVE])
    assert (check.verdict, check.detail) == ("ok", "worker, same cache identity, 1000 tokens/s")
    assert workers == (LIVE,)


def test_a_cache_is_no_proof_and_is_named() -> None:
    check, workers = find_workers([{**LIVE, "node": "shelf", "role": "cache"}])
    assert (check.verdict, workers) == ("failed", ())
    assert check.detail.startswith("shelf is a cache")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"role": "head"}, "is a head, not a worker"),
        ({"role": None}, "not a worker"),
        ({"reachable": False}, "cannot be reached from the head"),
        (
            {"reachable": False, "link": {"last_error": "worker: message rejected: wrong key"}},
            "from the head: message rejected: wrong key",
        ),
        ({"healthy": False}, "not healthy"),
        ({"usable": False}, "after it failed"),
        ({"usable": False, "conflict": True}, "shares its id"),
        ({"usable": False, "quarantine": {"reason": "its KV differs"}}, "is in quarantine: its KV differs"),
        ({"identity_match": None}, "another cache identity"),
        (
            {
                "identity_match": False,
                "identity_difference": {"field": "window", "ours": 2048, "theirs": 64},
            },
            "window is 64 there, 2048 on the head",
        ),
    ],
)
def test_what_a_worker_lacks_is_told(change: dict[str, Any], reason: str) -> None:
    check, workers = find_workers([LIVE | change])
    assert (check.verdict, workers) == ("failed", ())
    assert reason in check.detail


def test_a_card_without_anything_has_a_shortcoming() -> None:
    assert shortcoming({})


def test_only_the_wanted_worker_counts() -> None:
    other = LIVE | {"node": "other"}
    assert find_workers([LIVE, other], "other")[1] == (other,)
    check, workers = find_workers([LIVE], "absent")
    assert (check.verdict, workers) == ("failed", ())
    assert "absent" in check.detail
    assert "nodes it knows: worker" in check.detail


def test_a_head_alone_is_told() -> None:
    assert "knows no node but itself" in find_workers([])[0].detail


def test_a_speed_that_was_never_measured_is_not_made_up() -> None:
    assert "not measured" in find_workers([LIVE | {"prefill_tokens_per_second": None}])[0].detail
