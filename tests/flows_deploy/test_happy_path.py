"""From two bare Macs to a fleet that proves itself, and back, over real SSH."""

from __future__ import annotations

import pytest

from flows_deploy.deployed import Fleet


def test_a_worker_is_installed_and_a_second_run_has_nothing_to_do(fleet: Fleet) -> None:
    result = fleet.deploy("allens")["allens"]
    print("\n".join(fleet.notes), result)
    assert result.verdict == "done", result
    assert not fleet.plan("allens").pending
