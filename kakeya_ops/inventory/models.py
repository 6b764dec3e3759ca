"""The inventory as a whole, and one host of it with everything resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from kakeya_ops.errors import InputError
from kakeya_ops.inventory.cross import Parts, find_contradictions
from kakeya_ops.inventory.fields import GIGABYTE_BYTES, Label
from kakeya_ops.inventory.findings import Finding
from kakeya_ops.inventory.sections import (
    CacheSection,
    Defaults,
    Fleet,
    Host,
    MemorySection,
    Model,
    ModelServing,
    Prefill,
    Role,
    Section,
)
from kakeya_ops.spelling import did_you_mean


class ResolvedHost(Host):
    """A host with the defaults merged in: nothing is looked up elsewhere any more."""

    name: Label
    """The host's name in the inventory, and the id of its node."""
    pool_gb: float
    """Memory for this node's pool of blocks, in GiB."""

    @property
    def ssh_host(self) -> str:
        """What ssh is asked to connect to."""
        return self.ssh.host or self.name

    @property
    def memory_bytes(self) -> int | None:
        """`memory_gb` in bytes, or None when the host is to be asked."""
        return None if self.memory_gb is None else int(self.memory_gb * GIGABYTE_BYTES)

    @property
    def pool_bytes(self) -> int:
        """`pool_gb` in bytes."""
        return int(self.pool_gb * GIGABYTE_BYTES)


class Inventory(Section):
    """Everything that a person tells Kakeya about a fleet."""

    fleet: Fleet
    """The hosts as one thing: what they are called and which key they share."""
    model: Model
    """The one model that the fleet serves."""
    cache: CacheSection = CacheSection()
    """What KV is kept, and in what pieces."""
    prefill: Prefill = Prefill()
    """When the head lets a worker compute a prompt's KV."""
    model_serving: ModelServing = ModelServing()
    """What the memory verdict reckons with."""
    memory: MemorySection = MemorySection()
    """Where the memory verdict draws its lines."""
    defaults: Defaults = Defaults()
    """What holds for every host that does not say otherwise."""
    hosts: dict[Label, Host] = Field(min_length=1)
    """The machines, by name."""
    groups: dict[Label, tuple[str, ...]] = Field(default={})
    """Names for several hosts at once, to be used wherever a host's name is."""

    def contradictions(self) -> Iterator[Finding]:
        """Faults between the sections."""
        return find_contradictions(Parts(self.fleet, self.hosts, frozenset(self.hosts), self.groups))

    def host(self, name: str) -> ResolvedHost:
        """The host called `name` with the defaults merged in. Raises `InputError` if there is none."""
        if name not in self.hosts:
            raise InputError(
                f"the inventory has no host {name!r}{did_you_mean(name, self.hosts)}",
                hint=f"hosts are: {', '.join(self.hosts)}",
            )
        given = self.hosts[name].model_dump(exclude_unset=True)
        merged = _merge(self.defaults.model_dump(exclude_unset=True), given)
        pool_gb = given.get("pool_gb") or self.cache.pool_gb
        return ResolvedHost.model_validate(merged | {"name": name, "pool_gb": pool_gb})

    @property
    def needs_tls(self) -> bool:
        """Whether any endpoint of the fleet may not be spoken to in clear, so that every node needs a certificate."""
        return any(not endpoint.in_clear for host in self.hosts.values() for endpoint in host.endpoints)

    def with_role(self, role: Role) -> tuple[ResolvedHost, ...]:
        """The hosts with `role`, in the inventory's order."""
        return tuple(self.host(name) for name, host in self.hosts.items() if host.role == role)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`: mappings merge at any depth, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


__all__ = ["Inventory", "ResolvedHost"]
