"""Reads hosts in the background from the moment that they are known.

Imports only what that takes: the rest of a deploy is imported while the hosts answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_ops.cli.context import AppContext
from kakeya_ops.cli.importing import importing
from kakeya_ops.deploy.hosts import Hosts, read_key
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.inventory import Inventory, find_inventory, load_inventory
from kakeya_ops.observe import HostState, Outcome
from kakeya_ops.observe.fanout import abandoned_when_interrupted


@dataclass(frozen=True)
class Reading:
    """The hosts called `names`, which are being read: `states` are what they are like."""

    hosts: Hosts
    names: tuple[str, ...]
    states: Future[dict[str, Outcome[HostState]]]


def load(context: AppContext) -> Inventory:
    """The inventory that the person means."""
    return load_inventory(find_inventory(context.inventory_path))


@contextmanager
def open_hosts(context: AppContext, inventory: Inventory) -> Iterator[Hosts]:
    """Connections to the inventory's hosts."""
    with importing():
        from kakeya_ops.remote.lean_import import import_paramiko

        import_paramiko()
        from kakeya_ops.remote.connect import connect

    with Hosts(inventory, connect, read_key(inventory)) as hosts:
        yield hosts


@contextmanager
def reading(context: AppContext, targets: Sequence[str]) -> Iterator[Reading]:
    """The hosts that `targets` name, read while what is within it goes on."""
    inventory = load(context)
    names = select_hosts(inventory, targets)
    with open_hosts(context, inventory) as hosts, abandoned_when_interrupted(1) as thread:
        yield Reading(hosts, names, thread.submit(hosts.observe, names))


__all__ = ["Reading", "load", "open_hosts", "reading"]
