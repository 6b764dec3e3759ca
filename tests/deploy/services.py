"""A service of a simulated Mac, under control."""

from __future__ import annotations

import dataclasses

from deploy.conftest import QUICK
from deploy.states import bare, inventory
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.service import ServiceControl
from kakeya_ops.launchd import Domain
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost


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
