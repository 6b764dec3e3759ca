"""Copies of models over real SSH, with everything that comes in between."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.bare_host import Notes, found_files, make_context, make_inventory, make_state
from deploy.model_copies import MEBIBYTE, SHARDS, observed, open_ssh, read, sync, visible, write_model
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.model_sync import CheckModel, ForgetReplaced, SyncModel
from kakeya_ops.errors import InputError, ModelDirectoryError
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from sshd import SshServer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "here/tiny")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd")) as started:
        yield started


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

    def test_where_nothing_is_there_nothing_is_replaced_and_so_it_says(
        self, context: HostContext, source: Path
    ) -> None:
        copy, there = read(source), Path(context.places.model)

        def left() -> tuple[object, ...]:
            return copy.after(copy.steps(context.host, context.places, observed(context)))

        assert left() == ()
        there.mkdir(parents=True)
        (there / "NOTES").write_text("mine")
        assert left() == ()
        (there / "config.json").write_text("{}")
        assert left() == (ForgetReplaced(),)
        (there / "config.json").unlink()
        (there / ".replaced").mkdir()
        (there / ".replaced/config.json").write_text("{}")
        assert left() == (ForgetReplaced(),)
        (there / ".replaced/config.json").unlink()
        (there / "model-00003-of-00003.safetensors").write_bytes(b"of another model")
        assert left() == (ForgetReplaced(),)


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
