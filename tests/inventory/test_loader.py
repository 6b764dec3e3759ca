from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import ExitCode, InputError, InventoryError
from kakeya_ops.inventory import Inventory, find_inventory, load_inventory, parse_inventory
from kakeya_ops.inventory.document import MAX_DOCUMENT_BYTES

Faults = Callable[[str], list[tuple[str, int | None, str]]]
EXAMPLE = Path(__file__).parents[2] / "inventory.yaml"


def test_every_fault_is_told_at_once_with_path_and_line(faults: Faults) -> None:
    found = faults(
        """\
        fleet: {name: Pair, tenent: x}
        model: {}
        cache:
          block_tokens: 48
          sink: 4096
          window: 2048
        prefill: {policy: fast, policy: measured}
        hosts:
          head:
            role: head
            endpoints:
              - {network: lan, address: 10.0.0.1, port: 0}
          cache:
            role: cache
          worker:
            role: worker
            api: {bind: 0.0.0.0}
            endpoints: [{network: lan, address: 10.0.0.2, port: 5}]
          other:
            role: worker
            endpoints: [{network: lan, address: 10.0.0.2, port: 5}]
        groups: {workers: [wroker]}
        """
    )
    assert found == [
        ("fleet.name", 1, "must be 1 to 63 lower-case letters, digits and hyphens, and begin with a letter or digit"),
        ("fleet.tenent", 1, "is not a known key; did you mean 'tenant'?"),
        ("model.path", 2, "is missing"),
        ("cache.block_tokens", 4, "must be a power of two from 16 to 512, not 48"),
        ("prefill.policy", 7, "is given twice, first in line 7"),
        ("hosts.head.endpoints[0].port", 12, "must be at least 1, not 0"),
        ("hosts.cache.endpoints", 13, "a cache must have at least one, or nobody can reach it"),
        ("hosts.worker.api.keys_file", 17, "must name a file: the API is bound to 0.0.0.0, where others can reach it"),
        ("groups.workers[0]", 22, "no host is called 'wroker'; did you mean 'worker'?"),
    ]


def test_faults_between_sections_are_told_beside_faults_within_them(faults: Faults, base: str) -> None:
    text = base.replace("port: 5002", "port: 5001").replace("{name: pair}", "{name: pair, key: x}")
    assert [path for path, _, _ in faults(text + "groups: {workers: [nobody], head: []}")] == [
        "fleet.key",
        "hosts.worker.endpoints[0]",
        "groups.workers[0]",
        "groups.head",
    ]


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("{name: pair}", "pair", "fleet", "must be a mapping (key: value), not 'pair'"),
        ("{name: pair}", "{name: 5}", "fleet.name", "must be text, not 5"),
        ("{name: pair}", "{name: off}", "fleet.name", "must be text, not false"),
        ("{name: pair}", "{name: pair, key_file: fleet.key}", "fleet.key_file", "must begin with / or ~/, not"),
        ("{port: 8080}", "{port: '8080'}", "hosts.head.api.port", "must be a whole number, not '8080'"),
        ("{port: 8080}", "{port: 8080.5}", "hosts.head.api.port", "must be a whole number, not 8080.5"),
        ("{port: 8080}", "{port: 99999999999999999999999}", "hosts.head.api.port", "must be at most 65535"),
        ("{port: 8080}", "null", "hosts.head.api", "is missing: a head serves the API"),
        ("{port: 8080}", "{port: 5001}", "hosts.head.endpoints[0].port", "5001 is already the API's port at 127.0.0.1"),
        ("{port: 8080}", "[8080]", "hosts.head.api", "must be a mapping (key: value), not a list"),
        ("role: worker", "role: slave", "hosts.worker.role", "must be 'head', 'worker' or 'cache', not 'slave'"),
        ("  worker:", "  Worker_1:", "hosts.Worker_1", "lower-case letters"),
        ("  worker:", "  all:", "hosts.all", "'all' already means every host"),
        (
            "[{network: loopback, address: 127.0.0.1, port: 5002}]",
            "[" + ", ".join(f"{{network: lan, address: 10.0.0.2, port: {port}}}" for port in range(1, 18)) + "]",
            "hosts.worker.endpoints",
            "must have at most 16 items, not 17",
        ),
        ("role: head", "role: worker", "hosts.head.api", "only a head serves the API, and this host is a worker"),
        ("role: worker", "role: worker\n    memory_gb: .nan", "hosts.worker.memory_gb", "must be a finite number"),
        ("role: worker", "role: worker\n    queue: 0", "hosts.worker.queue", "must be at least 1, not 0"),
        ("role: worker", "role: worker\n    prevent_sleep: 1", "hosts.worker.prevent_sleep", "must be true or false"),
        ("role: worker", "role: worker\n    environment: {A-B: x}", "hosts.worker.environment.A-B", "must be the name"),
        ("role: worker", "role: worker\n    environment: {A: 1}", "hosts.worker.environment.A", "must be text, not 1"),
        ("hosts:", "cache: {window: 32}\nhosts:", "cache.window", "must be null or at least block_tokens (64), not 32"),
        ("hosts:", "cache: {window: 64, sink: 65}\nhosts:", "cache.sink", "must not exceed the window (64), not 65"),
        ("hosts:", "cache: {sink: -1}\nhosts:", "cache.sink", "must be at least 0, not -1"),
        ("hosts:", "cache: {pool_gb: 0}\nhosts:", "cache.pool_gb", "must be greater than 0, not 0"),
        ("hosts:", "cach: {}\nhosts:", "cach", "is not a known key; did you mean 'cache'?"),
        ("hosts:", "zzz: {}\nhosts:", "zzz", "is not a known key; known are fleet, model, cache"),
        (
            "hosts:",
            "defaults: {ssh: {host: x}}\nhosts:",
            "defaults.ssh.host",
            "is not a known key; known are user, port",
        ),
        ("hosts:", "<<: {}\nhosts:", "<<", "is not a known key"),
        (
            "hosts:",
            "prefill: {policy: local_only, require_remote: true}\nhosts:",
            "prefill.require_remote",
            "cannot be true under policy: local_only",
        ),
        ("~/models/tiny", "models/tiny", "model.path", "must begin with / or ~/"),
    ],
)
def test_a_fault_is_one_clear_sentence(faults: Faults, base: str, old: str, new: str, path: str, message: str) -> None:
    assert old in base
    found = [fault for fault in faults(base.replace(old, new)) if fault[0] == path]
    assert len(found) == 1
    assert message in found[0][2]


