from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.bench.spread import Spread, quantile, spread


def test_what_is_not_known_does_not_count() -> None:
    assert spread([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert spread([None]) is None


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_quantiles_are_by_nearest_rank(share: float, value: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == value


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_is_one_of_the_values_and_bounds_its_share(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
