"""The runbooks: pages for one task each, filled in with a fleet's own values, ready to paste."""

from __future__ import annotations

from kakeya_ops.runbook.blocks import Command, Edit, read_commands, read_steps
from kakeya_ops.runbook.pages import BEGINNING, Page, list_pages, load_example, render_page

__all__ = [
    "BEGINNING",
    "Command",
    "Edit",
    "Page",
    "list_pages",
    "load_example",
    "read_commands",
    "read_steps",
    "render_page",
]
