from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.verify.checks import ABOUT_REMOTE, LOGPROB_TOLERANCE, RULES, judge
from verify.samples import FLOOR_TOKENS, FOREIGN_KEY, LOGPROBS, NONCES, PART, TOKENS, World, receipt, worker_card

Lie = Callable[[World], Any]

HIT = "same prompt again: remote hit"


def not_ok(world: World) -> dict[str, str]:
    """The verdicts of the checks that are not ok."""
    return {check.name: check.verdict for check in judge(world.evidence()) if check.verdict != "ok"}


def test_an_honest_fleet_passes_every_check() -> None:
    checks = judge(World().sign().evidence())
    assert [check.verdict for check in checks] == ["ok"] * len(RULES), checks
    details = {check.name: check.detail for check in checks}
    assert details["tokens computed there"] == "128 of 150 tokens there, the last 22 here"
    assert "2.0 KiB for 2 blocks" in details["bytes received"]


FORGERIES: dict[str, tuple[Lie, set[str]]] = {
    "another prompt's length": (
        lambda w: w.cold.update(prompt_tokens=9),
        {"head's signature", "receipt of this request"},
    ),
    "a worker that is not in it": (
        lambda w: w.cold["remote"].update(node="other"),
        {"head's signature", "worker is the one on the card"},
    ),
    "a gain": (lambda w: w.cold.update(gain="overlap"), {"head's signature"}),
    "a mac": (lambda w: w.cold.update(mac="0" * 64), {"head's signature"}),
    "more tokens": (
        lambda w: w.worker_receipt.update(computed_tokens=140),
        {"head's signature", "worker's signature", "tokens computed there", "worker's own counters"},
    ),
    "the worker's mac": (lambda w: w.worker_receipt.update(mac="0" * 64), {"head's signature", "worker's signature"}),
    "the repeated receipt": (lambda w: w.receipts["repeated"].update(gain="none!"), {HIT}),
    "the local receipt": (lambda w: w.receipts["local"].update(gain="none!"), {"local control"}),
}
"""What somebody without the key changes after it was signed."""


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_receipt_fails(what: str) -> None:
    forge, expected = FORGERIES[what]
    world = World().sign()
    forge(world)
    assert not_ok(world) == dict.fromkeys(expected, "failed")


def test_another_key_signs_nothing() -> None:
    assert not_ok(World().sign(head_key=FOREIGN_KEY)) == dict.fromkeys(
        ("head's signature", HIT, "local control"), "failed"
    )
    assert not_ok(World().sign(worker_key=FOREIGN_KEY)) == {"worker's signature": "failed"}


def test_a_receipt_of_another_client_or_of_an_earlier_probe_fails() -> None:
    world = World()
    world.cold.update(client_nonce=None)
    assert not_ok(world.sign()) == {"receipt of this request": "failed"}
    replayed = World()
    replayed.cold.update(client_nonce="9" * 32, request_id="request-of-yesterday")
    assert not_ok(replayed.sign()) == {"receipt of this request": "failed"}


def test_the_cold_receipt_does_not_serve_for_the_repeated_request() -> None:
    world = World()
    world.receipts["repeated"] = receipt("cold")
    assert not_ok(world.sign()) == {HIT: "failed"}


