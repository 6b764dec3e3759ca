from __future__ import annotations

from pathlib import Path

from kakeya_ops.inventory import parse_inventory
from kakeya_ops.status.forecast import forecast_needs
from status.samples import TEXT, VAULT


def test_nodes_with_a_model_are_forecast_where_the_model_is(tiny_llama: Path) -> None:
    needs = forecast_needs(parse_inventory((TEXT + VAULT).replace("/models/tiny", str(tiny_llama)).encode(), "i.yaml"))
    assert set(needs) == {"head", "allens", "vault"}
    assert needs["head"].total_bytes > needs["vault"].total_bytes > 4 * 2**30


def test_elsewhere_only_caches_are() -> None:
    assert set(forecast_needs(parse_inventory((TEXT + VAULT).encode(), "i.yaml"))) == {"vault"}
