from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from front.towns import Town, open_town


@pytest.fixture(scope="session")
def town(tiny_llama: Path) -> Iterator[Town]:
    """A head with one cache peer, for all tests of this folder."""
    with open_town(tiny_llama) as town:
        yield town
