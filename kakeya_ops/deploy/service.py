"""One launchd service on one host: stop it until it is gone, start it until it lives."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kakeya_ops.deploy.batch import Call, run_all
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import ServiceError
from kakeya_ops.errors import KakeyaError
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
from kakeya_ops.remote.runner import Result

_LEAVES = (Outcome.OK, Outcome.UNDER_WAY, Outcome.GONE, Outcome.TRANSIENT, Outcome.NO_DOMAIN)
"""What a bootout may come to, after which it is waited until the label is free."""


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
        return self.read_state(self._call(launchctl.print_service(self.service)))

    def read_state(self, result: Result) -> ServiceState | None:
        """What the answer of ``launchctl print`` tells of it; None when it is not loaded. Raises `ServiceError`."""
        if result.status == 0:
            return parse_print(result.text)
        if classify(result.status, "print") in (Outcome.GONE, Outcome.NO_DOMAIN):
            return None
        raise self._failed("print", result.status)

    def stop(self) -> None:
        """Unload it and wait until launchd has let go of the label; that it is not loaded, or leaving, is no fault."""
        # The first shows that launchctl answers at all, before anything is stopped.
        shown = launchctl.print_service(self.service)
        calls = [Call(shown, looks=True), Call(launchctl.bootout(self.service)), Call(shown, looks=True)]
        _, bootout, after = run_all(self.context.runner, calls, self._bootout_seconds)
        if classify(bootout.status, "bootout") not in _LEAVES:
            raise self._failed("bootout", bootout.status)
        self._wait_gone(self.read_state(after))

    def start(self, plist: str) -> None:
        """Load the property list at `plist`, with further tries while launchd may still be busy, until it lives."""
        timing = self.context.timing
        load = (launchctl.bootstrap(self.domain, plist), launchctl.print_service(self.service))
        status = 0
        for attempt in range(timing.retries + 1):
            if attempt:
                self.context.pause(timing.retry)
            calls = load if attempt else (launchctl.enable(self.service), *load)
            bootstrap, shown = self._calls(*calls)[-2:]
            status = bootstrap.status
            if classify(status, "bootstrap") not in (Outcome.OK, Outcome.TRANSIENT, Outcome.UNDER_WAY):
                break
            state = self.read_state(shown)
            if state is not None:  # also 5 and 37 can mean that it is loaded now, and 0 that it is not
                self._ensure_pid(state)
                return
            if status:
                self.context.tell(f"launchctl bootstrap: {describe(status)}; trying again")
        raise self._failed("bootstrap", status)

    def kick(self) -> None:
        """Start it where it is loaded but does not run."""
        self._call(launchctl.kickstart(self.service))

    def _ensure_pid(self, state: ServiceState | None) -> None:
        """Some jobs are loaded and never started; one that was started and ended is not our business here."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < self.context.timing.pid:
            if state is not None and (state.pid is not None or state.last_exit_code is not None or state.was_killed):
                return
            self.kick()  # nothing where it is being started, and itself sometimes in vain
            self.context.pause(self.context.timing.pause_after(waited))
            state = self.state()
        raise self._error(f"{self.service.target} is loaded, but launchd does not start it", None)

    def _wait_gone(self, state: ServiceState | None) -> None:
        """`bootout` may return while the process still drains; the label is free only when print says so."""
        began = time.monotonic()
        while state is not None:
            waited = time.monotonic() - began
            if waited > self.context.timing.gone:
                raise self._error(
                    f"{self.service.target} did not go within {self.context.timing.gone:.0f} s: {state.state}",
                    f"on the host: launchctl print {self.service.target}",
                )
            if not state.stopping:  # a bootout that was lost, or a job that was started again meanwhile
                self.context.runner.run(launchctl.bootout(self.service), timeout_seconds=self._bootout_seconds)
            self.context.pause(self.context.timing.pause_after(waited))
            state = self.state()

    @property
    def _bootout_seconds(self) -> float:
        """`bootout` may also block for as long as the process drains, and until launchd has let go of the label."""
        return self.context.timing.call + self.context.timing.gone

    def _call(self, argv: tuple[str, ...]) -> Result:
        return self.context.runner.run(argv, timeout_seconds=self.context.timing.call)

    def _calls(self, *calls: tuple[str, ...]) -> list[Result]:
        return run_all(self.context.runner, [Call(argv) for argv in calls], self.context.timing.call)

    def _failed(self, verb: str, status: int) -> KakeyaError:
        return self._error(f"launchctl {verb} {self.service.target} failed with {describe(status)}", hint_for(status))

    def _error(self, message: str, hint: str | None) -> KakeyaError:
        return ServiceError(self.context.host.name, message, hint=hint)


__all__ = ["ServiceControl"]
