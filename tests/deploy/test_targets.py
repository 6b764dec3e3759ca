"""Hosts, groups and all, each host once and in the inventory's order."""

from __future__ import annotations

import pytest

from deploy.states import inventory
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.errors import InputError


@pytest.mark.parametrize(
    ("targets", "hosts"),
    [
        (["allens"], ("allens",)),
        (["workers"], ("allens", "boris")),
        (["boris", "workers", "head"], ("head", "allens", "boris")),
        (["all"], ("head", "allens", "boris", "vault")),
        ([], ()),
    ],
)
def test_targets_are_resolved(targets: list[str], hosts: tuple[str, ...]) -> None:
    assert select_hosts(inventory(), targets) == hosts


def test_an_unknown_target_is_refused_with_what_was_perhaps_meant() -> None:
    with pytest.raises(InputError, match="did you mean 'allens'"):
        select_hosts(inventory(), ["alens"])
