"""What commands that ask a head are tried against."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.test_verify import inventory
from verify.samples import KEY
from verify.scripted_head import ScriptedHead, serve


@pytest.fixture
def fleet(head: ScriptedHead, tmp_path: Path) -> Iterator[Path]:
    """The inventory of a fleet whose head is scripted."""
    key = tmp_path / "fleet.key"
    key.write_text(KEY.reveal().hex())
    key.chmod(0o600)
    path = tmp_path / "inventory.yaml"
    with serve(head, time.time) as url:
        path.write_text(inventory(port=int(url.rpartition(":")[2]), key=str(key)))
        yield path
