"""Writes ``docs/doctor.md`` from the catalogue: ``python -m kakeya_ops.doctor.reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kakeya_ops.doctor.catalogue import TOPICS

_INTRODUCTION = """\
# What `kakeya doctor` looks at

Written by `python -m kakeya_ops.doctor.reference`; do not edit.

`kakeya doctor [HOST…]` reads every host over SSH, all at once, changes nothing, and says one finding a line: *ok*;
*warning*, it works now and will stop, or works less well than it could; *failed*; *unknown*, a fact is missing, and
named. What is not ok comes with what to do. It exits with 1 when something failed. `kakeya --json doctor` prints the
same as one document, in which each finding has a stable `code`: the headings below.

What a host's *shell* reaches and what its *service* reaches are two findings (`port` and `process`), because macOS
decides by who started a program.
"""


def render_reference() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for code, topic in TOPICS.items():
        yield f"### {code}\n"
        yield f"*{_as_sentence(topic.title)}.* {topic.why}\n"


def _as_sentence(title: str) -> str:
    """A name that is written with a small letter keeps it."""
    first = title.split(" ")[0]
    return title if not first.isalpha() or not first.islower() else f"{title[0].upper()}{title[1:]}"


if __name__ == "__main__":
    sys.stdout.write(render_reference())


__all__ = ["render_reference"]
