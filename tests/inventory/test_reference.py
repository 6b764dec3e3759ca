from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kakeya_ops.inventory.reference import inventory_schema, render_reference

ROOT = Path(__file__).parents[2]


def definitions() -> dict[str, dict[str, Any]]:
    schema = inventory_schema()
    return {"Inventory": schema, **schema["$defs"]}


def test_the_page_is_what_schema_and_example_make_of_it() -> None:
    page = render_reference((ROOT / "inventory.yaml").read_text(encoding="utf-8"))
    again = "python -m kakeya_ops.inventory.reference inventory.yaml > docs/inventory.md"
    assert (ROOT / "docs/inventory.md").read_text(encoding="utf-8") == page, f"make it anew with: {again}"


def test_every_key_is_described_and_on_the_page() -> None:
    page = render_reference("")
    for name, definition in definitions().items():
        assert definition["description"], name
        for key, value in definition["properties"].items():
            # An editor shows the section's own description where a key has none besides.
            assert value.get("description") or "$ref" in value, f"{name}.{key}"
            assert f"| `{key}` |" in page


def test_unknown_keys_are_refused_by_editors_too() -> None:
    assert all(definition["additionalProperties"] is False for definition in definitions().values())


def test_the_schema_is_plain_json() -> None:
    schema = inventory_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_the_example_uses_every_key_that_is_not_optional_there() -> None:
    example = (ROOT / "inventory.yaml").read_text(encoding="utf-8")
    sections = definitions()
    for name in (
        "Inventory",
        "Fleet",
        "Model",
        "CacheSection",
        "Prefill",
        "ModelServing",
        "Defaults",
        "Api",
        "Endpoint",
    ):
        assert [key for key in sections[name]["properties"] if f"{key}:" not in example] == [], name
