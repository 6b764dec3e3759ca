"""How long a footprint takes, and how much memory: a model directory of 100 shards with 1,000 tensors, headers only.

    python tests/bench/footprint.py [--rounds N]

Each round is a process of its own, so that its peak is that of one reading and the imports that it needs. Prints the
median time from the first import to the estimate, the part of it that reads the directory, and the largest resident
set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from memory.checkpoints import write_checkpoint
from memory.golden import base

SHARDS, LAYERS, TENSORS_PER_LAYER = 100, 50, 20

READ_ONCE = """
import time; begun = time.perf_counter()
import json, resource, sys
from pathlib import Path
from kakeya_ops.memory.footprint import Workload, estimate
from kakeya_ops.memory.model_shape import read_shape
imported = time.perf_counter()
footprint = estimate(read_shape(Path(sys.argv[1])), Workload("head", 8192, 4, pool_bytes=2**32))
done = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
loaded = any(name.partition(".")[0] in ("mlx", "mlx_lm") for name in sys.modules)
print(json.dumps({"total": done - begun, "reading": done - imported, "peak": peak, "mlx": loaded}))
"""


def main() -> int:
    """Measure and print; 1 when MLX was imported, which would make all of it pointless."""
    parser = argparse.ArgumentParser(description="measures how a model directory is read")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as folder:
        path = make_directory(Path(folder))
        runs = [read_once(path) for _ in range(rounds)]
    total, reading = (median(run[key] for run in runs) for key in ("total", "reading"))
    peak_mib = max(run["peak"] for run in runs) / 2**20
    print(f"{SHARDS} shards, {LAYERS * TENSORS_PER_LAYER} tensors, median of {rounds}:")
    print(f"  {total * 1e3:.0f} ms from start to estimate, {reading * 1e3:.0f} ms of them reading")
    print(f"  {peak_mib:.0f} MiB resident at most")
    return int(any(run["mlx"] for run in runs))


def make_directory(folder: Path) -> Path:
    """The directory; its shards take no room on disk."""
    names = [
        f"model.layers.{layer}.mlp.part{part}.weight" for layer in range(LAYERS) for part in range(TENSORS_PER_LAYER)
    ]
    config = base("llama", LAYERS, tie_word_embeddings=True)
    return write_checkpoint(folder / "model", config, {name: ("BF16", [1000, 1000]) for name in names}, shards=SHARDS)


def read_once(path: Path) -> dict[str, float]:
    """One reading in a fresh process."""
    done = subprocess.run([sys.executable, "-c", READ_ONCE, str(path)], capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


if __name__ == "__main__":
    sys.exit(main())
