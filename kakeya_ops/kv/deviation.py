"""How far two payloads of one part are apart. Needs no model, so that whoever holds both can say it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kakeya_ops.kv.layout import PartLayout

if TYPE_CHECKING:
    from typing_extensions import Buffer

_READ_AS = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "uint32": "<u4", "int32": "<i4"}


def relative_deviation(part: PartLayout, ours: Buffer, theirs: Buffer) -> float:
    """The largest difference of two numbers in one place, in standard deviations of the array of `ours` it is in.

    The measure of how much a schedule, a kernel or a wrong weight moves KV, whatever the size of its numbers; infinity
    where a number of `theirs` is none. Raises `ValueError` for payloads that are not as long as `part` says.
    """
    worst, start = 0.0, 0
    for payload in (ours, theirs):
        if memoryview(payload).nbytes != part.nbytes:
            raise ValueError(f"a payload of {memoryview(payload).nbytes} bytes instead of {part.nbytes}")
    for array in part.arrays:
        stop = start + array.nbytes
        pair = (_numbers(payload, start, stop, array.dtype) for payload in (ours, theirs))
        worst, start = max(worst, _apart(*pair)), stop
    return worst


def _apart(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    if not np.isfinite(theirs).all():
        return math.inf
    largest = float(np.abs(ours - theirs).max())
    return largest / (float(ours.std()) or 1.0)


def _numbers(payload: Buffer, start: int, stop: int, dtype: str) -> NDArray[Any]:
    """The numbers of one array as float64; bfloat16 is the upper half of float32."""
    raw = np.frombuffer(memoryview(payload).cast("B")[start:stop], _READ_AS[dtype])
    if dtype == "bfloat16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float64)


__all__ = ["relative_deviation"]
