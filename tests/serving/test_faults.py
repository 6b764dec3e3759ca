from __future__ import annotations

import pytest

from kakeya_ops.errors import RefusedError
from kakeya_ops.serving import faults as module
from kakeya_ops.serving.faults import EXIT_CODE, Faults, end_process
from kakeya_ops.wire.drills import Act, Fault

NONCE = "ab" * 16


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def faults(clock: Clock) -> Faults:
    return Faults(allowed=True, clock=clock)


def test_nothing_is_armed_at_first(faults: Faults) -> None:
    assert faults.armed is None
    assert faults.take("prefill", None) is None
    assert faults.disarm() == 0


def test_where_drills_are_not_allowed_nothing_can_be_armed() -> None:
    faults = Faults(allowed=False)
    with pytest.raises(RefusedError, match="no part in drills") as caught:
        faults.arm(Fault(act=Act.CUT))
    assert "fleet.drill: true" in str(caught.value.hint)
    assert faults.armed is None


@pytest.mark.parametrize("act", [Act.EXIT, Act.DIE])
def test_a_process_that_nothing_starts_again_is_not_ended(faults: Faults, act: Act) -> None:
    with pytest.raises(RefusedError, match="nothing would start this process again"):
        faults.arm(Fault(act=act))
    faults.revived = True
    faults.arm(Fault(act=act))
    assert faults.armed is not None


def test_a_fault_is_gone_after_its_uses(faults: Faults) -> None:
    faults.arm(Fault(act=Act.CUT, uses=2))
    assert [faults.take("prefill", None) is None for _ in range(3)] == [False, False, True]
    assert faults.armed is None
    assert [faults.disarm(), faults.disarm()] == [2, 0]


def test_a_fault_is_gone_after_its_time(faults: Faults, clock: Clock) -> None:
    faults.arm(Fault(act=Act.CUT, lifetime_seconds=5))
    clock.now += 4.9
    assert faults.armed is not None
    clock.now += 0.2
    assert faults.take("prefill", None) is None
    assert faults.armed is None


def test_only_the_request_with_the_nonce_meets_it(faults: Faults) -> None:
    faults.arm(Fault(act=Act.CUT, nonce=NONCE))
    assert faults.take("prefill", None) is None
    assert faults.take("prefill", "cd" * 16) is None
    assert faults.take("lookup", NONCE) is None
    assert faults.take("prefill", NONCE) is not None


def test_one_fault_takes_the_place_of_another(faults: Faults) -> None:
    faults.arm(Fault(act=Act.CUT))
    faults.take("prefill", None)
    faults.arm(Fault(act=Act.FLIP))
    found = faults.take("prefill", None)
    assert found is not None
    assert found.act is Act.FLIP
    assert faults.disarm() == 1


def test_a_drill_ends_a_process_with_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(module.os, "_exit", codes.append)
    end_process()  # type: ignore[misc] # it returns because the end is taken away
    assert codes == [EXIT_CODE]
