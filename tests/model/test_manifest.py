from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.model import ModelDirectory, Revision, read_revision
from kakeya_ops.model import manifest as manifest_module
from kakeya_ops.model.manifest import hash_file, read_shard_digests

MakeModel = Callable[..., Path]
OLD_NS = 1_600_000_000_000_000_000


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "manifests"


def age(path: Path, by_ns: int = 0) -> None:
    """Give all shards a time that is long past."""
    for shard in path.glob("*.safetensors"):
        os.utime(shard, ns=(OLD_NS + by_ns, OLD_NS + by_ns))


def revision(path: Path, manifests: Path) -> Revision:
    return read_revision(ModelDirectory.open(path), manifests)


def flip_last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def test_equal_contents_are_one_revision_wherever_they_are(make_model: MakeModel, manifests: Path) -> None:
    one, other = revision(make_model("a", shards=2), manifests), revision(make_model("b", shards=2), manifests)
    assert one == other
    assert all(len(bytes.fromhex(digest)) == 32 for digest in (one.weights, one.tokenizer, one.chat_template))
    assert len({one.weights, one.tokenizer, one.chat_template}) == 3


def test_a_revision_is_a_fixed_number(make_model: MakeModel, manifests: Path) -> None:
    """Two machines must agree, so what is hashed, and how, may not change unnoticed."""
    path = make_model()
    (path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert revision(path, manifests) == Revision(
        weights="17653acbd65f92eb0729b9a2bc1ecc816f84d9374dfa75fb59851a9098a7bc06",
        tokenizer="52360a36c635d514cd67e85fd45fe18a5e2b4ee17b75d63ed13ef0d6626157c3",
        chat_template="ce497b7792a908047e5abbf769f6a2efbd803c5eda8fda46ace8d82ac27f9bd3",
    )


def write(name: str, text: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda path: flip_last_byte(path / "model-00002-of-00002.safetensors"), "weights"),
        (write("tokenizer.json", "{}"), "tokenizer"),
        (write("merges.txt", "a b"), "tokenizer"),
        (write("tokenizer_config.json", '{"eos_token": "x", "chat_template": "{{ messages }}"}'), "tokenizer"),
        (write("tokenizer_config.json", '{"eos_token": "</s>", "chat_template": "other"}'), "chat_template"),
        (write("tokenizer_config.json", '{"eos_token": "</s>"}'), "chat_template"),
        (write("chat_template.jinja", "x"), "chat_template"),
        (write("additional_chat_templates/tools.jinja", "x"), "chat_template"),
        (write("README.md", "x"), None),
        (write("tokenizer_config.json", '{ "chat_template": "{{ messages }}", "eos_token": "</s>"}'), None),
    ],
)
def test_a_change_shows_in_its_own_digest_alone(
    make_model: MakeModel, manifests: Path, change: Callable[[Path], None], field: str | None
) -> None:
    path = make_model(shards=2)
    before = revision(path, manifests)
    change(path)
    after = revision(path, manifests)
    names = ("weights", "tokenizer", "chat_template")
    assert [name for name in names if getattr(before, name) != getattr(after, name)] == ([field] if field else [])


def test_unchanged_shards_are_not_read_again(make_model: MakeModel, manifests: Path) -> None:
    path = make_model(shards=2)
    age(path)
    before = revision(path, manifests)
    flip_last_byte(path / "model-00001-of-00002.safetensors")
    age(path)  # the same size and time: by agreement the same file
    assert revision(path, manifests) == before
    age(path, by_ns=1)
    assert revision(path, manifests).weights != before.weights


