"""Requests under way with their progress, and the last ones with their timelines and gains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.conftest import Watched
from dashboard.test_page import wait_for_summary
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt
from kakeya_ops.dashboard.requests import Span, lay_out

SECONDS = st.floats(0, 1e4)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=7))
def test_every_step_can_be_seen_within_its_track(steps: list[tuple[float, float]]) -> None:
    timeline = [
        {"step": "import", "node": "head", "began_seconds": began, "seconds": seconds, "detail": ""}
        for began, seconds in steps
    ]
    for span in lay_out(timeline):
        assert 0 <= span.left <= 100
        assert span.width > 0
        assert span.left + span.width <= 100.001


def test_a_transfer_has_a_lane_of_its_own() -> None:
    steps = [("compute", "w", 0.0, 1.0), ("transfer", "w", 0.0, 2.0)]
    names = ("step", "node", "began_seconds", "seconds")
    spans = lay_out([dict(zip(names, step, strict=True)) | {"detail": "some"} for step in steps])
    assert spans[0] == Span("compute", "w", 0.0, 50.0, "1.00 s", "some")
    assert spans[1] == Span("transfer", "w → head", 0.0, 100.0, "2.00 s", "some")


@pytest.mark.system("chromium")
def test_the_last_request_is_the_apis_with_its_gain_and_every_step(seen: Watched, fleet: LoopbackFleet) -> None:
    completion, _ = fleet.head.complete(fresh_prompt(400), "remote")
    script = f"document.querySelector('.request .id')?.textContent === '{completion.request_id}'"
    seen.expect(script, "the request")
    told = fleet.head.get("/v1/network/prefill")["requests"][0]
    assert told["request_id"] == completion.request_id
    assert seen.text(".request .sentence") == told["gain_sentence"]
    assert seen.text(".request .gain") == {"none": "no gain"}.get(told["gain"], told["gain"])
    assert "400 prompt tokens, 384 cached" in seen.text(".request .request-head")
    [first, *_] = seen.page.locator(".request").all()
    assert first.locator(".spans .name").all_inner_texts() == [span["step"] for span in told["timeline"]]
    assert first.locator(".track .part").count() == len(told["timeline"])


@pytest.mark.system("chromium")
def test_a_request_under_way_is_shown_until_it_ends(seen: Watched, fleet: LoopbackFleet) -> None:
    wait_for_summary(seen, fleet)
    assert "No request is under way." in seen.text("#live .idle")
    with fleet.head.started(fresh_prompt(300), max_tokens=4000):
        seen.expect("document.querySelector('#live tbody td')?.textContent === 'decode'", "decoding")
        assert "decoded after 300" in seen.text("#live tbody tr")
        assert seen.page.get_by_role("progressbar").get_attribute("aria-valuenow") == "100"
    seen.expect("document.querySelector('#live tbody').childElementCount === 0", "the end")
