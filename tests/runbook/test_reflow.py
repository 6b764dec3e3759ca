"""Lines of a page end where words do, and code stays whole."""

from __future__ import annotations

import textwrap

from kakeya_ops.runbook.reflow import WIDTH, reflow


def test_a_paragraph_fills_its_lines_and_blocks_stay_as_they_are() -> None:
    block = "```console\n$ a\n\n\nb  c\n```"
    words = "word " * 40
    page = f"# Title\n\n{words}\nand more\n\n\n\n{block}\n\n*end*\n"
    filled = textwrap.fill(f"{words}and more", WIDTH)
    assert reflow(page) == f"# Title\n\n{filled}\n\n{block}\n\n*end*\n"


def test_code_is_not_broken_even_where_the_template_does() -> None:
    page = f"{'x' * (WIDTH - 10)} `kakeya runbook\nworker-down`, and more\n"
    assert reflow(page) == f"{'x' * (WIDTH - 10)}\n`kakeya runbook worker-down`, and more\n"


def test_nothing_is_lost_of_odd_pages() -> None:
    for page in ("", "\n", "a", "```console\n```\n", "a-b " * 60):
        assert reflow(page).split() == page.split()
