from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mac.host import MacHost


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MacHost]:
    """This machine, to whom it runs commands on, as a simulated Mac."""
    with MacHost(tmp_path / "mac") as host:
        for name, value in host.environment.items():
            monkeypatch.setenv(name, value)
        yield host
