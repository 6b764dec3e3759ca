from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from family_runs import SETTINGS, uncompiled
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.engine.identify import load_weights
from kakeya_ops.engine.trial import try_decoding_together
from kakeya_ops.errors import UnsupportedModel
from kakeya_ops.model.directory import ModelDirectory
from tiny_models import FAMILIES, MakeFamily


def load(path: Path) -> Any:
    return load_weights(ModelDirectory.open(path))[0]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes(tiny_family: MakeFamily, family: str, settings: str) -> None:
    with uncompiled():
        try_decoding_together(load(tiny_family(family)), SETTINGS[settings])


def test_a_rope_that_wants_one_position_for_all_is_refused(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    config["rope_scaling"] = {"rope_type": "dynamic", "factor": 2.0}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="llama cannot decode two sequences together"):
        try_decoding_together(load(path), SETTINGS["whole"])


def test_a_model_that_computes_nan_is_refused(tiny_llama: Path) -> None:
    model = load(tiny_llama)
    try_decoding_together(model, SETTINGS["whole"])
    weight = model.model.norm.weight
    model.model.norm.weight = weight * float("nan")
    with pytest.raises(UnsupportedModel, match="llama computes what is not a number"):
        try_decoding_together(model, SETTINGS["whole"])
