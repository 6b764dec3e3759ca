"""The demo from start to end: make a model, start a fleet, ask it something, have it proved, take everything down."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kakeya_ops.demo.fleet import (
    HEAD,
    WORKER,
    DemoFleet,
    FleetPlan,
    temporary_directory,
    write_fleet,
)
from kakeya_ops.demo.interruption import Interruption
from kakeya_ops.demo.smollm2 import prepare_smollm2
from kakeya_ops.errors import EnvironmentFault, PeerError
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.secret import read_fleet_keys
from kakeya_ops.settings import user_cache_folder
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.probe import ProbeOptions, run_probe
from kakeya_ops.verify.report import VerifyReport
from kakeya_ops.verify.workers import find_workers

SMOLLM2 = "smollm2"
_START_SECONDS = 120.0
_ANSWER_TOKENS = 48
_QUESTION = (
    "In 1917 Soichi Kakeya asked how small a region of the plane can be in which a needle of length one can be turned "
    "around completely. A disc of diameter one will do, and a three-cornered hypocycloid needs only half of its area. "
    "Eleven years later Besicovitch answered that no area is too small: the needle can be slid and turned within a set "
    "whose area is as close to nothing as one likes. Say in one sentence what that means."
)


@dataclass(frozen=True)
class DemoOptions:
    """What to run: `model` is a directory, ``smollm2``, or None for a tiny one made on the spot; `port` the API's."""

    model: str | None = None
    port: int | None = None
    keep: bool = False


@dataclass(frozen=True)
class DemoOutcome:
    """What the demo has to show: the answer to its question, that answer's receipt, and the probe's report."""

    plan: FleetPlan
    pids: dict[str, int]
    network: dict[str, Any]
    question: str
    answer: str
    receipt: dict[str, Any]
    report: VerifyReport
    tiny: bool
    kept: bool = False

    @property
    def curl(self) -> str:
        """A line for a shell that asks the fleet something new, and long enough to be worth a worker's while."""
        words = ["curl", "-s", f"{self.plan.url}/v1/chat/completions", "-H", "Content-Type: application/json"]
        body = {"messages": [{"role": "user", "content": "$(date) $(seq -s ' ' 200)"}], "max_tokens": 32}
        # In double quotes, so that the shell replaces what begins with $.
        quoted = json.dumps(body).replace('"', '\\"')
        return f'{shlex.join(words)} -d "{quoted}"'

    @property
    def dashboard(self) -> str:
        """Where a browser shows the running fleet."""
        return f"{self.plan.url}/"

    def to_json(self) -> dict[str, Any]:
        """A plain value for ``--json``."""
        return {
            "url": self.plan.url,
            "inventory": str(self.plan.inventory),
            "model": str(self.plan.model),
            "pids": self.pids,
            "question": self.question,
            "answer": self.answer,
            "receipt": self.receipt,
            "report": self.report.to_json(),
            "curl": self.curl,
            "dashboard": self.dashboard,
        }


class DemoView(Protocol):
    """Where the demo shows what it does."""

    def step(self, text: str) -> AbstractContextManager[None]:
        """A step that is under way while the context is open, and done when it closes without an error."""

    def progress(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Something under way whose text may change."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def outcome(self, outcome: DemoOutcome) -> None:
        """The result."""


def run_demo(options: DemoOptions, view: DemoView) -> VerifyReport:
    """Run the demo and return what the probe found; with `options.keep`, once Ctrl-C was pressed.

    Whatever happens, no process and no temporary file of it is left. Raises `KakeyaError` when it cannot be carried
    out, and `KeyboardInterrupt` when it is interrupted before the result.
    """
    with Interruption() as interruption, temporary_directory(interruption) as directory:
        model = choose_model(options.model, directory, view)
        plan = write_fleet(directory, model, options.port)
        with DemoFleet(plan, interruption) as fleet:
            _await_fleet(fleet, view)
            try:
                outcome = _ask_and_prove(fleet, view, options)
            except PeerError:
                fleet.raise_if_ended()
                raise
            view.outcome(outcome)
            if options.keep:
                _keep(fleet, view)
        return outcome.report


def choose_model(wanted: str | None, directory: Path, view: DemoView) -> Path:
    """The model's directory: a tiny one made in `directory`, the converted SmolLM2, or the directory `wanted`.

    Raises `InputError` if it is not there, and `EnvironmentFault` if it cannot be made.
    """
    if wanted is None:
        with view.step("making a tiny model with random weights"):
            return _make_tiny(directory / "tiny-llama")
    if wanted == SMOLLM2:
        with view.step("preparing SmolLM2-135M-Instruct"):
            return prepare_smollm2(user_cache_folder() / "models")
    return ModelDirectory.open(Path(wanted)).path


def _make_tiny(out: Path) -> Path:
    from kakeya_ops.demo.tiny_model import make_tiny_llama

    try:
        return make_tiny_llama(out)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write a model to {out}: {error.strerror or error}",
            hint="point TMPDIR at a writable directory with room",
        ) from error


def _await_fleet(fleet: DemoFleet, view: DemoView) -> None:
    """Wait until both processes answer and the head knows the worker as live."""
    plan = fleet.plan
    with HeadClient(plan.worker_url) as worker, HeadClient(plan.url) as head:
        with view.step(f"starting the worker, pid {fleet.children[WORKER].pid}"):
            fleet.wait_for("the worker's start", worker.healthy, _START_SECONDS)
        with view.step(f"starting the head, pid {fleet.children[HEAD].pid}, at {plan.url}"):
            fleet.wait_for("the head's start", head.healthy, _START_SECONDS)
        with view.step("waiting until the head knows the worker"):
            fleet.wait_for("their meeting", lambda: bool(find_workers(head.network()["nodes"])[1]), _START_SECONDS)


def _ask_and_prove(fleet: DemoFleet, view: DemoView, options: DemoOptions) -> DemoOutcome:
    plan = fleet.plan
    view.note(
        "  note  policy prefer_remote: both processes share this machine, so the worker makes one cold prompt no "
        "faster; by measured cost the head would rightly compute it itself"
    )
    with HeadClient(plan.url) as head:
        with view.step("asking a question"):
            request_id, answer = head.chat(plan.model.name, _QUESTION, _ANSWER_TOKENS)
        receipt = head.receipt(request_id)
        with view.step("proving it"), view.progress("proving it") as tell:
            report = run_probe(ProbeOptions(plan.url, read_fleet_keys(plan.key_file)), tell)
        network = head.network()
    pids = {name: child.pid for name, child in fleet.children.items()}
    tiny = options.model is None
    return DemoOutcome(plan, pids, network, _QUESTION, answer, receipt, report, tiny, options.keep)


def _keep(fleet: DemoFleet, view: DemoView) -> None:
    view.note("the fleet keeps running; Ctrl-C stops it")
    try:
        fleet.wait_until_head_ends(view.note)
    except KeyboardInterrupt:
        # The announced way to end; the result has been shown.
        view.note("stopping the fleet")


__all__ = ["SMOLLM2", "DemoOptions", "DemoOutcome", "DemoView", "choose_model", "run_demo"]
