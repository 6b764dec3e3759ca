"""Runs a plan: workers and caches before heads, one host before the others, and back again where a step fails."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from kakeya_ops.deploy.audit import Entry, append_entry
from kakeya_ops.deploy.context import HostContext, Step, Timing
from kakeya_ops.deploy.errors import DeployError, Interrupted
from kakeya_ops.deploy.guard import PREFIX
from kakeya_ops.deploy.lock import holding
from kakeya_ops.deploy.plan import HostPlan, Plan
from kakeya_ops.deploy.service_log import tail_log
from kakeya_ops.errors import KakeyaError
from kakeya_ops.remote.runner import Runner
from kakeya_ops.secret import Secret

Verdict = Literal["done", "nothing to do", "restored", "left as it is", "not restored", "not begun"]
Connect = Callable[[str], Runner]
"""The connection to a host, by its name."""


@dataclass(frozen=True)
class HostResult:
    """What became of one host.

    `verdict` says what runs now: the new generation (done), the old one (restored, not begun), or nobody knows
    (not restored). `log` is the tail of the service's log where it failed.
    """

    host: str
    before: str | None
    after: str | None
    seconds: float
    verdict: Verdict
    error: KakeyaError | None = None
    failed_step: str | None = None
    failures: tuple[KakeyaError, ...] = ()
    log: str = ""

    @property
    def good(self) -> bool:
        """Whether the host is what it shall be."""
        return self.verdict in ("done", "nothing to do")


@dataclass(frozen=True)
class ApplySettings:
    """How a plan is run. `key` is what must never be shown of the service's log."""

    action: str = "deploy"
    parallel: int = 4
    rollback: bool = True
    reason: str | None = None
    timing: Timing = field(default_factory=Timing)
    key: Secret | None = None


class Progress(Protocol):
    """Who is told what is going on, from several threads at once."""

    def step(self, host: str, title: str) -> AbstractContextManager[None]:
        """A step of a host is under way within it."""

    def note(self, host: str, text: str) -> None:
        """Something happened on a host; an empty name means all of it."""

    def transfer(self, host: str, what: str, total_bytes: int) -> AbstractContextManager[Callable[[int], None]]:
        """See `kakeya_ops.deploy.context.Transfer`."""


@dataclass
class Application:
    """One run of a plan. Once `cancelled` is set, hosts that were begun are put back, and no more are begun."""

    connect: Connect
    progress: Progress
    settings: ApplySettings = field(default_factory=ApplySettings)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def run(self, plan: Plan) -> list[HostResult]:
        """The outcome of every host of the plan, in its order; never raises a `KakeyaError`.

        The first host of the plan goes alone. If it fails, no other is begun.
        """
        results = [HostResult(name, None, None, 0.0, "not begun", error) for name, error in plan.failures.items()]
        results += [_untouched(host) for host in plan.hosts if not host.steps]
        stopped: str | None = None
        for number, phase in enumerate(plan.phases):
            canary, rest = (phase[:1], phase[1:]) if number == 0 else ((), phase)
            for batch in (canary, rest):
                done = [self._not_begun(host, stopped) for host in batch] if stopped else self._run_batch(batch)
                results += done
                if batch is canary and not all(result.good for result in done):
                    stopped = stopped or f"{batch[0].host.name} failed, and it went first"
                if self.cancelled.is_set():
                    stopped = stopped or "interrupted"
        return results

    def _run_batch(self, hosts: Sequence[HostPlan]) -> list[HostResult]:
        if not hosts:
            return []
        with ThreadPoolExecutor(max(1, self.settings.parallel), thread_name_prefix="apply") as threads:
            futures = [threads.submit(self._run_host, host) for host in hosts]
            self._wait(futures)
        return [future.result() for future in futures]

    def _wait(self, futures: Iterable[Future[HostResult]]) -> None:
        """Wait for all, also through Ctrl-C: a host is never left in the middle."""
        left = set(futures)
        while left:
            try:
                _, left = wait(left, timeout=0.5)
            except KeyboardInterrupt:
                if not self.cancelled.is_set():
                    self.progress.note("", "interrupted: what was begun is put back, please wait")
                self.cancelled.set()

    def _run_host(self, plan: HostPlan) -> HostResult:
        began = time.monotonic()
        if self.cancelled.is_set():
            return self._not_begun(plan, "interrupted")
        work = _HostWork(self, plan)
        try:
            runner = self.connect(plan.host.name)
            with holding(runner, plan.places, plan.host.name, self._why):
                _refuse_changed(runner, plan)
                return work.run(runner, began)
        except KakeyaError as error:
            return HostResult(
                plan.host.name, plan.state.generation, plan.state.generation, _since(began), "not begun", error
            )

    @property
    def _why(self) -> str:
        return f"kakeya {self.settings.action}" + (f": {self.settings.reason}" if self.settings.reason else "")

    def _not_begun(self, plan: HostPlan, reason: str) -> HostResult:
        before = plan.state.generation
        return HostResult(plan.host.name, before, before, 0.0, "not begun", KakeyaError(f"not begun: {reason}"))


