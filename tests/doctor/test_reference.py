"""The page is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

from kakeya_ops.doctor.reference import render_reference


def test_the_page_is_as_it_is_written() -> None:
    page = Path(__file__).parents[2] / "docs/doctor.md"
    assert page.read_text() == render_reference(), "run: python -m kakeya_ops.doctor.reference > docs/doctor.md"
