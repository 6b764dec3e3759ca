"""What a gate says, and whether that refuses."""

from __future__ import annotations

import pytest

from deploy.states import bare, inventory
from kakeya_ops.deploy.gate import Answer, Verdict, no_gate
from kakeya_ops.errors import ExitCode


@pytest.mark.parametrize(
    ("answer", "refuses"), [("fits", False), ("tight", False), ("unknown", False), ("does not fit", True)]
)
def test_only_what_does_not_fit_is_refused(answer: Answer, refuses: bool) -> None:
    assert Verdict(answer, "because").refuses is refuses


def test_a_refusal_names_the_host_the_reason_and_the_remedy() -> None:
    refusal = Verdict("does not fit", "15.6 GB of weights", "a smaller model").refusal("allens")
    assert refusal.exit_code is ExitCode.NO
    assert "allens: does not fit: 15.6 GB of weights" in refusal.message
    assert refusal.hint == "a smaller model"
    assert "--force" in str(Verdict("does not fit", "x").refusal("allens").hint)


def test_what_is_noted_on_the_host_tells_verdict_and_force() -> None:
    refused = Verdict("does not fit", "15.6 GB of weights")
    assert refused.record("it is my Mac") == "does not fit: 15.6 GB of weights (forced: it is my Mac)"
    assert refused.record(None) == "does not fit: 15.6 GB of weights"
    assert Verdict("tight", "1 GB left").record("it is my Mac") == "tight: 1 GB left"


def test_without_a_gate_everything_passes() -> None:
    assert no_gate(inventory().host("allens"), bare("allens")) is None
