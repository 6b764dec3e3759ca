"""Copies of models over real SSH, with everything that comes in between."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from deploy.bare_host import Notes, found_files, make_context, make_inventory, make_state
from faults.proxy import Fault, FaultProxy
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError, Interrupted
from kakeya_ops.deploy.model_sync import CheckModel, ForgetReplaced, ModelCopy, SyncModel, read_model
from kakeya_ops.errors import ConnectionLost, InputError, ModelDirectoryError, RemoteError, TransferFailed
from kakeya_ops.inventory import Inventory
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.runner import Runner
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from sshd import HOST, Knobs, SshServer

MEBIBYTE = 2**20
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write_model(folder: Path, seed: int = 0, values: int = MEBIBYTE) -> Path:
    """A model directory with two shards of `values` bytes and what belongs to them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for number, name in enumerate(SHARDS):
        save_file({f"layer{number}": random.integers(0, 256, values, dtype=np.uint8)}, folder / name)
    weights = {"weight_map": {f"layer{number}": name for number, name in enumerate(SHARDS)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(weights))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "seed": seed}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "additional_chat_templates").mkdir(exist_ok=True)
    (folder / "additional_chat_templates/tools.jinja").write_text("{{ tools }}")
    (folder / "README with spaces.md").write_text("hello")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "here/tiny")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd")) as started:
        yield started


def open_ssh(server: SshServer, port: int | None = None, kind: str = "paramiko") -> OpenSshRunner | ParamikoRunner:
    config = server.write_config(Port=port or server.port, HostKeyAlias=f"[{HOST}]:{server.port}")
    ssh = resolve(SshTarget("mac", config_file=config))
    return OpenSshRunner("allens", ssh) if kind == "openssh" else ParamikoRunner("allens", ssh, None)


@pytest.fixture(params=["local", "paramiko"])
def context(
    request: pytest.FixtureRequest, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HostContext]:
    """A host reached in each of the ways, its model folder not there yet."""
    name = f"{request.node.name}"
    monkeypatch.setenv("HOME", str(server.home))
    runner: Any = LocalRunner("allens") if request.param == "local" else open_ssh(server, kind=request.param)
    own = hashlib.sha256(name.encode()).hexdigest()[:8]
    inventory = make_inventory(f"~/models/{own}/it's a model", install_root=f"~/roots of/{own}")
    yield make_context(runner, server.home, inventory)
    runner.close()


def inventory_for(source: Path, **model: Any) -> Inventory:
    document = {
        "fleet": {"name": "pair"},
        "model": {"id": "tiny", "path": str(source), **model},
        "hosts": {"head": {"role": "head", "api": {}}},
    }
    return make_parsed(document)


def make_parsed(document: dict[str, Any]) -> Inventory:
    from kakeya_ops.inventory import parse_inventory

    return parse_inventory(yaml.safe_dump(document).encode(), "test.yaml")


def read(source: Path, **model: Any) -> ModelCopy:
    return read_model(inventory_for(source, **{"sync": True, **model}))


def observed(context: HostContext, **facts: Any) -> HostState:
    """The host as it would be observed now."""
    folder = Path(context.places.model)
    record = Path(context.places.root) / "model.json"
    model = found_files(folder, record.read_bytes() if record.exists() else None) if folder.is_dir() else None
    return make_state(Path(context.places.home), **{"model": model, **facts})


def sync(context: HostContext, copy: ModelCopy) -> None:
    for step in copy.steps(context.host, context.places, observed(context)):
        step.apply(context)


