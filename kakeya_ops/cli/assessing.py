"""What ``kakeya memory`` does, apart from its options.

A module of its own because it imports nearly everything, which ``kakeya --help`` need not wait for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import typer
from rich.console import RenderableType

from kakeya_ops.cli.context import AppContext
from kakeya_ops.cli.reading import load
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.material import read_key
from kakeya_ops.deploy.memory_gate import assess_state
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.errors import ExitCode, InputError, KakeyaError, ModelDirectoryError
from kakeya_ops.inventory import Inventory
from kakeya_ops.inventory.fields import ALL
from kakeya_ops.memory.assessment import Assessment, Model, Surroundings, assess, read_model
from kakeya_ops.memory.demand import NO_OVERRIDES, Overrides
from kakeya_ops.memory.facts import pinned
from kakeya_ops.memory.footprint import Role
from kakeya_ops.memory.header_copy import copy_headers
from kakeya_ops.memory.observed import Comparison, Observation, compare
from kakeya_ops.memory.report import describe_assessment
from kakeya_ops.observe import HostState, Outcome
from kakeya_ops.secret import Secret
from kakeya_ops.settings import expand_here
from kakeya_ops.views.memory_tables import assessment_view, failure_line, headline, matrix_table
from kakeya_ops.wire.cards import Card

ROLES: tuple[Role, ...] = ("head", "worker", "cache")


@dataclass(frozen=True)
class MemoryOptions:
    """What is asked: no `hosts` are all of them, in each role unless one is named."""

    hosts: tuple[str, ...] = ()
    model: Path | None = None
    overrides: Overrides = NO_OVERRIDES

    @property
    def matrix(self) -> bool:
        """Whether hosts are compared, instead of each being told in full."""
        return not self.hosts and self.overrides.role is None

    def roles(self, own: Role) -> tuple[Role, ...]:
        """The roles in which a host is judged whose own role is `own`."""
        return ROLES if self.matrix else (self.overrides.role or own,)


@dataclass
class Findings:
    """Assessments by host and role, what is observed of running nodes, and hosts of which nothing is known."""

    assessments: dict[str, dict[str, Assessment]] = field(default_factory=dict)
    comparisons: dict[str, tuple[Comparison, ...]] = field(default_factory=dict)
    failures: dict[str, KakeyaError] = field(default_factory=dict)


def run_memory(context: AppContext, options: MemoryOptions) -> None:
    """Read the hosts, judge them, show it. Ends the command with its exit code."""
    from kakeya_ops.remote.connect import connect  # paramiko is slow to import

    inventory = load(context)
    names = select_hosts(inventory, options.hosts or (ALL,))
    key, reading = _key_if_any(context, inventory), f"reading {', '.join(names)}"
    with Hosts(inventory, connect, key) as hosts, context.printer.progress(reading):
        states = hosts.observe(names)
        needed = any(role != "cache" for name in names for role in options.roles(inventory.hosts[name].role))
        model = find_model(inventory, hosts, states, options) if needed else None
    findings = judge_hosts(context, inventory, states, model, options)
    own = {name: options.overrides.role or inventory.hosts[name].role for name in names}
    context.printer.show(_document(findings), *_view(findings, own, options))
    code = exit_code(findings, own)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def find_model(
    inventory: Inventory, hosts: Hosts, states: Mapping[str, Outcome[HostState]], options: MemoryOptions
) -> Model:
    """The model on this machine, or else on the first host that has it.

    Raises `InputError` where it is nowhere, and `ModelDirectoryError` where it is not whole.
    """
    path = options.model or expand_here(inventory.model.path)
    if options.model is not None or path.is_dir():
        return read_model(path)
    for name, state in states.items():
        if isinstance(state, KakeyaError):
            continue
        with tempfile.TemporaryDirectory(prefix="kakeya-headers-") as folder:
            if copy_headers(hosts.runner(name), inventory.model.path, Path(folder)):
                return _read_copy(name, inventory.model.path, Path(folder))
    raise InputError(
        f"the model {inventory.model.path} is neither on this machine nor on a host that can be reached",
        hint="download it here, or name a directory that is here with --model DIR",
    )


def judge_hosts(
    context: AppContext,
    inventory: Inventory,
    states: Mapping[str, Outcome[HostState]],
    model: Model | None,
    options: MemoryOptions,
) -> Findings:
    """Every host in every role that is asked about."""
    findings = Findings()
    for name, state in states.items():
        host = inventory.host(name)
        if isinstance(state, KakeyaError):
            if host.memory_gb is None:
                findings.failures[name] = state
                continue
            context.printer.warn(f"{state.message}; memory_gb of the inventory is taken instead")
        answers = findings.assessments[name] = {}
        for role in options.roles(host.role):
            overrides = replace(options.overrides, role=role)
            if isinstance(state, KakeyaError):
                surroundings = Surroundings(pinned(host.memory_gb or 0))
                answers[role] = assess(inventory, host, model, surroundings, overrides)
            else:
                answers[role] = assess_state(inventory, host, state, model, overrides)
        if not isinstance(state, KakeyaError):
            findings.comparisons[name] = _compare(state, answers)
    return findings


def exit_code(findings: Findings, own: Mapping[str, str]) -> ExitCode:
    """No, where a host does not fit in the role that it has; failed, where that is not known."""
    answers = [answers[own[name]].verdict.answer for name, answers in findings.assessments.items()]
    if "does not fit" in answers:
        return ExitCode.NO
    return ExitCode.FAILED if findings.failures or "unknown" in answers else ExitCode.OK


def _key_if_any(context: AppContext, inventory: Inventory) -> Secret | None:
    """The fleet key, without which nodes do not tell what they take; all else can be known without it."""
    try:
        return read_key(inventory)
    except InputError as error:
        context.printer.detail(f"running nodes are not asked: {error.message}")
        return None


def _read_copy(host: str, path: str, folder: Path) -> Model:
    try:
        return read_model(folder)
    except ModelDirectoryError as error:
        message = error.message.replace(str(folder), f"{path} on {host}")
        raise ModelDirectoryError(message, hint=error.hint) from error


def _compare(state: HostState, answers: Mapping[str, Assessment]) -> tuple[Comparison, ...]:
    """Forecast and observed for the node that runs there, if it is asked about in its role."""
    card = state.card
    if not isinstance(card, Card) or card.memory is None or card.identity is None:
        return ()
    found = answers.get(card.role)
    if found is None or found.verdict.need is None:
        return ()
    memory = card.memory
    observed = Observation(memory.active_bytes, memory.peak_bytes, memory.footprint_bytes, card.pool.used_bytes)
    return compare(found.verdict.need, observed)


def _document(findings: Findings) -> dict[str, object]:
    return {
        "hosts": {
            name: {role: describe_assessment(one, findings.comparisons.get(name, ())) for role, one in answers.items()}
            for name, answers in findings.assessments.items()
        },
        "failures": {name: error.message for name, error in findings.failures.items()},
    }


def _view(findings: Findings, own: Mapping[str, str], options: MemoryOptions) -> Iterator[RenderableType]:
    if options.matrix:
        rows = {
            name: {role: one.verdict.answer for role, one in answers.items()}
            for name, answers in findings.assessments.items()
        }
        yield matrix_table(rows, own)
    for name, answers in findings.assessments.items():
        if options.matrix:
            yield headline(answers[own[name]])
        else:
            yield from assessment_view(answers[own[name]], findings.comparisons.get(name, ()))
    for name, error in findings.failures.items():
        yield failure_line(name, error)


__all__ = ["ROLES", "Findings", "MemoryOptions", "exit_code", "find_model", "judge_hosts", "run_memory"]
