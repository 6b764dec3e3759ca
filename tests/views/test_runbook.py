"""The list of runbooks, in any width."""

from __future__ import annotations

import io

from rich.console import Console

from kakeya_ops.runbook import list_pages
from kakeya_ops.views.runbook import pages_table


def test_every_page_can_be_typed_from_the_list() -> None:
    file = io.StringIO()
    Console(file=file, width=100, no_color=True).print(pages_table(list_pages()))
    for page in list_pages():
        assert f"kakeya runbook {page.name}" in file.getvalue()
