"""One at a time changes a host, and whoever is turned away learns by whom."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kakeya_ops.deploy.errors import LockHeld
from kakeya_ops.deploy.lock import LONG_SECONDS, NOTE, Holder, break_lock, holding, read_lock, release_lock, take_lock
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner


def write_note(places: Places, note: str) -> None:
    Path(places.lock).mkdir(parents=True, exist_ok=True)
    Path(places.lock, NOTE).write_text(note)


def ended_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_lock_is_held_and_given_back(runner: LocalRunner, places: Places) -> None:
    assert read_lock(runner, places) is None
    with holding(runner, places, "allens", "a test") as holder:
        assert read_lock(runner, places) == holder
        with pytest.raises(LockHeld, match="a test") as caught:
            take_lock(runner, places, "allens", "another")
        assert caught.value.stale is None
        assert str(os.getpid()) in caught.value.message
    assert not Path(places.lock).exists()


def test_a_lock_whose_process_has_ended_is_explained(runner: LocalRunner, places: Places) -> None:
    write_note(places, json.dumps(dataclasses.asdict(Holder.here("x")) | {"process": ended_process()}))
    with pytest.raises(LockHeld, match="looks abandoned: process") as caught:
        take_lock(runner, places, "allens", "another")
    assert "kakeya lock break allens" in str(caught.value.hint)


def test_age_makes_a_lock_of_another_machine_suspicious() -> None:
    holder = dataclasses.replace(Holder.here("x"), machine="elsewhere")
    assert holder.stale is None
    assert "older than an hour" in str(dataclasses.replace(holder, since=time.time() - LONG_SECONDS - 1).stale)


@pytest.mark.parametrize("note", ["", "{", "[]", "{}", '{"who": 1}', '"x"'])
def test_a_note_that_is_none_is_no_error(runner: LocalRunner, places: Places, note: str) -> None:
    write_note(places, note)
    assert isinstance(read_lock(runner, places), str)
    with pytest.raises(LockHeld, match="abandoned"):
        take_lock(runner, places, "allens", "another")


def test_a_broken_lock_that_somebody_took_anew_is_not_given_back(runner: LocalRunner, places: Places) -> None:
    first = take_lock(runner, places, "allens", "first")
    break_lock(runner, places)
    second = take_lock(runner, places, "allens", "second")
    release_lock(runner, places, first)
    assert read_lock(runner, places) == second
    release_lock(runner, places, second)
    assert read_lock(runner, places) is None
