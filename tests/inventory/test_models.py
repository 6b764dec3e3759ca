from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kakeya_ops.errors import InputError
from kakeya_ops.inventory import Inventory
from kakeya_ops.inventory.models import _merge

Load = Callable[[str], Inventory]


def test_what_is_left_out_has_the_documented_defaults(load: Load, base: str) -> None:
    inventory = load(base)
    assert (inventory.fleet.tenant, inventory.fleet.key_file) == ("private-fleet", "~/.kakeya/fleet.key")
    cache, prefill, serving = inventory.cache, inventory.prefill, inventory.model_serving
    assert (cache.sink, cache.window, cache.block_tokens, cache.pool_gb, cache.replicas) == (4, None, 64, 4.0, 1)
    assert (prefill.min_tokens, prefill.policy, prefill.parity, prefill.require_remote) == (
        128,
        "measured",
        "exact",
        False,
    )
    assert prefill.audit == 0.05
    assert (serving.context, serving.concurrency) == (8192, 4)
    assert inventory.host("worker").queue == 16


def test_a_model_is_called_like_its_folder_unless_it_says_otherwise(load: Load, base: str) -> None:
    assert load(base).model.id == "tiny"
    assert load(base.replace("tiny}", "tiny/}")).model.id == "tiny"
    assert load(base.replace("tiny}", "tiny, id: other}")).model.id == "other"


def test_a_host_wins_over_defaults_key_by_key_and_lists_are_replaced(load: Load, base: str) -> None:
    inventory = load(
        base.replace(
            "role: worker", "role: worker\n    ssh: {host: w.local}\n    environment: {B: own}\n    python: null"
        )
        + "defaults: {ssh: {user: me, port: 22}, environment: {A: x, B: y}, python: /py, queue: 3, install_root: ~/k}"
    )
    worker = inventory.host("worker")
    assert (worker.ssh.user, worker.ssh.port, worker.ssh.host, worker.ssh_host) == ("me", 22, "w.local", "w.local")
    assert worker.environment == {"A": "x", "B": "own"}
    assert (worker.python, worker.queue, worker.install_root) == (None, 3, "~/k")
    head = inventory.host("head")
    assert (head.python, head.ssh.user, head.ssh.host, head.ssh_host) == ("/py", "me", None, "head")
    assert [endpoint.port for endpoint in head.endpoints] == [5001]


def test_a_pool_is_the_hosts_own_or_that_of_the_cache_section(load: Load, base: str) -> None:
    text = base.replace("role: worker", "role: worker\n    pool_gb: 0.5\n    memory_gb: 16") + "cache: {pool_gb: 2}"
    inventory = load(text)
    assert inventory.cache.pool_bytes == 2 * 2**30
    assert (inventory.host("worker").pool_bytes, inventory.host("head").pool_bytes) == (2**29, 2**31)
    assert (inventory.host("worker").memory_bytes, inventory.host("head").memory_bytes) == (2**34, None)


def test_a_host_that_is_not_there(load: Load, base: str) -> None:
    with pytest.raises(InputError, match=r"no host 'wroker'; did you mean 'worker'\?") as caught:
        load(base).host("wroker")
    assert caught.value.hint == "hosts are: head, worker"


def test_hosts_by_role(load: Load, base: str) -> None:
    inventory = load(base)
    assert [host.name for host in inventory.with_role("worker")] == ["worker"]
    assert inventory.with_role("cache") == ()


def test_nothing_can_be_changed(load: Load, base: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(load(base).fleet, "name", "other")  # noqa: B010  # a type checker refuses it as well


TREES = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
).filter(lambda tree: isinstance(tree, dict))


@given(TREES, TREES)
def test_merging_keeps_the_upper_values_and_what_they_leave(below: dict[str, object], above: dict[str, object]) -> None:
    merged = _merge(below, above)
    assert list(merged) == [*below, *(key for key in above if key not in below)]
    assert _merge(below, {}) == below
    assert _merge({}, above) == above
    assert _merge(merged, above) == merged
    for key, value in above.items():
        assert isinstance(value, dict) or merged[key] == value
