"""What hosts print: see ``recorded/README.md``."""

from __future__ import annotations

import re
from pathlib import Path

from kakeya_ops.memory.facts import parse_host
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.probes import Finding

FOLDER = Path(__file__).parent / "recorded"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))
_HEAD = re.compile(r"^==> (\w+) (\d+) <==\n", re.MULTILINE)


def recorded(name: str) -> dict[str, Finding]:
    """The findings of a host."""
    parts = iter(_HEAD.split((FOLDER / f"{name}.txt").read_text())[1:])
    return {probe: Finding(int(status), text.encode()) for probe, status, text in zip(parts, parts, parts, strict=True)}


def with_texts(name: str, **texts: str) -> HostMemory:
    """A recorded host, some of whose probes print something else."""
    return parse_host(recorded(name) | {probe: Finding(0, text.encode()) for probe, text in texts.items()})


def without(name: str, *probes: str) -> HostMemory:
    """A recorded host, some of whose probes fail."""
    return parse_host(recorded(name) | {probe: Finding(1, b"") for probe in probes})
