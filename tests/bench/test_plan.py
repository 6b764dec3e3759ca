from __future__ import annotations

import pytest

from kakeya_ops.bench.plan import parse_lengths
from kakeya_ops.errors import InputError


def test_lengths_are_ascending_and_each_is_there_once() -> None:
    assert parse_lengths("2048, 256,1024,256") == (256, 1024, 2048)


@pytest.mark.parametrize("text", ["", "0", "256,", "a", "-5", "1e3", "2000000", ",".join(str(n) for n in range(1, 18))])
def test_what_is_no_list_of_lengths_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_lengths(text)
