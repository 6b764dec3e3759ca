"""One launchd service on one host: stop it until it is gone, start it until it lives, ask whether it is healthy."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import NotHealthy, ServiceError
from kakeya_ops.errors import KakeyaError, PeerError, PeerUnreachable
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.launchd import (
    Domain,
    Outcome,
    Service,
    ServiceState,
    classify,
    describe,
    hint_for,
    launchctl,
    parse_print,
)
from kakeya_ops.observe.http import CURL, SECONDS, HttpRequest, base_url, health_request, read_health, read_status
from kakeya_ops.observe.node import usable_endpoints
from kakeya_ops.observe.state import Health
from kakeya_ops.remote.runner import Result

_LOOPS = 2
"""So many sightings of a service that ended at once, and launchd's next try will not be better."""


@dataclass(frozen=True)
class ServiceControl:
    """The service of one host in `domain`, whatever is loaded now."""

    context: HostContext
    domain: Domain

    @property
    def service(self) -> Service:
        """As launchctl names it."""
        return Service(self.domain, self.context.places.label)

    def state(self) -> ServiceState | None:
        """What launchd tells of it; None when it is not loaded. Raises `ServiceError` when launchd does not say."""
        result = self._call(launchctl.print_service(self.service))
        if result.status == 0:
            return parse_print(result.text)
        if classify(result.status, "print") in (Outcome.GONE, Outcome.NO_DOMAIN):
            return None
        raise self._failed("print", result.status)

    def stop(self) -> None:
        """Unload it and wait until launchd has let go of the label. Nothing happens when it is not loaded."""
        state = self.state()
        if state is None:
            return
        if not state.stopping:
            status = self._call(launchctl.bootout(self.service)).status
            if classify(status, "bootout") not in (Outcome.OK, Outcome.UNDER_WAY, Outcome.GONE, Outcome.TRANSIENT):
                raise self._failed("bootout", status)
        self._wait_gone()

    def start(self, plist: str) -> None:
        """Load the property list at `plist`, with further tries while launchd may still be busy, until it lives."""
        timing = self.context.timing
        self._call(launchctl.enable(self.service))
        status = 0
        for attempt in range(timing.retries + 1):
            if attempt:
                self.context.pause(timing.retry)
            status = self._call(launchctl.bootstrap(self.domain, plist)).status
            outcome = classify(status, "bootstrap")
            if outcome not in (Outcome.OK, Outcome.TRANSIENT, Outcome.UNDER_WAY):
                break
            if self.state() is not None:  # also 5 and 37 can mean that it is loaded now, and 0 that it is not
                self._ensure_pid()
                return
            if status:
                self.context.tell(f"launchctl bootstrap: {describe(status)}; trying again")
        raise self._failed("bootstrap", status)

    def kick(self) -> None:
        """Start it where it is loaded but does not run."""
        self._call(launchctl.kickstart(self.service))

    def _ensure_pid(self) -> None:
        """Some jobs are loaded and never started; one that was started and ended is not our business here."""
        deadline = time.monotonic() + self.context.timing.pid
        while time.monotonic() < deadline:
            state = self.state()
            if state is not None and (state.pid is not None or state.last_exit_code is not None or state.was_killed):
                return
            self.kick()  # nothing where it is being started, and itself sometimes in vain
            self.context.pause(self.context.timing.poll / 5)
        raise self._error(f"{self.service.target} is loaded, but launchd does not start it", None)

    def _wait_gone(self) -> None:
        """`bootout` returns while the process still drains; the label is free only when print says so."""
        state = self.state()
        deadline = time.monotonic() + self.context.timing.gone
        while state is not None:
            if time.monotonic() > deadline:
                raise self._error(
                    f"{self.service.target} did not go within {self.context.timing.gone:.0f} s: {state.state}",
                    f"on the host: launchctl print {self.service.target}",
                )
            if not state.stopping:  # a bootout that was lost, or a job that was started again meanwhile
                self._call(launchctl.bootout(self.service))
            self.context.pause(self.context.timing.poll / 5)
            state = self.state()

    def _call(self, argv: tuple[str, ...]) -> Result:
        return self.context.runner.run(argv, timeout_seconds=self.context.timing.call)

    def _failed(self, verb: str, status: int) -> KakeyaError:
        return self._error(f"launchctl {verb} {self.service.target} failed with {describe(status)}", hint_for(status))

    def _error(self, message: str, hint: str | None) -> KakeyaError:
        return ServiceError(self.context.host.name, message, hint=hint)


def wait_healthy(context: HostContext, domain: Domain) -> Endpoint | None:
    """Wait until the node says that it is healthy; the endpoint at which it said so (None: only the API asks there).

    launchd's own process must live meanwhile: what answers may be another that has the port.
    Raises `NotHealthy` when that does not happen in time, or at once when the service ends again and again.
    """
    control = ServiceControl(context, domain)
    seconds = context.timing.restored if context.undoing else context.timing.healthy
    deadline = time.monotonic() + seconds
    ended = 0
    while True:
        endpoint, health = ask_health(context)
        state = control.state()
        healthy = health is not None and health.healthy
        if healthy and state is not None and state.running:
            return endpoint
        ended = ended + 1 if _has_ended(state) else 0
        if ended >= _LOOPS:
            last = state.ending if state else "it is not loaded any more"
            raise NotHealthy(context.host.name, f"the service ends as soon as it is started (last exit: {last})")
        if time.monotonic() > deadline:
            reason = "nothing answers" if health is None else health.reason or "what answers is not launchd's process"
            raise NotHealthy(context.host.name, f"not healthy after {seconds:.0f} s: {reason}")
        context.pause(context.timing.poll)


def ask_health(context: HostContext) -> tuple[Endpoint | None, Health | None]:
    """What the node says of its health, and where; None when nothing answers."""
    host, found = context.host, None
    for endpoint in usable_endpoints(host):
        request = health_request(host.name, endpoint)
        result = ask(context, request)
        try:
            found = read_health(request, result.status, result.stdout)
            return endpoint, found
        except PeerUnreachable:
            continue
        except PeerError as error:
            found = Health(False, error.message)
    if found is None and not host.endpoints and host.api is not None:
        request = HttpRequest(host.name, f"{base_url(host.api.bind, host.api.port)}/healthz")
        result = ask(context, request)
        if result.status == 0:
            found = Health(read_status(request, 0, result.stdout) == 200, "the API does not say that it is well")
    return None, found


def ask(context: HostContext, request: HttpRequest) -> Result:
    """What curl on the host makes of `request`."""
    return context.runner.run(CURL, input=request.config(), timeout_seconds=SECONDS * 3)


def _has_ended(state: ServiceState | None) -> bool:
    if state is None:
        return True
    return not state.running and not state.stopping and (bool(state.last_exit_code) or state.was_killed)


__all__ = ["ServiceControl", "ask", "ask_health", "wait_healthy"]