LIES: dict[str, tuple[Lie, str]] = {
    "nonce": (lambda w: w.cold.update(client_nonce="9" * 32), "receipt of this request"),
    "request id": (lambda w: w.cold.update(request_id="other"), "receipt of this request"),
    "head": (lambda w: w.cold.update(node="other"), "receipt of this request"),
    "head's epoch": (lambda w: w.cold.update(epoch=6), "receipt of this request"),
    "tenant": (lambda w: w.cold.update(tenant="other"), "receipt of this request"),
    "short prompt": (lambda w: setattr(w, "min_tokens", 151), "receipt of this request"),
    "head's pool": (lambda w: w.cold.update(local_pool_tokens=64), "cold prompt"),
    "worker's pool": (lambda w: w.cold["remote"].update(pool_tokens=64), "cold prompt"),
    "local decision": (lambda w: w.cold["decision"].update(kind="local"), "remote compute, no fallback"),
    "import": (lambda w: w.cold["remote"].update(kind="import"), "remote compute, no fallback"),
    "fallback": (
        lambda w: w.cold.update(fallback={"worker": "worker", "reason": "timeout", "message": "silent"}),
        "remote compute, no fallback",
    ),
    "another worker chosen": (lambda w: w.cold["decision"].update(worker="other"), "remote compute, no fallback"),
    "worker's epoch": (lambda w: w.worker_receipt.update(epoch=8), "worker is the one on the card"),
    "worker's instance": (lambda w: w.worker_receipt.update(instance="f" * 32), "worker is the one on the card"),
    "worker's node": (lambda w: w.worker_receipt.update(node="other"), "worker is the one on the card"),
    "head's word for the epoch": (lambda w: w.cold["remote"].update(epoch=8), "worker is the one on the card"),
    "job": (lambda w: w.worker_receipt.update(job="other"), "worker's job"),
    "old worker receipt": (lambda w: w.worker_receipt.update(request_nonce="9" * 32), "worker's job"),
    "identity": (lambda w: w.worker_receipt.update(identity="0" * 64), "cache identity"),
    "too few computed": (
        lambda w: (w.worker_receipt.update(computed_tokens=127), w.cold["remote"].update(computed_tokens=127)),
        "tokens computed there",
    ),
    "more than there are": (
        lambda w: (
            w.worker_receipt.update(computed_tokens=151),
            w.cold["remote"].update(computed_tokens=151),
            w.card_after["counters"].update(tokens_computed=151),
        ),
        "tokens computed there",
    ),
    "counts that differ": (lambda w: w.cold["remote"].update(computed_tokens=64), "tokens computed there"),
    "computed by both": (lambda w: w.cold.update(local_computed_tokens=150), "tokens computed there"),
    "other blocks": (lambda w: w.cold["remote"].update(blocks_digest="0" * 64), "blocks received"),
    "no blocks": (lambda w: w.cold["remote"].update(blocks=0), "blocks received"),
    "no bytes": (lambda w: w.cold["remote"].update(payload_bytes=0), "bytes received"),
    "too few bytes": (lambda w: w.cold["remote"].update(payload_bytes=2 * PART.nbytes - 1), "bytes received"),
    "too many bytes": (lambda w: w.cold["remote"].update(payload_bytes=2 * PART.nbytes + 1), "bytes received"),
    "another layout": (lambda w: w.head["identity_document"].update(sink=5), "bytes received"),
    "counters": (lambda w: w.card_after["counters"].update(tokens_computed=127), "worker's own counters"),
    "worker restarted": (lambda w: w.card_after.update(epoch=8), "worker's own counters"),
    "repeated from own pool": (lambda w: w.receipts["repeated"].update(local_pool_tokens=128), HIT),
    "another client's receipt for the repeated": (lambda w: w.receipts["repeated"].update(client_nonce=None), HIT),
    "repeated after a fallback": (
        lambda w: w.receipts["repeated"].update(fallback={"worker": "worker", "message": "silent"}),
        HIT,
    ),
    "repeated computed again": (lambda w: w.receipts["repeated"]["remote"].update(computed_tokens=64), HIT),
    "repeated in part": (lambda w: w.receipts["repeated"]["remote"].update(pool_tokens=64), HIT),
    "repeated in part here": (lambda w: w.receipts["repeated"].update(local_computed_tokens=86), HIT),
    "another client's receipt for the local": (
        lambda w: w.receipts["local"].update(client_nonce=None),
        "local control",
    ),
    "local with help": (lambda w: w.receipts["local"].update(remote={"node": "worker"}), "local control"),
    "local from pool": (lambda w: w.receipts["local"].update(local_pool_tokens=128), "local control"),
    "local in part": (lambda w: w.receipts["local"].update(local_computed_tokens=22), "local control"),
    "head restarted": (lambda w: w.head_after.update(epoch=6), "head did not restart"),
}
"""What the holder of the key could sign although it proves nothing, and the one check that it fails."""


@pytest.mark.parametrize("what", LIES)
def test_a_signed_receipt_that_proves_nothing_fails_its_check(what: str) -> None:
    lie, expected = LIES[what]
    world = World()
    lie(world)
    assert not_ok(world.sign()) == {expected: "failed"}


def test_another_identity_is_seen_on_either_side() -> None:
    world = World()
    world.cold.update(identity="0" * 64)
    checks = {check.name: check for check in judge(world.sign().evidence())}
    assert checks["cache identity"].detail.startswith("the receipt's cache identity")
    assert checks["bytes received"].verdict == "failed"


