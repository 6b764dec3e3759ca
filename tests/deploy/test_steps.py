"""Single steps, on the files of this machine; services and order are tried in the flows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from deploy.states import KEY, card, desired, material, planner
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.steps import (
    KeepGeneration,
    MakeFolders,
    WriteGeneration,
    WriteIdentity,
    WriteKey,
    check_identity,
    remove_unused,
)
from kakeya_ops.errors import IdentityMismatch
from serving.running import simple_identity


def generation(context: HostContext, id: str, program: str = "p1") -> Path:
    folder = Path(context.places.generation(id))
    folder.mkdir(parents=True)
    (folder / "generation.json").write_text(json.dumps({"program": program}))
    Path(context.places.program(program)).mkdir(parents=True, exist_ok=True)
    return folder


def test_a_bare_host_gets_its_folders_key_and_identity(context: HostContext) -> None:
    for step in (MakeFolders(), WriteKey(KEY), WriteIdentity(b"{}")):
        step.apply(context)
    places = context.places
    assert Path(places.key or "").read_text() == KEY.reveal().hex() + "\n"
    assert Path(places.key or "").stat().st_mode & 0o777 == 0o600
    assert Path(places.identity).read_bytes() == b"{}"
    assert Path(places.agents).stat().st_mode & 0o777 == 0o755
    assert context.put_back() == []
    assert not Path(places.key or "").exists()
    assert not Path(places.identity).exists()


def test_no_step_shows_the_key() -> None:
    assert KEY.reveal().hex() not in repr(WriteKey(KEY)) + WriteKey(KEY).title


def test_a_generation_is_written_and_taken_back(context: HostContext) -> None:
    files = desired(planner(), "allens").files(material())
    WriteGeneration("g9", "p1", files).apply(context)
    folder = Path(context.places.generation("g9"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == dict(files)
    context.put_back()
    assert not folder.exists()


def test_a_generation_that_is_in_use_is_not_taken_away(context: HostContext) -> None:
    context.before = dataclasses.replace(context.before, generation="g9")
    WriteGeneration("g9", "p1", (("service.plist", b"<plist/>"),)).apply(context)
    context.put_back()
    assert Path(context.places.generation("g9")).is_dir()


def test_a_property_list_that_plutil_refuses_is_an_error(
    context: HostContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plutil").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "plutil").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(DeployError, match="plutil"):
        WriteGeneration("g9", "p1", (("service.plist", b"x"),)).apply(context)


def test_two_generations_and_their_programs_are_kept(context: HostContext) -> None:
    for id, program in (("g1", "p1"), ("g2", "p2"), ("g3", "p2")):
        generation(context, id, program)
    places = context.places
    context.before = dataclasses.replace(context.before, generation="g2", previous="g1")
    KeepGeneration("g3").apply(context)
    assert Path(places.current).readlink() == Path("generations/g3")
    assert Path(places.previous).readlink() == Path("generations/g2")
    assert sorted(path.name for path in Path(places.root, "generations").iterdir()) == ["g2", "g3"]
    assert [path.name for path in Path(places.root, "programs").iterdir()] == ["p2"]
    context.put_back()
    assert Path(places.current).readlink() == Path("generations/g2")


def test_programs_stay_where_it_is_not_known_who_needs_them(context: HostContext) -> None:
    for id in ("g1", "g2"):
        generation(context, id, id)
    Path(context.places.generation("g2"), "generation.json").write_text("{")
    remove_unused(context, {"g2"})
    assert len(list(Path(context.places.root, "programs").iterdir())) == 2


def test_the_first_generation_has_none_before_it_and_keeping_it_twice_changes_nothing(context: HostContext) -> None:
    generation(context, "g1")
    KeepGeneration("g1").apply(context)
    assert not Path(context.places.previous).exists()
    context.before = dataclasses.replace(context.before, generation="g1")
    KeepGeneration("g1").apply(context)
    assert Path(context.places.current).readlink() == Path("generations/g1")


def test_an_identity_that_differs_is_told_by_its_first_field() -> None:
    planned = simple_identity()
    check_identity(planned, card("allens"))
    with pytest.raises(IdentityMismatch) as caught:
        check_identity(planned, card("allens", simple_identity(weights="99" * 32)))
    assert (caught.value.field, caught.value.peer) == ("weights", "allens")
    for document in (None, {"nonsense": 1}):
        with pytest.raises(IdentityMismatch) as caught:
            check_identity(planned, card("allens", identity="0" * 64, identity_document=document))
        assert caught.value.field == "identity"
