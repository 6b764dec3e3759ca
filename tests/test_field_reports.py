"""Every test that docs/field-reports.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall((ROOT / "docs/field-reports.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [
        f"{path}::{name}"
        for path, name in named
        if f"def {name}(" not in (ROOT / "tests" / path).read_text(encoding="utf-8")
    ]
    assert not missing
