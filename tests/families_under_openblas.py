"""What the arithmetic of a preloaded OpenBLAS makes of every family, as one JSON document on stdout.

OpenBLAS sums in an order that depends on how many rows a call has, as GPUs do: only there does a wrong grid show.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from family_runs import (
    BLOCK_TOKENS,
    BLOCKS,
    PROMPT,
    SETTINGS,
    Answer,
    answer,
    answer_together,
    assemble,
    deviation,
    engine_of,
    export,
    uncompiled,
)
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.identify import read_runtime
from tiny_models import FAMILIES, make_family


def measure(path: Path, settings: CacheSettings) -> dict[str, Any]:
    """One family under one of the cache settings: whether it is `exact` on the grid, and how far off the rest is."""
    with engine_of(path, settings) as worker:
        parts = export(worker, PROMPT, BLOCKS)
    with engine_of(path, settings) as head:
        local = answer(head, PROMPT)
        imported = [answer(head, PROMPT, prefix=assemble(head, parts, blocks)) for blocks in (BLOCKS // 2, BLOCKS)]
        alone, together = answer_together(head, parts, count=6)
    return {
        "exact": [other.events == local.events for other in imported],
        "wrong_grid": deviation(local, off_grid(path, settings)),
        "together": max(deviation(*pair) for pair in zip(alone, together, strict=True)),
    }


def off_grid(path: Path, settings: CacheSettings) -> Answer:
    """The same prompt on a grid of another size."""
    with engine_of(path, CacheSettings(BLOCK_TOKENS // 2 * 3, settings.sink, settings.window)) as engine:
        return answer(engine, PROMPT)


def main() -> None:
    """Measure every family."""
    with TemporaryDirectory() as folder, uncompiled():
        paths = {name: make_family(name, Path(folder) / name) for name in FAMILIES}
        runs = {
            f"{name}-{setting}": measure(path, settings)
            for name, path in paths.items()
            for setting, settings in SETTINGS.items()
        }
    json.dump({"threads": read_runtime().threads, "runs": runs}, sys.stdout)


if __name__ == "__main__":
    main()
