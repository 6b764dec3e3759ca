"""A receipt as steps that fit between the request and its first token, and as one sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.serving.receipts import Fallback, Receipt
from kakeya_ops.serving.scheduler import Decision
from kakeya_ops.serving.timeline import Span, explain_gain, timeline
from serving.test_receipts import JOINT, RECEIPT, REMOTE

WORKER = {"queue_seconds": 0.1, "compute_seconds": 1.2}
TIMES = {
    "queued": 0.01,
    "lookup": 0.02,
    "transfer": 1.5,
    "import": 0.2,
    "gathered": 1.54,
    "prefilled": 1.6,
    "first_token": 1.7,
}
COMPUTED = replace(RECEIPT, times=TIMES, remote=replace(REMOTE, worker_receipt=WORKER), local_computed_tokens=1)
LOCAL = replace(
    RECEIPT,
    decision=Decision("local", None, 0, "shorter than one block"),
    remote=None,
    cached_tokens=0,
    local_computed_tokens=641,
    gain="none",
    times={"queued": 0.01, "lookup": 0.0, "import": 0.0, "gathered": 0.02, "prefilled": 6.0, "first_token": 6.1},
)
BROKEN = replace(LOCAL, fallback=Fallback("allens", "timeout", "allens: silent"), times=LOCAL.times | {"wasted": 0.005})


def steps(receipt: Receipt) -> list[tuple[str, str, float, float]]:
    return [(s.step, s.node, round(s.began_seconds, 4), round(s.seconds, 4)) for s in timeline(receipt)]


def test_a_remote_prefix_is_computed_sent_and_imported_at_once() -> None:
    assert steps(COMPUTED) == [
        ("queue", "head", 0.0, 0.01),
        ("lookup", "head", 0.01, 0.02),
        ("transfer", "worker", 0.04, 1.5),
        ("compute", "worker", 0.14, 1.2),
        ("import", "head", 1.34, 0.2),
        ("suffix", "head", 1.54, 0.06),
        ("first token", "head", 1.6, 0.1),
    ]


def test_a_local_prefill_has_no_other_node() -> None:
    assert [(step, node) for step, node, _, _ in steps(LOCAL)] == [
        ("queue", "head"),
        ("lookup", "head"),
        ("suffix", "head"),
        ("first token", "head"),
    ]
    assert timeline(LOCAL)[2].detail == "640 tokens computed by the head"


def test_each_of_several_sources_has_its_step() -> None:
    spans = [span for span in timeline(replace(JOINT, times=TIMES)) if span.step == "transfer"]
    assert [(span.node, span.seconds, span.detail) for span in spans] == [
        ("worker", 1.4, "7 blocks, 448000 bytes"),
        ("cache", 0.6, "3 blocks, 192000 bytes; broke: unreachable"),
    ]
    assert "640 from the pools of worker, cache" in explain_gain(JOINT)


def test_a_broken_transfer_shows_what_it_cost_and_why() -> None:
    [broken] = [span for span in timeline(BROKEN) if span.step == "transfer"]
    assert broken == Span("transfer", "allens", pytest.approx(0.015), 0.005, "broke: allens: silent")


NAMES = ("queued", "lookup", "transfer", "import", "wasted", "gathered", "prefilled", "first_token")


@given(times=st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e4)), broken=st.booleans(), remote=st.booleans())
def test_whatever_the_times_steps_are_in_order_and_never_negative(
    times: dict[str, float], broken: bool, remote: bool
) -> None:
    base = COMPUTED if remote else BROKEN if broken else LOCAL
    spans = timeline(replace(base, times=times))
    assert all(span.began_seconds >= 0 and span.seconds >= 0 for span in spans)
    assert [span.began_seconds for span in spans] == sorted(span.began_seconds for span in spans)
    json.dumps([span.to_json() for span in spans], allow_nan=False)


REUSED = replace(COMPUTED, gain="reuse", local_pool_tokens=64, remote=replace(REMOTE, pool_tokens=576))


@pytest.mark.parametrize(
    ("receipt", "sentence"),
    [
        (LOCAL, "No gain: the head computed all 641 prompt tokens itself."),
        (
            REUSED,
            "Reuse: 640 of 641 prompt tokens were not computed again, "
            "64 from the head's own pool and 576 from the pool of worker.",
        ),
        (
            COMPUTED,
            "A faster worker: worker computed 576 of 641 prompt tokens in 1.200 s (480 tokens/s); "
            f"with the way there and back it took {REMOTE.transfer_seconds:.3f} s, less than the head would have.",
        ),
        (
            replace(COMPUTED, gain="overlap"),
            "Overlap: worker computed 576 of 641 prompt tokens in 1.200 s (480 tokens/s), "
            "while the head went on decoding for others.",
        ),
        (
            replace(RECEIPT, gain="none"),
            "No gain was measured: worker computed 576 of 641 prompt tokens; "
            "equal machines do not speed up one cold prompt.",
        ),
        (
            BROKEN,
            "No gain: the head computed all 641 prompt tokens itself. "
            "allens did not deliver (timeout), so that the head fell back.",
        ),
    ],
)
def test_the_gain_is_one_sentence_with_its_numbers(receipt: Receipt, sentence: str) -> None:
    assert explain_gain(receipt) == sentence
