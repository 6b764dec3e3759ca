"""How far two payloads are apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kakeya_ops.kv.deviation import relative_deviation
from kakeya_ops.kv.layout import ITEM_BYTES, ArrayLayout, PartLayout


def part(*dtypes: str) -> PartLayout:
    return PartLayout("full", tuple(ArrayLayout(leaf, "keys", dtype, (1, 2, 2)) for leaf, dtype in enumerate(dtypes)))


def encode(dtype: str, *numbers: float) -> bytes:
    if dtype == "bfloat16":
        return (np.array(numbers, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    code = {"float32": "<f4", "float16": "<f2", "uint32": "<u4", "int32": "<i4"}[dtype]
    return np.array(numbers, code).tobytes()


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_it_is_counted_in_standard_deviations(dtype: str) -> None:
    ours, theirs = encode(dtype, 0, 4, 0, 4), encode(dtype, 0, 4, 3, 4)
    assert relative_deviation(part(dtype), ours, ours) == 0
    assert relative_deviation(part(dtype), ours, theirs) == pytest.approx(1.5)


def test_each_array_is_measured_by_its_own_spread() -> None:
    ours = encode("float32", 0, 2, 0, 2) + encode("bfloat16", 0, 200, 0, 200)
    near = encode("float32", 0, 2, 0, 2) + encode("bfloat16", 0, 200, 0, 198)
    far = encode("float32", 0, 2, 0, 0) + encode("bfloat16", 0, 200, 0, 200)
    both = part("float32", "bfloat16")
    assert relative_deviation(both, ours, near) == pytest.approx(0.02)
    assert relative_deviation(both, ours, memoryview(far)) == pytest.approx(2.0)


def test_what_does_not_vary_is_measured_as_it_is() -> None:
    assert relative_deviation(part("float32"), encode("float32", *[1] * 4), encode("float32", 1, 1, 1, 4)) == 3


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_infinitely_far(number: float) -> None:
    ours = encode("float32", 0, 1, 2, 3)
    assert relative_deviation(part("float32"), ours, encode("float32", 0, 1, number, 3)) == math.inf


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="12 bytes instead of 16"):
        relative_deviation(part("float32"), encode("float32", 0, 1, 2, 3), encode("float32", 0, 1, 2))
