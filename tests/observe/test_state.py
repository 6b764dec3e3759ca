"""What a state says of its service."""

from __future__ import annotations

from deploy.states import GUI, bare
from kakeya_ops.launchd import ServiceState
from kakeya_ops.observe.state import Job, Unknown


def test_only_a_living_process_runs() -> None:
    for service, running in (
        (ServiceState(state="running", pid=3), True),
        (ServiceState(state="SIGTERMed", pid=3), False),
    ):
        assert bare("allens", jobs=(Job(GUI, service),)).running is running


def test_no_job_and_an_unknown_one_do_not_run() -> None:
    for jobs in ((), Unknown("silent")):
        state = bare("allens", jobs=jobs)
        assert (state.job, state.running) == (None, False)


def test_what_is_unknown_says_why() -> None:
    assert str(Unknown("no curl")) == "unknown (no curl)"