def test_blocks_of_another_size_than_the_models_are_seen() -> None:
    world = World()
    world.cold.update(block_tokens=128)
    checks = {check.name: check for check in judge(world.sign().evidence())}
    assert checks["bytes received"].detail == "the model's block in tokens is 64, not 128"


def test_answers_to_prompts_of_different_lengths_are_not_compared() -> None:
    evidence = World().sign().evidence()
    longer = dataclasses.replace(evidence, again=dataclasses.replace(evidence.again, prompt_tokens=151))
    (check,) = (check for check in judge(longer) if check.name == "same tokens")
    assert check.verdict == "failed"


def test_a_local_fallback_fails_and_leaves_out_what_there_is_not_to_judge() -> None:
    world = World()
    world.cold.update(remote=None, fallback={"worker": "worker", "reason": "unreachable", "message": "worker: gone"})
    checks = {check.name: check for check in judge(world.sign().evidence())}
    assert set(not_ok(world)) == {"remote compute, no fallback"}
    assert checks["remote compute, no fallback"].detail == "the head fell back to itself: worker: gone"
    assert len(checks) == len(RULES) - len(ABOUT_REMOTE)


@pytest.mark.parametrize("label", ["cold", "repeated"])
def test_a_receipt_without_any_remote_part_fails(label: str) -> None:
    world = World()
    world.receipts[label].update(remote=None)
    name = "remote compute, no fallback" if label == "cold" else HIT
    assert not_ok(world.sign()) == {name: "failed"}


def test_without_a_receipt_nothing_is_known() -> None:
    world = World().sign()
    world.receipts["cold"] = {}
    assert not_ok(world)["head's signature"] == "unknown"


def test_kv_of_another_prompt_is_seen_in_the_tokens() -> None:
    world = World().sign()
    world.tokens["cold"] = (*TOKENS[:5], "z", *TOKENS[6:])
    (check,) = (check for check in judge(world.evidence()) if check.verdict != "ok")
    assert check.name == "same tokens"
    assert "at token 5" in check.detail


@pytest.mark.parametrize("label", ["cold", "repeated"])
@pytest.mark.parametrize("gap", [LOGPROB_TOLERANCE * 1.01, float("nan")])
def test_kv_of_another_prompt_is_seen_in_the_log_probabilities(label: str, gap: float) -> None:
    world = World().sign()
    world.logprobs[label] = (*LOGPROBS[:-1], LOGPROBS[-1] - gap)
    assert not_ok(world) == {"same tokens": "failed"}


def test_log_probabilities_may_differ_a_little() -> None:
    world = World().sign()
    world.logprobs["cold"] = tuple(value + LOGPROB_TOLERANCE / 2 for value in LOGPROBS)
    assert not not_ok(world)


def test_few_tokens_prove_nothing() -> None:
    world = World().sign()
    world.tokens = dict.fromkeys(NONCES, TOKENS[:7])
    world.logprobs = dict.fromkeys(NONCES, LOGPROBS[:7])
    assert not_ok(world) == {"same tokens": "unknown"}
    world.tokens = dict.fromkeys(NONCES, ())
    assert not_ok(world) == {"same tokens": "unknown"}


def test_tokens_without_log_probabilities_prove_nothing() -> None:
    world = World().sign()
    world.logprobs["cold"] = ()
    assert not_ok(world) == {"same tokens": "unknown"}


def test_a_worker_whose_next_card_never_came_leaves_its_counters_unknown() -> None:
    world = World().sign()
    world.card_after = None
    assert not_ok(world) == {"worker's own counters": "unknown"}


def test_a_card_from_before_the_job_says_nothing_about_it() -> None:
    world = World()
    world.card_after = worker_card(FLOOR_TOKENS, 100.4)
    assert not_ok(world.sign()) == {"worker's own counters": "unknown"}


def test_blocks_too_large_for_the_prompt_do_not_make_it_easy() -> None:
    world = World()
    world.cold["block_tokens"] = 1024
    assert {"tokens computed there", "blocks received"} <= set(not_ok(world.sign()))


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["remote", "decision", "worker_receipt", "mac", "fallback"]), inner)
        ),
    )
)
def test_no_document_makes_the_judge_fall_over(document: Any) -> None:
    world = World().sign()
    world.receipts["cold"] = {**receipt("cold"), "remote": document, "decision": document, "fallback": document}
    assert not_ok(world)["head's signature"] in ("failed", "unknown")


def test_the_least_is_all_whole_blocks_before_the_last_token() -> None:
    assert World().evidence().floor_tokens == FLOOR_TOKENS
