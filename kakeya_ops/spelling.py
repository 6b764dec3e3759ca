"""What a word that nobody knows may have been meant as: the same for commands, hosts, groups, pages and keys."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100
"""A word beyond it is no slip of the finger, and costs time that grows with its square."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that `word` may have been meant as, as the tail of a sentence; empty when none is near."""
    near = difflib.get_close_matches(word[:_LONGEST], tuple(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


__all__ = ["did_you_mean"]