def test_what_is_no_inventory_at_all(faults: Faults) -> None:
    assert faults("") == [("", None, "is empty")]
    assert faults("[]") == [("", 1, "must be a mapping (key: value), not a list")]
    assert faults("a: [") == [("", 1, "while parsing a flow node, expected the node content, but found '<stream end>'")]


def test_files_that_are_not_text_or_too_large() -> None:
    for data, line, message in [
        (b"a: 1\nb: \xff", 2, "is not UTF-8 text"),
        (b"#" * (MAX_DOCUMENT_BYTES + 1), None, "is larger than 256 KiB"),
    ]:
        with pytest.raises(InventoryError) as caught:
            parse_inventory(data, "x")
        assert [(fault.line, fault.message) for fault in caught.value.faults] == [(line, message)]


def test_a_byte_order_mark_does_no_harm(base: str) -> None:
    assert parse_inventory(b"\xef\xbb\xbf" + base.encode(), "x").fleet.name == "pair"


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="is not a regular file"):
            load_inventory(path)


def test_what_this_process_was_given_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, EXAMPLE.read_bytes())
    os.close(writer)
    try:
        assert load_inventory(Path(f"/dev/fd/{reader}")).fleet == load_inventory(EXAMPLE).fleet
    finally:
        os.close(reader)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_inventory(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_inventory(tmp_path)


def test_an_error_names_the_file_and_ends_in_the_code_for_input(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_text("[]")
    with pytest.raises(InventoryError, match=r"i\.yaml has 1 fault$") as caught:
        load_inventory(path)
    assert (caught.value.file, caught.value.exit_code) == (str(path), ExitCode.INPUT)


def test_where_the_inventory_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAKEYA_INVENTORY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no inventory found"):
        find_inventory()
    own = tmp_path / "config" / "kakeya" / "inventory.yaml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert find_inventory() == own
    Path("inventory.yaml").touch()
    assert find_inventory() == Path("inventory.yaml")
    monkeypatch.setenv("KAKEYA_INVENTORY", "/named/in/environment.yaml")
    assert find_inventory() == Path("/named/in/environment.yaml")
    assert find_inventory(Path("/given.yaml")) == Path("/given.yaml")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_an_inventory_or_an_input_error(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_inventory(data, "x")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "head", "all", "127.0.0.1", "0x", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "api", "port"]), inner),
    max_leaves=5,
)


@given(st.data())
def test_any_odd_value_anywhere_is_taken_or_told(data: st.DataObject) -> None:
    tree = yaml.safe_load(EXAMPLE.read_text())
    *way, last = data.draw(st.sampled_from(places(tree)[1:]))
    inner = tree
    for step in way:
        inner = inner[step]
    inner[last] = data.draw(ODD)
    try:
        inventory = parse_inventory(yaml.safe_dump(tree, allow_unicode=True).encode(), "x")
        names = [inventory.host(name).name for name in inventory.hosts]
    except InventoryError as error:
        names = [fault.message for fault in error.faults]
    assert names
    assert all(names)


def test_an_inventory_written_as_yaml_is_read_back_equal() -> None:
    inventory = load_inventory(EXAMPLE)
    for given_only in (True, False):
        dumped = inventory.model_dump(mode="json", exclude_unset=given_only)
        assert parse_inventory(yaml.safe_dump(dumped).encode(), "x") == inventory


def test_the_example_says_what_the_founding_pair_is() -> None:
    inventory = load_inventory(EXAMPLE)
    assert isinstance(inventory, Inventory)
    assert list(inventory.hosts) == ["head", "allens"]
    assert (inventory.cache.sink, inventory.cache.window, inventory.cache.block_tokens) == (4, 2048, 64)
    assert inventory.host("allens").endpoints[0].in_clear
    assert not inventory.host("allens").endpoints[1].in_clear


@pytest.mark.parametrize("section", ["cache", "model_serving"])
def test_quantized_kv_cannot_be_asked_for(section: str) -> None:
    # It fails with windows, latent attention and some widths, and only after thousands of tokens: so there is no key.
    text = EXAMPLE.read_text().replace(f"\n{section}:", f"\n{section}:\n  kv_bits: 8", 1)
    with pytest.raises(InventoryError) as caught:
        parse_inventory(text.encode(), "inventory.yaml")
    assert [fault.path for fault in caught.value.faults] == [f"{section}.kv_bits"]
