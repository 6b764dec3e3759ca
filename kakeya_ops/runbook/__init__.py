"""The runbooks: pages for one task each, filled in with a fleet's own values, ready to paste."""

from __future__ import annotations

from kakeya_ops.runbook.blocks import Command, read_commands
from kakeya_ops.runbook.pages import Page, list_pages, render_page

__all__ = ["Command", "Page", "list_pages", "read_commands", "render_page"]
