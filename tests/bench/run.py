"""Measures Kakeya against mlx-lm on one machine with two cores, and prints ratios.

    python tests/bench/run.py [--tiny] [--rounds N] [--prefix-tokens N] [--only WORD ...] [--json FILE]

Both sides of a ratio are measured one right after the other, in every round; the ratio is the median over rounds.
Head and worker get one core each, the client shares the worker's, mlx-lm's server runs by itself on one core. The
stock Linux wheel of MLX has a reference BLAS; a single-threaded OpenBLAS is put in front of it on both sides.
`--tiny` takes a tiny model, for a quick look at whether everything runs: its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from measures import MEASUREMENTS, Bench
from models import make_real, make_tiny
from processes import WORKER_CORE
from results import Measure, render_table

from system_packages import openblas_path


def main() -> int:
    """Run what was asked for; 0 whatever came out, 2 when it cannot be run here."""
    options = _parse()
    blas = openblas_path()
    if blas is None and not options.tiny:
        print("bench: no OpenBLAS here: make system-deps", file=sys.stderr)
        return 2
    if not hasattr(os, "sched_setaffinity"):
        print("bench: cores cannot be chosen on this system; Linux is needed", file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {WORKER_CORE})
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as folder:
        tiny = make_tiny(Path(folder))
        model = tiny if options.tiny else make_real(Path(folder))
        bench = Bench(Path(folder), model, tiny, blas, rounds=options.rounds, prefix_tokens=options.prefix_tokens)
        measures = _run(bench, options.only)
    print(f"\n{model.name}, mlx {version('mlx')}, mlx-lm {version('mlx-lm')}, BLAS {blas or 'of the wheel'}")
    print(render_table(measures))
    if options.json:
        options.json.write_text(json.dumps([measure.to_json() for measure in measures], indent=1))
    return 0


def _run(bench: Bench, only: list[str]) -> list[Measure]:
    measures: list[Measure] = []
    try:
        for name, measurement in MEASUREMENTS.items():
            if not only or name in only:
                measures += measurement(bench)
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
    finally:
        bench.close()
    return measures


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to see that everything runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefix-tokens", type=int, default=2048, help="a prompt is this and one more")
    parser.add_argument("--only", action="append", default=[], choices=sorted(MEASUREMENTS), help="may be repeated")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
