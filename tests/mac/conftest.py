"""A simulated Mac for each test, ended with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mac.host import MacHost


@pytest.fixture
def mac(tmp_path: Path) -> Iterator[MacHost]:
    with MacHost(tmp_path / "a mac") as host:
        yield host
