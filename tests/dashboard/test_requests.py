"""Requests under way with their progress, and the last ones with their timelines and gains."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
