"""Whether the node on a host is healthy, asked together with what launchd says of its process."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kakeya_ops.deploy.batch import Call, run_all
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import NotHealthy
from kakeya_ops.deploy.service import ServiceControl
from kakeya_ops.errors import PeerError, PeerUnreachable
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.launchd import Domain, ServiceState, launchctl
from kakeya_ops.observe.http import CURL, SECONDS, HttpRequest, base_url, health_request, read_health, read_status
from kakeya_ops.observe.node import Asker, usable_endpoints
from kakeya_ops.observe.state import Health
from kakeya_ops.remote.runner import Result

_CALL_SECONDS = SECONDS * 3

Exchange = tuple[HttpRequest, Result]
"""A request, and what curl on the host made of it."""


@dataclass(frozen=True)
class Look:
    """One look at a node: its health and the endpoint that told it, what launchd says of it, and its card if asked for.

    `endpoint` is None where no node answers, or only its API does.
    """

    endpoint: Endpoint | None
    health: Health | None
    state: ServiceState | None
    card: Exchange | None = None

    @property
    def good(self) -> bool:
        """Healthy, by a process of launchd's: what answers may be another that has the port."""
        return bool(self.health and self.health.healthy and self.state is not None and self.state.running)

    @property
    def has_ended(self) -> bool:
        """Whether the service is not running, because it ended or is not loaded."""
        state = self.state
        if state is None:
            return True
        return not state.running and not state.stopping and (bool(state.last_exit_code) or state.was_killed)


def wait_healthy(context: HostContext, domain: Domain, asker: Asker | None = None) -> Look:
    """Wait until the node says that it is healthy; the look that showed it, with an `asker` at its card too.

    Raises `NotHealthy` when that does not happen in time, or soon when the service ends and stays so.
    """
    seconds = context.timing.restored if context.undoing else context.timing.healthy
    began = time.monotonic()
    ended: float | None = None
    while True:
        found, now = look(context, domain, asker), time.monotonic()
        if found.good:
            return found
        ended = (ended or now) if found.has_ended else None
        if ended is not None and now - ended >= context.timing.poll:
            last = found.state.ending if found.state else "it is not loaded any more"
            raise NotHealthy(context.host.name, f"the service ends as soon as it is started (last exit: {last})")
        if now - began > seconds:
            health = found.health
            reason = "nothing answers" if health is None else health.reason or "what answers is not launchd's process"
            raise NotHealthy(context.host.name, f"not healthy after {seconds:.0f} s: {reason}")
        context.pause(context.timing.pause_after(now - began))


def look(context: HostContext, domain: Domain, asker: Asker | None = None) -> Look:
    """Launchd's word, and health and card at the first endpoint that answers; usually all that in one call.

    Raises `ServiceError` when launchd does not say.
    """
    control = ServiceControl(context, domain)
    endpoints = usable_endpoints(context.host)
    asked = _requests(context, endpoints[0] if endpoints else None, asker)
    calls = [
        *(Call(CURL, request.config(context.places.key)) for request in asked),
        Call(launchctl.print_service(control.service)),
    ]
    *answers, shown = run_all(context.runner, calls, _CALL_SECONDS * len(asked) + context.timing.call)
    state = control.read_state(shown)
    replies = list(zip(asked, answers, strict=True))
    if not endpoints:
        return Look(None, _api_health(*replies[0]) if replies else None, state)
    said: Health | None = None
    for number, endpoint in enumerate(endpoints):
        replies = replies if number == 0 else [_exchange(context, health_request(context.host.name, endpoint))]
        try:
            health = read_health(*_reply(replies[0]))
        except PeerUnreachable:
            continue
        except PeerError as error:
            said = Health(False, error.message)
            continue
        if asker is not None and len(replies) == 1:
            replies.append(_exchange(context, asker.card_request(context.host.name, endpoint)))
        return Look(endpoint, health, state, replies[1] if asker else None)
    return Look(None, said, state)


def _requests(context: HostContext, endpoint: Endpoint | None, asker: Asker | None) -> list[HttpRequest]:
    """What is asked for together with launchd's word: health and card at `endpoint`, or else health of the API."""
    host = context.host
    if endpoint is None:
        api = host.api
        return [HttpRequest(host.name, f"{base_url(api.bind, api.port)}/healthz")] if api else []
    return [health_request(host.name, endpoint), *([asker.card_request(host.name, endpoint)] if asker else [])]


def _exchange(context: HostContext, request: HttpRequest) -> Exchange:
    """A request by itself, and what curl on the host makes of it."""
    return request, ask(context, request)


def _reply(exchange: Exchange) -> tuple[HttpRequest, int, bytes]:
    request, result = exchange
    return request, result.status, result.stdout


def ask(context: HostContext, request: HttpRequest) -> Result:
    """What curl on the host makes of `request`."""
    return context.runner.run(CURL, input=request.config(context.places.key), timeout_seconds=_CALL_SECONDS)


def _api_health(request: HttpRequest, result: Result) -> Health | None:
    if result.status != 0:
        return None
    return Health(read_status(request, 0, result.stdout) == 200, "the API does not say that it is well")


__all__ = ["Exchange", "Look", "ask", "look", "wait_healthy"]
