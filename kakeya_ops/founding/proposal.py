"""Who does what in a new fleet: pure, from what was read and measured, each choice with its reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kakeya_ops.founding.lines import Line
from kakeya_ops.founding.newcomer import Newcomer
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.inventory.sections import Role
from kakeya_ops.launchd.template import find_templates
from kakeya_ops.memory.assessment import Assessment, Model, Surroundings, assess
from kakeya_ops.memory.demand import Overrides

TEMPLATE = "inventory.yaml.j2"
HEAD_PORT, PEER_PORT, API_PORT = 51051, 53051, 8080


@dataclass(frozen=True)
class Ports:
    """TCP ports: of the head's API, of the head for its peers, and of every other node."""

    api: int = API_PORT
    head: int = HEAD_PORT
    others: int = PEER_PORT


@dataclass(frozen=True)
class Choices:
    """What a person has said. `head` names one of the newcomers; `python` is an interpreter that all hosts have."""

    fleet: str
    model_path: str
    head: str
    pool_gb: float = 4.0
    key_file: str = "~/.kakeya/fleet.key"
    python: str | None = None
    ports: Ports = Ports()


@dataclass(frozen=True)
class Member:
    """A newcomer with its role and the reason for it, and the addresses at which the others reach it."""

    newcomer: Newcomer
    role: Role
    reason: str
    endpoints: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Proposal:
    """A fleet; `lines` are what was measured from the head to each member's addresses."""

    choices: Choices
    members: tuple[Member, ...]
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)

    def render(self) -> str:
        """The inventory as a file, which has been read again. Raises `InventoryError` for what cannot be one."""
        environment = Environment(
            loader=FileSystemLoader(find_templates()),
            autoescape=False,  # this is YAML, and every value goes through one of the filters
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["yaml"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.filters["comment"] = lambda value: "".join(c if c.isprintable() else "?" for c in str(value))
        text = environment.get_template(TEMPLATE).render(proposal=self)
        parse_inventory(text.encode(), "the proposed inventory")
        return text

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return {
            "fleet": self.choices.fleet,
            "hosts": [
                {
                    "name": member.newcomer.name,
                    "role": member.role,
                    "reason": member.reason,
                    "memory_gb": member.newcomer.memory_gb,
                    "endpoints": list(member.endpoints),
                    "lines": [vars(line) for line in self.lines.get(member.newcomer.name, ())],
                }
                for member in self.members
            ],
        }


def propose(newcomers: Sequence[Newcomer], choices: Choices, model: Model | None) -> Proposal:
    """The head is the one that was named; every other is a worker if the model fits it, or else a cache peer."""
    drafts = [_draft(newcomer, choices) for newcomer in newcomers]
    inventory = parse_inventory(Proposal(choices, tuple(drafts)).render().encode(), "the proposed inventory")
    return Proposal(choices, tuple(_settle(draft, inventory, model) for draft in drafts))


def _draft(newcomer: Newcomer, choices: Choices) -> Member:
    is_head = newcomer.name == choices.head
    port = choices.ports.head if is_head else choices.ports.others
    endpoints = tuple(_endpoints(newcomer, port))
    return Member(newcomer, "head" if is_head else "worker", "as was asked" if is_head else "", endpoints)


def _endpoints(newcomer: Newcomer, port: int) -> list[Mapping[str, Any]]:
    """The Thunderbolt bridge first, trusted, then the network that everybody is in, which is not."""
    found: list[Mapping[str, Any]] = []
    if bridge := newcomer.address("bridge"):
        found.append({"network": "thunderbolt", "address": bridge, "port": port, "priority": 100, "trusted": True})
    if lan := newcomer.address("en"):
        found.append({"network": "lan", "address": lan, "port": port, "priority": 50})
    return found


def _settle(draft: Member, inventory: Inventory, model: Model | None) -> Member:
    assessment = _assess(draft, inventory, model, draft.role)
    if assessment is None:
        return Member(draft.newcomer, draft.role, draft.reason or "there is no model here to judge by", draft.endpoints)
    if draft.role == "head":
        return Member(draft.newcomer, "head", f"as was asked; the model {assessment.summary}", draft.endpoints)
    if assessment.verdict.answer in ("fits", "tight"):
        return Member(draft.newcomer, "worker", f"the model {assessment.summary}", draft.endpoints)
    return Member(draft.newcomer, "cache", f"as a worker the model {assessment.summary}", draft.endpoints)


def _assess(draft: Member, inventory: Inventory, model: Model | None, role: Role) -> Assessment | None:
    if model is None:
        return None
    host = inventory.host(draft.newcomer.name)
    return assess(inventory, host, model, Surroundings(draft.newcomer.memory), Overrides(role))


__all__ = ["API_PORT", "HEAD_PORT", "PEER_PORT", "TEMPLATE", "Choices", "Member", "Ports", "Proposal", "propose"]
