"""What was done to a host can be read there."""

from __future__ import annotations

from pathlib import Path

from kakeya_ops.deploy.audit import Entry, append_entry, read_history
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner


def test_entries_are_appended_and_read_in_order(runner: LocalRunner, places: Places) -> None:
    assert read_history(runner, places) == []
    Path(places.root).mkdir()
    for action in ("deploy", "rollback"):
        append_entry(runner, places, Entry(1.5, action, "done", None, "g1", 2.0, ("one\ntwo",), "weil: é"))
    first, second = read_history(runner, places)
    assert (first["action"], second["action"], first["steps"], first["reason"]) == (
        "deploy",
        "rollback",
        ["one\ntwo"],
        "weil: é",
    )
    assert "@" in str(first["who"])
    assert Path(places.audit).stat().st_mode & 0o777 == 0o600


def test_a_line_that_cannot_be_read_is_told_as_such(runner: LocalRunner, places: Places) -> None:
    Path(places.root).mkdir()
    Path(places.audit).write_bytes(b'{"action": "deploy"}\n\xff{\n[1]\n')
    assert [entry["action"] for entry in read_history(runner, places)] == ["deploy"] + ["unreadable line"] * 2
