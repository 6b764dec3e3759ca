"""The machine itself. What a simulated Mac provokes is in `test_examine`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.states import bare
from doctor.patients import pair, patient
from kakeya_ops.deploy.memory_gate import assess_state
from kakeya_ops.doctor.finding import Finding
from kakeya_ops.doctor.machine import check_machine
from kakeya_ops.memory.facts import pinned
from kakeya_ops.observe.state import Unknown


def look(code: str, **state: Any) -> list[Finding]:
    one = patient(state=bare("allens", **state))
    cache = pair().host("allens").model_copy(update={"role": "cache", "pool_gb": 4.0})
    memory = assess_state(pair(), cache, one.state, None)
    return [finding for finding in check_machine(replace(one, memory=memory)) if finding.code == code]


@pytest.mark.parametrize(("gigabytes", "verdict"), [(32, "ok"), (2, "failed")])
def test_the_memory_verdict_is_one_of_the_findings(gigabytes: int, verdict: str) -> None:
    [finding] = look("memory", memory=pinned(gigabytes))
    assert (finding.verdict, "as a worker: " in finding.found) == (verdict, True)
    assert (finding.fix is None) == (verdict == "ok")


def test_no_verdict_is_made_up_where_there_is_no_model() -> None:
    assert not [finding for finding in check_machine(patient()) if finding.code == "memory"]


def test_linux_is_slow_and_has_no_wired_limit() -> None:
    [system] = look("system", macos=Unknown("no sw_vers"))
    assert (system.verdict, system.found) == ("warning", "not macOS")
    [limit] = look("wired-limit", macos=Unknown("no sw_vers"))
    assert (limit.verdict, limit.found) == ("ok", "only macOS has one")
    assert look("wired-limit")[0].verdict == "unknown"
