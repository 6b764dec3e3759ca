"""Health is what the node says and launchd confirms, asked in one call."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from deploy.services import control, start
from kakeya_ops.deploy.errors import NotHealthy
from kakeya_ops.deploy.health import look, wait_healthy
from kakeya_ops.observe.node import Asker
from mac.host import MacHost
from serving.running import KEY, Served, make_cache


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
        assert wait_healthy(context, service.domain).endpoint == up
        stranger = dataclasses.replace(context, host=host.model_copy(update={"name": "boris"}))
        seen = look(stranger, service.domain)
        assert not seen.good
        health = seen.health
    assert health is not None
    assert not health.healthy
    assert Path(service.context.places.plist).is_file()


def test_health_and_card_of_a_good_node_are_one_call(mac: MacHost, monkeypatch: pytest.MonkeyPatch) -> None:
    service = control(mac)
    start(service)
    calls: list[object] = []
    run = service.context.runner.run
    monkeypatch.setattr(service.context.runner, "run", lambda *a, **k: calls.append(a) or run(*a, **k))
    with Served(make_cache("allens")) as served:
        end = service.context.host.endpoints[0]
        down, up = (end.model_copy(update={"port": port}) for port in (1, served.port))
        host = service.context.host
        for endpoints, most in (((up,), 1), ((down, up), 3)):
            context = dataclasses.replace(service.context, host=host.model_copy(update={"endpoints": endpoints}))
            calls.clear()
            found = wait_healthy(context, service.domain, Asker(KEY, "tests"))
            assert (found.endpoint, len(calls)) == (up, most)
            assert found.card is not None
            assert found.card[1].stdout.startswith(b"HTTP/1.1 200")


def test_a_node_that_answers_without_a_process_of_launchd_s_is_not_good(mac: MacHost) -> None:
    service = control(mac, healthy=60)
    with Served(make_cache("allens")) as served:
        end = service.context.host.endpoints[0].model_copy(update={"port": served.port})
        host = service.context.host.model_copy(update={"endpoints": (end,)})
        context = dataclasses.replace(service.context, host=host)
        seen = look(context, service.domain)
        assert seen.health is not None
        assert seen.health.healthy
        assert not seen.good
        with pytest.raises(NotHealthy, match="not loaded any more"):
            wait_healthy(context, service.domain)