class _HostWork:
    """The steps of one host, with its lock held."""

    def __init__(self, application: Application, plan: HostPlan) -> None:
        self._app = application
        self._plan = plan
        self._done: list[str] = []

    def run(self, runner: Runner, began: float) -> HostResult:
        plan, settings = self._plan, self._app.settings
        name = plan.host.name
        context = HostContext(
            host=plan.host,
            runner=runner,
            places=plan.places,
            before=plan.state,
            tell=partial(self._app.progress.note, name),
            transfer=partial(self._app.progress.transfer, name),
            cancelled=self._app.cancelled,
            timing=settings.timing,
        )
        step: Step | None = None
        try:
            for step in plan.steps:
                context.check()
                with self._app.progress.step(name, step.title):
                    step.apply(context)
                self._done.append(step.title)
            result = HostResult(name, plan.state.generation, plan.after, _since(began), "done")
        except KakeyaError as error:
            result = self._fail(context, error, step, began)
        except BaseException:
            context.put_back()
            raise
        self._note(context, result)
        return result

    def _fail(self, context: HostContext, error: KakeyaError, step: Step | None, began: float) -> HostResult:
        plan, settings = self._plan, self._app.settings
        log = "" if isinstance(error, Interrupted) else tail_log(context.runner, context.places, settings.key)
        title = step.title if step else None
        before = plan.state.generation
        if not settings.rollback and not isinstance(error, Interrupted):
            with contextlib.suppress(KakeyaError):  # it would put back what is to be looked at
                context.stand_down()
            return HostResult(plan.host.name, before, None, _since(began), "left as it is", error, title, (), log)
        failures = tuple(context.put_back())
        verdict: Verdict = "not restored" if failures else "restored"
        after = None if failures else before
        return HostResult(plan.host.name, before, after, _since(began), verdict, error, title, failures, log)

    def _note(self, context: HostContext, result: HostResult) -> None:
        settings = self._app.settings
        reason = result.error.message if result.error else settings.reason
        entry = Entry(
            time=time.time(),
            action=settings.action,
            outcome=result.verdict,
            before=result.before,
            after=result.after,
            seconds=round(result.seconds, 3),
            steps=tuple(self._done),
            reason=reason,
            gate=self._plan.gate.record(settings.reason) if self._plan.gate else None,
        )
        try:
            append_entry(context.runner, context.places, entry)
        except KakeyaError as error:
            self._app.progress.note(result.host, f"the audit log could not be written: {error.message}")


def _refuse_changed(runner: Runner, plan: HostPlan) -> None:
    """Raise `DeployError` if somebody changed the host between its observation and the taking of its lock.

    Guards that others left behind end here: they held the lock, and it was taken from them.
    """
    places = plan.places
    script = f'rm -rf -- "$2"/{PREFIX}*; readlink "$1"; if [ -e "$3" ]; then printf "\\0" && cat "$3"; fi'
    found = runner.run(["/bin/sh", "-c", script, "sh", places.current, places.root, places.plist], check=True).stdout
    link, there, plist = found.partition(b"\0")
    current = os.fsdecode(link).strip().rstrip("/").rpartition("/")[2] or None
    if current != plan.state.generation or (plist if there else None) != plan.state.plist:
        raise DeployError(plan.host.name, "somebody changed it since the plan was made", hint="run the command again")


def _untouched(plan: HostPlan) -> HostResult:
    return HostResult(plan.host.name, plan.state.generation, plan.after, 0.0, "nothing to do")


def _since(began: float) -> float:
    return time.monotonic() - began


__all__ = ["Application", "ApplySettings", "Connect", "HostResult", "Progress", "Verdict"]
