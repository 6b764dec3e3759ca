"""Errors name the host, and the exit code that goes with them."""

from __future__ import annotations

from kakeya_ops.deploy.errors import DeployError, Interrupted, LockHeld, NothingToReturnTo
from kakeya_ops.errors import ExitCode


def test_the_host_stands_in_front() -> None:
    assert DeployError("allens", "no room").message == "allens: no room"


def test_exit_codes() -> None:
    codes = [error.exit_code for error in (DeployError("a", "b"), Interrupted(), NothingToReturnTo("x"))]
    assert codes == [ExitCode.FAILED, ExitCode.INTERRUPTED, ExitCode.NO]


def test_only_an_abandoned_lock_is_offered_to_be_broken() -> None:
    assert "break" not in str(LockHeld("allens", "somebody", stale=None).hint)
    assert "kakeya lock break allens" in str(LockHeld("allens", "somebody", stale="it has ended").hint)
