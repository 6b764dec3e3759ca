"""The memory verdict as deploy's gate: every host is assessed from what was observed, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kakeya_ops.deploy.gate import Gate, Verdict
from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.memory.assessment import Assessment, Model, Surroundings, assess, facts_of, read_model
from kakeya_ops.memory.demand import NO_OVERRIDES, Overrides
from kakeya_ops.observe.fanout import Outcome
from kakeya_ops.observe.state import HostState
from kakeya_ops.settings import expand_here


def read_planned_model(inventory: Inventory, names: Iterable[str]) -> Model | None:
    """What is known of the model on this machine; None where none of the hosts called `names` loads one.

    Raises `ModelDirectoryError`.
    """
    if all(inventory.hosts[name].role == "cache" for name in names):
        return None
    return read_model(expand_here(inventory.model.path))


def assess_states(
    inventory: Inventory, states: Mapping[str, Outcome[HostState]], model: Model | None
) -> dict[str, Assessment]:
    """The assessment of each host that could be observed, by its name."""
    return {
        name: assess_state(inventory, inventory.host(name), state, model)
        for name, state in states.items()
        if not isinstance(state, KakeyaError)
    }


def assess_state(
    inventory: Inventory,
    host: ResolvedHost,
    state: HostState,
    model: Model | None,
    overrides: Overrides = NO_OVERRIDES,
) -> Assessment:
    """The assessment of `host` as observed; its own service will have ended before the new one loads the model."""
    pid = state.job.service.pid if state.job else None
    facts = facts_of(host, state.memory) or state.memory
    leaving = frozenset() if pid is None else frozenset({pid})
    return assess(inventory, host, model, Surroundings(facts, leaving), overrides)


def gate_of(assessments: Mapping[str, Assessment]) -> Gate:
    """The gate that says what `assessments` found."""

    def gate(host: ResolvedHost, state: HostState) -> Verdict | None:
        found = assessments.get(host.name)
        if found is None:
            return None
        remedy = "; or ".join(change.sentence for change in found.changes) or None
        return Verdict(found.verdict.answer, found.verdict.reason, remedy)

    return gate


__all__ = ["assess_state", "assess_states", "gate_of", "read_planned_model"]
