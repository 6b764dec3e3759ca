"""What packing leaves of a model's KV, and how fast it is: ``python -m bench.packing MODEL_DIRECTORY TEXT_FILE``."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.wire.packing import Packing

BLOCKS = 16


def measure(directory: Path, text: str) -> None:
    engine = Engine.load(directory, CacheSettings())
    kept: list[tuple[int, memoryview]] = []
    done = threading.Event()
    tokens = tuple(engine.text.encode(text))[: BLOCKS * engine.layout.block_tokens]
    engine.prefill(
        PrefillJob(
            tokens,
            len(tokens) // engine.layout.block_tokens,
            lambda block, parts: kept.extend((i, one.data) for i, one in enumerate(parts) if one),
            lambda error: done.set(),
        )
    )
    done.wait()
    packing, nbytes = Packing(engine.layout), sum(data.nbytes for _, data in kept)
    began = time.perf_counter()
    packed = [(part, packing.pack(part, data) or data) for part, data in kept]
    middle = time.perf_counter()
    for part, data in packed:
        if packing.fits(part, data.nbytes):
            packing.unpack(part, data)
    ended = time.perf_counter()
    share = sum(data.nbytes for _, data in packed) / nbytes
    dtype = engine.layout.parts[0].arrays[0].dtype
    print(f"{dtype}: {nbytes} bytes, {share:.3f} of them left")
    rates = [nbytes / seconds / 1e6 for seconds in (middle - began, ended - middle)]
    print(f"packed at {rates[0]:.0f} MB/s, unpacked at {rates[1]:.0f} MB/s")
    engine.close()


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]).read_text())