def test_a_size_that_changed_is_noticed(make_model: MakeModel, manifests: Path) -> None:
    path = make_model()
    age(path)
    before = revision(path, manifests)
    (path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    age(path)
    assert revision(path, manifests).weights != before.weights


def test_a_shard_written_just_now_is_not_remembered(make_model: MakeModel, manifests: Path) -> None:
    path = make_model()
    shard = path / "model.safetensors"
    before = revision(path, manifests)
    stat = shard.stat()
    flip_last_byte(shard)
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert revision(path, manifests).weights != before.weights


@pytest.mark.parametrize(
    "damage",
    ["", "[]", "{", '{"version": 1, "shards": {}}', '{"version": 2}', '{"version": 2, "shards": {"a": 1}}', "\udcff"],
)
def test_a_damaged_manifest_is_made_anew(make_model: MakeModel, manifests: Path, damage: str) -> None:
    path = make_model()
    age(path)
    before = revision(path, manifests)
    [manifest] = manifests.iterdir()
    good = manifest.read_bytes()
    manifest.write_bytes(damage.encode("utf-8", "surrogateescape"))
    assert revision(path, manifests) == before
    assert manifest.read_bytes() == good


def test_a_remembered_digest_that_is_none_is_not_believed(make_model: MakeModel, manifests: Path) -> None:
    path = make_model()
    age(path)
    before = revision(path, manifests)
    [manifest] = manifests.iterdir()
    document = json.loads(manifest.read_text())
    document["shards"]["model.safetensors"]["sha256"] = "abcd"
    manifest.write_text(json.dumps(document))
    assert revision(path, manifests) == before


def test_a_folder_that_cannot_be_written_costs_only_time(make_model: MakeModel, tmp_path: Path) -> None:
    path = make_model()
    age(path)
    (tmp_path / "file").touch()
    in_the_way = tmp_path / "file" / "manifests"
    assert revision(path, in_the_way) == revision(path, tmp_path / "elsewhere")


def test_manifests_are_replaced_whole(make_model: MakeModel, manifests: Path) -> None:
    for name in ("a", "b"):
        path = make_model(name)
        for later_ns in range(3):
            age(path, later_ns)
            revision(path, manifests)
    assert sorted(file.suffix for file in manifests.iterdir()) == [".json", ".json"]


def remember(path: Path, manifests: Path) -> Path:
    """The manifest of the model in `path`."""
    before = set(manifests.glob("*")) if manifests.exists() else set()
    age(path)
    revision(path, manifests)
    (manifest,) = set(manifests.iterdir()) - before
    return manifest


def test_manifests_of_directories_that_are_gone_are_removed(make_model: MakeModel, manifests: Path) -> None:
    gone, stays = make_model("gone"), make_model("stays")
    of_gone, of_stays = remember(gone, manifests), remember(stays, manifests)
    unknown = manifests / "0123.json"
    unknown.write_text('{"version": 1, "shards": {}}')
    shutil.rmtree(gone)
    assert of_gone.exists()
    of_new = remember(make_model("new"), manifests)
    assert set(manifests.iterdir()) == {of_stays, of_new}


def test_nothing_is_removed_while_nothing_is_written(make_model: MakeModel, manifests: Path) -> None:
    gone, stays = make_model("gone"), make_model("stays")
    both = {remember(gone, manifests), remember(stays, manifests)}
    shutil.rmtree(gone)
    revision(stays, manifests)
    assert set(manifests.iterdir()) == both


def test_manifests_are_never_too_many(make_model: MakeModel, manifests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "_MOST_MANIFESTS", 2)
    first, second = (remember(make_model(name), manifests) for name in "ab")
    for index, path in enumerate((first, second)):
        os.utime(path, ns=(OLD_NS + index, OLD_NS + index))
    third = remember(make_model("c"), manifests)
    assert set(manifests.iterdir()) == {second, third}


def test_the_users_cache_folder_is_the_default(
    make_model: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    path = make_model()
    age(path)
    read_revision(ModelDirectory.open(path))
    assert len(list((tmp_path / "xdg/kakeya/manifests").iterdir())) == 1


def test_a_shard_that_is_gone_is_named(make_model: MakeModel, manifests: Path) -> None:
    directory = ModelDirectory.open(make_model())
    directory.shards[0].unlink()
    with pytest.raises(ModelDirectoryError, match=r"model\.safetensors cannot be read"):
        read_revision(directory, manifests)


def test_a_shard_that_changes_meanwhile_is_told(
    make_model: MakeModel, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_model()
    age(path)
    digest = hashlib.file_digest

    def slow(file: Any, name: str) -> Any:
        result = digest(file, name)
        age(path, by_ns=5)
        return result

    monkeypatch.setattr(hashlib, "file_digest", slow)
    with pytest.raises(ModelDirectoryError, match="changed while it was read"):
        revision(path, manifests)


def test_memory_is_bounded_whatever_the_size(make_model: MakeModel, manifests: Path) -> None:
    path = make_model()
    size = 512 * 2**20
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (path / "model.safetensors").open("wb") as file:  # sparse: takes no disk
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    script = (
        "import resource, sys; from pathlib import Path; from kakeya_ops.model import ModelDirectory, read_revision\n"
        "unit = 1 if sys.platform == 'darwin' else 1024\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit\n"
        "before = used(); read_revision(ModelDirectory.open(Path(sys.argv[1])), Path(sys.argv[2]))\n"
        "sys.exit(used() - before > 64 * 2**20)"
    )
    arguments = [sys.executable, "-c", script, str(path), str(manifests)]
    assert subprocess.run(arguments, cwd=Path(__file__).parents[2], timeout=100, check=False).returncode == 0


def test_shards_have_digests_of_their_own(make_model: MakeModel, tmp_path: Path) -> None:
    path = make_model(shards=2)
    digests = read_shard_digests(ModelDirectory.open(path), tmp_path / "manifests")
    shards = sorted(path.glob("*.safetensors"))
    assert digests == {shard.name: hashlib.sha256(shard.read_bytes()).hexdigest() for shard in shards}
    assert [hash_file(shard) for shard in shards] == [digests[shard.name] for shard in shards]
