"""Paragraphs of a page in lines of one width, whatever the names in them; blocks stay as they are."""

from __future__ import annotations

import re
import textwrap

WIDTH = 100
"""Characters of a line, unless a word or a piece of code alone is longer."""
_BLOCKS = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_GLUE = "\x00"
"""In the place of a space at which no line may end; no name in an inventory has it."""


def reflow(page: str) -> str:
    """`page` with its paragraphs in lines of `WIDTH`, and no more than one empty line between them.

    What stands in backticks stays in one line, so that it can be copied.
    """
    parts = _BLOCKS.split(page)
    parts[::2] = [_reflow_text(part) for part in parts[::2]]
    return "".join(parts)


def _reflow_text(text: str) -> str:
    inner = text.strip("\n")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    filled = "\n\n".join(_fill(paragraph) for paragraph in re.split(r"\n{2,}", inner))
    return before[:2] + filled + after[:2]


def _fill(paragraph: str) -> str:
    glued = _CODE.sub(lambda found: found[0].replace(" ", _GLUE), " ".join(paragraph.split("\n")))
    return textwrap.fill(glued, WIDTH, break_long_words=False, break_on_hyphens=False).replace(_GLUE, " ")


__all__ = ["WIDTH", "reflow"]
