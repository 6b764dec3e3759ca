"""An assessment as JSON has every figure that the tables show."""

from __future__ import annotations

import json

from kakeya_ops.errors import FootprintUnknown
from kakeya_ops.inventory import load_inventory
from kakeya_ops.memory.assessment import Surroundings, assess
from kakeya_ops.memory.facts import pinned
from kakeya_ops.memory.observed import Comparison
from kakeya_ops.memory.report import describe_assessment
from memory.public_models import QWEN3_30B, sized
from test_layout import ROOT

INVENTORY = load_inventory(ROOT / "inventory.yaml")


def test_every_figure_survives_json(tmp_path: object) -> None:
    model = sized(tmp_path, QWEN3_30B, 17.18e9)  # type: ignore[arg-type]
    assessment = assess(INVENTORY, INVENTORY.host("head"), model, Surroundings(pinned(24)))
    document = json.loads(json.dumps(describe_assessment(assessment, [Comparison("MLX peak", 12, 10)])))
    verdict = assessment.verdict
    assert (document["host"], document["role"], document["answer"]) == ("head", "head", "does not fit")
    assert document["first_failure"] == "working set"
    assert verdict.need is not None
    assert sum(term["nbytes"] for term in document["need"]["terms"]) == verdict.need.total_bytes
    assert document["need"]["gpu_bytes"] == verdict.need.gpu_bytes
    assert [one["outcome"] for one in document["inequalities"]] == [one.outcome for one in verdict.inequalities]
    assert document["host_memory"]["total_bytes"]["origin"] == "pinned"
    assert [change["kind"] for change in document["changes"]] == [change.kind for change in assessment.changes]
    assert document["observed"][0]["off_percent"] == 20.0
    assert "as before" in document["observed"][0]["warning"]
    assert document["thresholds"] == {"reserve_bytes": None, "tight_percent": 10.0}


def test_what_is_not_known_is_null_and_named() -> None:
    unknown = assess(
        INVENTORY, INVENTORY.host("head"), FootprintUnknown("m", "its model_type"), Surroundings(pinned(24))
    )
    document = describe_assessment(unknown)
    assert (document["answer"], document["need"], document["missing"]) == ("unknown", None, ["its model_type"])
