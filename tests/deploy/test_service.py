"""launchd's moods, on a simulated Mac: stopping until gone, starting until alive, and never for ever."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from deploy.conftest import QUICK
from deploy.states import bare, inventory
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import NotHealthy, ServiceError
from kakeya_ops.deploy.service import ServiceControl, ask_health, wait_healthy
from kakeya_ops.errors import CommandTimeout
from kakeya_ops.launchd import Domain
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost
from serving.running import Served, make_cache


def control(mac: MacHost, arguments: list[str] | None = None, **timing: float) -> ServiceControl:
    """Control of a service whose property list is written."""
    host = inventory().host("allens")
    places = Places.of(inventory(), host, str(mac.home))
    uid = mac.state.own_uid
    before = bare("allens", home=str(mac.home), uid=uid, domains=(Domain("gui", uid), Domain("user", uid)))
    timings = dataclasses.replace(QUICK, **timing)
    context = HostContext(host, LocalRunner("allens"), places, before, timing=timings)
    sessions = ["Aqua", "Background"]
    command = arguments or ["/bin/sleep", "1000"]
    mac.write_agent(
        {"Label": places.label, "ProgramArguments": command, "KeepAlive": True, "LimitLoadToSessionType": sessions}
    )
    return ServiceControl(context, Domain("gui", uid))


def start(service: ServiceControl) -> None:
    service.start(service.context.places.plist)


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
    with pytest.raises(CommandTimeout):
        start(service)


def test_a_service_that_ends_again_and_again_is_not_waited_for(mac: MacHost) -> None:
    service = control(mac, ["/bin/sh", "-c", "exit 3"], healthy=60)
    start(service)
    with pytest.raises(NotHealthy, match=r"ends as soon as it is started .last exit: 3"):
        wait_healthy(service.context, service.domain)


def test_silence_is_told_when_the_time_is_over(mac: MacHost) -> None:
    service = control(mac, healthy=0.3)
    start(service)
    with pytest.raises(NotHealthy, match="nothing answers"):
        wait_healthy(service.context, service.domain)


def test_health_is_asked_at_the_first_endpoint_that_answers(mac: MacHost) -> None:
    service = control(mac)
    start(service)
    with Served(make_cache("allens")) as served:
        down, up = (service.context.host.endpoints[0].model_copy(update={"port": port}) for port in (1, served.port))
        host = service.context.host.model_copy(update={"endpoints": (down, up)})
        context = dataclasses.replace(service.context, host=host)
        assert wait_healthy(context, service.domain) == up
        stranger = dataclasses.replace(context, host=host.model_copy(update={"name": "boris"}))
        _, health = ask_health(stranger)
    assert health is not None
    assert not health.healthy
    assert Path(service.context.places.plist).is_file()