def visible(folder: Path) -> dict[str, bytes]:
    """What a folder holds, without what is hidden."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    relative = {path.relative_to(folder): path for path in paths}
    return {str(name): path.read_bytes() for name, path in relative.items() if not name.parts[0].startswith(".")}


def test_a_copy_is_whole_and_then_nothing_is_to_be_done(context: HostContext, source: Path) -> None:
    copy = read(source)
    assert [type(step) for step in copy.steps(context.host, context.places, observed(context))] == [SyncModel]
    sync(context, copy)
    there = Path(context.places.model)
    assert visible(there) == visible(source)
    assert not (there / ".incoming").exists()
    assert copy.steps(context.host, context.places, observed(context)) == ()


def test_files_that_are_there_are_not_sent(context: HostContext, source: Path) -> None:
    there = write_model(Path(context.places.model))
    (there / SHARDS[1]).unlink()
    before = (there / SHARDS[0]).stat()
    notes = Notes()
    context.transfer = notes.transfer
    sync(context, read(source))
    size = (source / SHARDS[1]).stat().st_size
    assert (notes.totals, notes.arrived[-1]) == ([size], size)
    after = (there / SHARDS[0]).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert visible(there) == visible(source)


def test_a_file_with_the_same_size_and_another_content_is_found_and_replaced(
    context: HostContext, source: Path
) -> None:
    there = write_model(Path(context.places.model))
    shard = there / SHARDS[0]
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    sync(context, read(source))
    assert visible(there) == visible(source)


def test_a_file_changed_after_it_was_proved_is_proved_again(context: HostContext, source: Path) -> None:
    copy = read(source)
    sync(context, copy)
    tokenizer = Path(context.places.model) / "tokenizer.json"
    tokenizer.write_text("[]")
    os.utime(tokenizer, (1, 1))
    (step,) = copy.steps(context.host, context.places, observed(context))
    assert step.title == "sync the model (hash what is there)"
    step.apply(context)
    assert tokenizer.read_text() == "{}"


def test_what_was_proved_in_one_folder_is_not_taken_for_proved_in_another(context: HostContext, source: Path) -> None:
    copy = read(source)
    sync(context, copy)
    record = (Path(context.places.root) / "model.json").read_bytes()
    elsewhere = replace(context.places, model=f"{context.places.model}-2")
    state = make_state(Path(context.places.home), model=found_files(Path(context.places.model), record))
    assert len(copy.steps(context.host, elsewhere, state)) == 1


class TestReplacing:
    def test_what_was_replaced_comes_back_when_a_later_step_fails(self, context: HostContext, source: Path) -> None:
        there = write_model(Path(context.places.model), seed=7)
        old = visible(there)
        sync(context, read(source))
        assert visible(there) == visible(source)
        assert not context.put_back()
        assert visible(there) == old
        assert not (there / ".replaced").exists()
        notes = Notes()
        context.transfer = notes.transfer
        sync(context, read(source))
        assert visible(there) == visible(source)
        assert set(notes.arrived) <= {0}, "it had arrived already"

    def test_a_first_copy_stays_when_a_later_step_fails(self, context: HostContext, source: Path) -> None:
        sync(context, read(source))
        assert not context.put_back()
        assert visible(Path(context.places.model)) == visible(source)

    def test_shards_of_another_model_do_not_stay_among_ours(self, context: HostContext, source: Path) -> None:
        there = write_model(Path(context.places.model))
        (there / "model-00003-of-00003.safetensors").write_bytes(b"old")
        (there / "NOTES").write_text("mine")
        copy = read(source)
        steps = copy.steps(context.host, context.places, observed(context))
        for step in (*steps, *copy.after(steps)):
            step.apply(context)
        assert visible(there) == visible(source) | {"NOTES": b"mine"}
        assert not (there / ".replaced").exists()
        assert copy.steps(context.host, context.places, observed(context)) == ()

    def test_only_a_sync_leaves_something_to_forget(self, context: HostContext, source: Path) -> None:
        assert read(source).after(()) == ()
        assert read(source).after([SyncModel(read(source))]) == (ForgetReplaced(),)


class TestWithoutSync:
    def test_a_copy_that_matches_is_proved_once(self, context: HostContext, source: Path) -> None:
        write_model(Path(context.places.model))
        copy = read(source, sync=False)
        (step,) = copy.steps(context.host, context.places, observed(context))
        assert isinstance(step, CheckModel)
        step.apply(context)
        assert copy.steps(context.host, context.places, observed(context)) == ()

    def test_a_missing_model_is_refused_before_anything_is_done(self, context: HostContext, source: Path) -> None:
        with pytest.raises(DeployError, match=r"README with spaces.md is missing, and 6 more differ") as caught:
            read(source, sync=False).steps(context.host, context.places, observed(context))
        assert "model.sync" in (caught.value.hint or "")

    def test_the_first_file_of_another_size_is_named(self, context: HostContext, source: Path) -> None:
        there = write_model(Path(context.places.model))
        (there / SHARDS[1]).write_bytes(b"short")
        with pytest.raises(DeployError, match=f"{SHARDS[1]} has another size$"):
            read(source, sync=False).steps(context.host, context.places, observed(context))

    def test_another_content_is_found_by_the_hosts_own_hashes(self, context: HostContext, source: Path) -> None:
        there = write_model(Path(context.places.model), seed=1)
        (there / "config.json").write_bytes((source / "config.json").read_bytes())
        (step,) = read(source, sync=False).steps(context.host, context.places, observed(context))
        with pytest.raises(DeployError, match=f"{SHARDS[0]} has another content, and 1 more differ"):
            step.apply(context)
        assert not (Path(context.places.root) / "model.json").exists()

    def test_a_shard_too_many_is_refused(self, context: HostContext, source: Path) -> None:
        there = write_model(Path(context.places.model))
        (there / "model-00003-of-00003.safetensors").write_bytes(b"old")
        with pytest.raises(DeployError, match=r"model-00003-of-00003.safetensors is not in this model"):
            read(source, sync=False).steps(context.host, context.places, observed(context))


class TestInterruptions:
    """Over SSH, by a proxy that breaks connections."""

    @pytest.fixture
    def big(self, tmp_path: Path) -> Path:
        return write_model(tmp_path / "big", values=4 * MEBIBYTE)

    @pytest.fixture
    def home(self, server: SshServer, tmp_path: Path) -> Path:
        home = server.home / tmp_path.name
        home.mkdir()
        return home

    def open(self, runner: Runner, home: Path, notes: Notes | None = None) -> HostContext:
        return make_context(runner, home, make_inventory(f"{home}/model", install_root=f"{home}/root"), notes)

    @pytest.mark.parametrize("kind", ["paramiko", "openssh"])
    def test_a_broken_connection_is_made_again_and_only_the_rest_is_sent(
        self, server: SshServer, home: Path, big: Path, kind: str
    ) -> None:
        with FaultProxy((HOST, server.port)) as proxy:
            proxy.set(up=Fault(cut_after_bytes=6 * MEBIBYTE))
            runner, notes = open_ssh(server, proxy.port, kind), Notes()
            notes.on_arrival = lambda done: proxy.heal() if done > 2 * MEBIBYTE else None
            context = self.open(runner, home, notes)
            sync(context, read(big))
            assert visible(home / "model") == visible(big)
            total = sum(len(data) for data in visible(big).values())
            assert proxy.passed("up") < 1.5 * total
            assert any("the connection broke" in line for line in notes.lines), notes.lines
            runner.close()

    def test_what_arrived_before_the_end_of_a_deploy_is_not_sent_by_the_next(
        self, server: SshServer, home: Path, big: Path
    ) -> None:
        copy, notes = read(big), Notes()
        runner = open_ssh(server)
        context = self.open(runner, home, notes)
        notes.on_arrival = lambda done: context.cancelled.set() if done > 5 * MEBIBYTE else None
        with pytest.raises(Interrupted):
            sync(context, copy)
        assert visible(home / "model") == {}, "nothing that is not whole is in sight"
        assert not (home / "root/model.json").exists()
        again = Notes()
        context = self.open(runner, home, again)
        (step,) = copy.steps(context.host, context.places, observed(context))
        step.apply(context)
        assert again.arrived[0] >= 4 * MEBIBYTE
        assert visible(home / "model") == visible(big)
        runner.close()

    def test_a_connection_that_never_lasts_is_an_error_and_nothing_is_taken_for_complete(
        self, server: SshServer, home: Path, big: Path
    ) -> None:
        copy, notes = read(big), Notes()
        with FaultProxy((HOST, server.port)) as proxy:
            runner = open_ssh(server, proxy.port)
            notes.on_arrival = lambda done: (proxy.set("refuse"), proxy.sever())[0]
            context = self.open(runner, home, notes)
            with pytest.raises(RemoteError):
                sync(context, copy)
            runner.close()
        assert visible(home / "model") == {}
        assert len([line for line in notes.lines if "going on" in line]) == 2

    def test_a_partial_file_that_the_host_has_spoiled_is_sent_again(
        self, server: SshServer, home: Path, big: Path
    ) -> None:
        copy, notes = read(big), Notes()
        runner = open_ssh(server)
        context = self.open(runner, home, notes)
        notes.on_arrival = lambda done: context.cancelled.set() if done > 2 * MEBIBYTE else None
        with pytest.raises(Interrupted):
            sync(context, copy)
        (partial,) = (home / "model/.incoming").glob(".*.partial")
        with partial.open("r+b") as file:
            file.write(bytes(64))
        context = self.open(runner, home, Notes())
        sync(context, copy)
        assert visible(home / "model") == visible(big)
        runner.close()

    def test_a_full_disk_is_told_and_keeps_what_arrived_out_of_sight(self, tmp_path: Path, big: Path) -> None:
        knobs = Knobs(file_limit_bytes=2 * MEBIBYTE)
        with SshServer(tmp_path / "full", knobs) as server:
            runner = open_ssh(server)
            context = make_context(runner, server.home)
            with pytest.raises(TransferFailed) as caught:
                sync(context, read(big))
            assert "df -h" in (caught.value.hint or "")
            there = Path(context.places.model)
            assert visible(there) == {}
            (partial,) = (there / ".incoming").glob(".*.partial")
            assert partial.stat().st_size <= 2 * MEBIBYTE
            assert not (Path(context.places.root) / "model.json").exists()
            runner.close()

    @pytest.mark.system("root")
    def test_a_really_full_disk(self, server: SshServer, home: Path, big: Path) -> None:
        import subprocess

        disk = home / "model"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], capture_output=True)
        if mounted.returncode:
            pytest.skip("this container cannot mount a tmpfs")
        runner = open_ssh(server)
        try:
            with pytest.raises(TransferFailed):
                sync(self.open(runner, home), read(big))
            assert visible(disk) == {}
        finally:
            runner.close()
            subprocess.run(["umount", disk], check=True)


class TestPlanning:
    def test_a_cache_peer_needs_no_model(self, source: Path, tmp_path: Path) -> None:
        inventory = make_inventory()
        store = inventory.host("store")
        places = Places.of(inventory, store, str(tmp_path))
        assert read(source).steps(store, places, make_state(tmp_path)) == ()

    def test_too_little_room_is_told_before_anything_is_sent(self, source: Path, tmp_path: Path) -> None:
        host, places = self.there(tmp_path)
        state = make_state(tmp_path, disk_free_bytes=MEBIBYTE)
        with pytest.raises(DeployError, match=r"no room for the model: 2.0 MiB to copy, 1.0 MiB free"):
            read(source).steps(host, places, state)

    def test_what_has_arrived_already_needs_no_room(self, source: Path, tmp_path: Path) -> None:
        host, places = self.there(tmp_path)
        folder = Path(places.model)
        (folder / ".incoming").mkdir(parents=True)
        (folder / ".incoming/.model.partial").write_bytes(bytes(MEBIBYTE + 4096))
        state = make_state(tmp_path, disk_free_bytes=MEBIBYTE, model=found_files(folder, None))
        assert len(read(source).steps(host, places, state)) == 1

    def test_a_folder_that_could_not_be_looked_at_is_looked_at_again(self, source: Path, tmp_path: Path) -> None:
        host, places = self.there(tmp_path)
        state = make_state(tmp_path, model=Unknown("too slow"))
        for wanted in (True, False):
            assert len(read(source, sync=wanted).steps(host, places, state)) == 1

    @pytest.mark.parametrize(
        "record",
        [
            b"",
            b"[]",
            b"{",
            b'{"folder": "%s"}',
            b'{"folder": "%s", "files": {"config.json": [1]}}',
            b'{"folder": "%s", "files": 3}',
        ],
    )
    def test_a_record_that_cannot_be_read_proves_nothing(self, source: Path, tmp_path: Path, record: bytes) -> None:
        host, places = self.there(tmp_path)
        write_model(Path(places.model))
        record = record.replace(b"%s", places.model.encode())
        state = make_state(tmp_path, model=found_files(Path(places.model), record))
        assert len(read(source).steps(host, places, state)) == 1

    def there(self, home: Path) -> tuple[Any, Places]:
        inventory = make_inventory()
        host = inventory.host("allens")
        return host, Places.of(inventory, host, str(home))


class TestReading:
    def test_only_what_belongs_to_the_model_is_copied(self, source: Path) -> None:
        for name in ("other.gguf", "consolidated.safetensors", ".gitattributes", "pytorch_model.bin"):
            (source / name).write_bytes(b"x")
        assert set(read(source).files) == {
            *SHARDS,
            "README with spaces.md",
            "additional_chat_templates/tools.jinja",
            "config.json",
            "model.safetensors.index.json",
            "tokenizer.json",
        }

    def test_hashes_are_those_of_the_contents(self, source: Path) -> None:
        for name, file in read(source).files.items():
            data = (source / name).read_bytes()
            assert (file.size_bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())

    @pytest.mark.skipif(not Path("/proc").exists(), reason="needs a file system that tells cases apart")
    def test_names_that_would_be_one_on_a_mac_are_refused(self, source: Path) -> None:
        (source / "readme with Spaces.md").write_text("other")
        with pytest.raises(InputError, match="would be one file on a Mac"):
            read(source)

    def test_a_name_with_a_line_end_is_refused(self, source: Path) -> None:
        (source / "a\nb").write_text("x")
        with pytest.raises(ModelDirectoryError, match="cannot be copied"):
            read(source)


def test_a_lost_connection_is_not_taken_for_the_hosts_fault(tmp_path: Path, source: Path) -> None:
    """A runner that always loses its connection: the error is the connection's, after three tries."""

    class Losing(LocalRunner):
        tries = 0

        def upload(self, source: Path, target: str, *, progress: Any) -> None:
            self.tries += 1
            raise ConnectionLost(self.name, "it was sending")

    runner = Losing("allens")
    inventory = make_inventory(f"{tmp_path}/model", install_root=f"{tmp_path}/root")
    context = make_context(runner, tmp_path, inventory)
    context.timing = replace(context.timing, retry=0.0)
    with pytest.raises(ConnectionLost):
        sync(context, read(source))
    assert runner.tries == 3
