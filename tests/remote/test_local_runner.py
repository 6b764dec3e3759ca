from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.remote.local_runner import LocalRunner


def test_home_is_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    runner = LocalRunner("here", ("a note",))
    assert runner.home() == str(tmp_path)
    assert runner.expand("~/x") == f"{tmp_path}/x"
    assert runner.notes == ("a note",)
    runner.close()
    assert runner.run(["pwd"], check=True).text.strip() == str(tmp_path)
