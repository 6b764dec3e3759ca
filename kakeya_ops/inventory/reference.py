"""The inventory's JSON Schema for editors, and ``docs/inventory.md``, which is made from that schema and the example.

``python -m kakeya_ops.inventory.reference inventory.yaml > docs/inventory.md`` writes the page anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kakeya_ops.inventory.models import Inventory

_Schema = dict[str, Any]

_INTRODUCTION = """\
# The inventory

<!-- Made by `python -m kakeya_ops.inventory.reference inventory.yaml`: change the sections or the example instead. -->

One YAML file says what a fleet is. It is looked for in this order: `--inventory FILE`, `$KAKEYA_INVENTORY`,
`./inventory.yaml`, `~/.config/kakeya/inventory.yaml`.

```sh
kakeya inventory check          # every fault at once, with its path and line
kakeya inventory show [HOST]    # what holds for each host once defaults are merged in
kakeya inventory schema         # JSON Schema, for completion in an editor
```

Rules that hold everywhere:

- Unknown keys are refused, and so are keys given twice, YAML tags, and values of another type (`"8080"` is not a port).
- A host's own values win over `defaults`: mappings merge key by key, lists are replaced.
- Paths begin with `/` or `~/` and are looked up on the host that they are about.
- A secret is a file that the inventory names, never a value in it.
- `GB` counts as Apple's memory sizes do: 2^30 bytes.

## Example

```yaml
"""


def inventory_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of an inventory; every key has a description."""
    schema = Inventory.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Kakeya inventory"}


def render_reference(example: str) -> str:
    """The documentation page, with `example` as its sample inventory."""
    schema = inventory_schema()
    pages = (_render_section(path, section, schema) for path, section in _sections(schema, schema, ""))
    return f"{_INTRODUCTION}{example.rstrip()}\n```\n\n## All keys\n\n" + "\n".join(pages)


def _sections(schema: _Schema, node: _Schema, path: str) -> Iterator[tuple[str, _Schema]]:
    """Each section with its path, a section's own keys before those of the sections within it."""
    yield path, node
    for key, value in node["properties"].items():
        for suffix, inner in _nested(schema, value):
            yield from _sections(schema, inner, f"{path}.{key}{suffix}".removeprefix("."))


def _nested(schema: _Schema, value: _Schema) -> Iterator[tuple[str, _Schema]]:
    """The sections directly within a property's value, with what leads to them from its key."""
    inside = (("", value), *(("", choice) for choice in value.get("anyOf", ())))
    for suffix, inner in (*inside, (".NAME", value.get("additionalProperties")), ("[]", value.get("items"))):
        if isinstance(inner, dict) and "$ref" in inner:
            yield suffix, _definition(schema, inner)


def _definition(schema: _Schema, value: _Schema) -> _Schema:
    found: _Schema = schema["$defs"][value["$ref"].rpartition("/")[2]]
    return found


def _render_section(path: str, section: _Schema, schema: _Schema) -> str:
    inherited = schema["$defs"]["Defaults"]["properties"] if path == "hosts.NAME" else {}
    own = (key for key, value in section["properties"].items() if value != inherited.get(key))
    rows = (_render_key(key, section, schema) for key in own)
    description = section["description"].partition("\n\n")[0].replace("\n", " ")
    heading = f"`{path}`" if path else "The whole file"
    return f"### {heading}\n\n{description}\n\n| key | value | default | meaning |\n|---|---|---|---|\n{''.join(rows)}"


def _render_key(key: str, section: _Schema, schema: _Schema) -> str:
    value = section["properties"][key]
    if key in section.get("required", ()):
        default = "(required)"
    elif "$ref" in value or "default" not in value:
        default = ""  # told below, or in words
    else:
        default = f"`{json.dumps(value['default'])}`"
    # A description that repeats the section's own is left out by pydantic.
    description = value.get("description") or _definition(schema, value)["description"]
    return f"| `{key}` | {_render_type(value)} | {default} | {' '.join(description.split())} |\n"


def _render_type(value: dict[str, Any]) -> str:
    """What a key's value may be, in a few words."""
    if choices := value.get("anyOf"):
        return " or ".join(_render_type(choice) for choice in choices)
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    names = {"integer": "whole number", "string": "text", "boolean": "`true` or `false`", "null": "`null`"}
    kinds = {"array": "list", "object": "mapping"}
    kind = value.get("type", "object")
    return (kinds.get(kind) or names.get(kind, kind)) + _render_range(value)


def _render_range(value: dict[str, Any]) -> str:
    lowest = value.get("minimum", value.get("exclusiveMinimum"))
    if lowest is None:
        return ""
    above = "above " if "exclusiveMinimum" in value else ""
    return f", {above}{lowest} to {value['maximum']}"


__all__ = ["inventory_schema", "render_reference"]

if __name__ == "__main__":
    sys.stdout.write(render_reference(Path(sys.argv[1]).read_text(encoding="utf-8")))
