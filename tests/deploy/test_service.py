"""launchd's moods, on a simulated Mac: stopping until gone, starting until alive, and never for ever."""

from __future__ import annotations

import dataclasses

import pytest

from deploy.services import control, start
from kakeya_ops.deploy.errors import ServiceError
from kakeya_ops.errors import CommandTimeout
from mac.host import MacHost


def test_a_service_is_started_and_stopped(mac: MacHost) -> None:
    service = control(mac)
    assert service.state() is None
    service.stop()
    start(service)
    state = service.state()
    assert state is not None
    assert state.running
    service.stop()
    assert service.state() is None


@pytest.mark.parametrize(
    "knobs",
    [
        {"eio_next_bootstraps": 3},
        {"bootstrap_ok_but_not_started": True},
        {"profile": "catalina"},
        {"profile": "root"},
        {"eio_next_kickstarts": 1, "bootstrap_ok_but_not_started": True},
    ],
)
def test_passing_moods_of_a_start(mac: MacHost, knobs: dict[str, object]) -> None:
    mac.set(**knobs)
    service = control(mac)
    start(service)
    state = service.state()
    assert state is not None


@pytest.mark.parametrize("knobs", [{"bootout_linger_seconds": 0.5}, {"profile": "catalina"}, {"eio_next_bootouts": 1}])
def test_a_stop_waits_until_the_label_is_free(mac: MacHost, knobs: dict[str, object]) -> None:
    service = control(mac)
    start(service)
    mac.set(**knobs)
    service.stop()
    assert service.state() is None
    start(service)


def test_a_bootout_may_block_for_longer_than_another_call_may_take(mac: MacHost) -> None:
    service = control(mac)
    start(service)
    patient = service.context.timing
    mac.set(bootout_blocks=True, bootout_linger_seconds=1.5)
    service.context.timing = dataclasses.replace(patient, call=1.0, gone=60.0)
    service.stop()
    service.context.timing = patient
    assert service.state() is None


def test_a_label_that_does_not_go_is_an_error_in_the_end(mac: MacHost) -> None:
    service = control(mac, gone=0.3)
    start(service)
    mac.set(bootout_linger_seconds=30)
    with pytest.raises(ServiceError, match="did not go within"):
        service.stop()


@pytest.mark.parametrize("knobs", [{"eio_next_bootstraps": 99}, {"bootstrap_ok_but_absent": True}])
def test_a_start_that_never_works_ends(mac: MacHost, knobs: dict[str, object]) -> None:
    service = control(mac, retries=2)
    mac.set(**knobs)
    with pytest.raises(ServiceError, match="bootstrap"):
        start(service)


def test_a_domain_that_does_not_exist_is_refused_at_once(mac: MacHost) -> None:
    service = control(mac)
    mac.set(gui_session="no")
    with pytest.raises(ServiceError, match="125") as caught:
        start(service)
    assert "not logged in at the screen" in str(caught.value.hint)


def test_a_disabled_label_is_enabled_first(mac: MacHost) -> None:
    service = control(mac)
    mac.launchctl("disable", service.service.target)
    start(service)


def test_a_launchctl_that_hangs_is_given_up(mac: MacHost) -> None:
    service = control(mac, call=0.5)
    mac.set(hang=("bootstrap",))
    with pytest.raises(CommandTimeout, match="launchctl bootstrap"):
        start(service)


def test_a_start_is_one_call_and_a_stop_of_what_goes_at_once_another(
    mac: MacHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = control(mac)
    calls: list[object] = []
    run = service.context.runner.run
    monkeypatch.setattr(service.context.runner, "run", lambda *a, **k: calls.append(a) or run(*a, **k))
    start(service)
    assert len(calls) == 1
    mac.set(bootout_linger_seconds=0)
    service.stop()
    assert len(calls) == 2
    service.stop()
    assert service.state() is None
