"""The log's end, and what is added, without secrets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from deploy.states import KEY
from kakeya_ops.deploy.service_log import LogFollower, tail_log
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner


def test_the_last_lines_without_secrets(runner: LocalRunner, places: Places) -> None:
    assert "no log" in tail_log(runner, places, KEY)
    Path(places.logs).mkdir(parents=True)
    Path(places.log).write_text("one\ntwo\n" + KEY.reveal().hex() + "\n")
    assert tail_log(runner, places, KEY, 2) == "two\n[redacted]"


def test_added_lines_are_told_whole_and_a_log_begun_anew_from_its_start(runner: LocalRunner, places: Places) -> None:
    Path(places.logs).mkdir(parents=True)
    log = Path(places.log)
    log.write_text("old\nlast\n")

    def append(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    events: list[Callable[[], object]] = [
        lambda: append("first ha"),
        lambda: append("lf\ntoken=abcdefgh12345\n"),
        lambda: None,
        lambda: log.write_text("new\n"),
    ]
    follower = LogFollower(runner, places, KEY, lambda seconds: events.pop(0)())
    lines = list(islice(follower.lines(1), 4))
    assert lines == ["last", "first half", "token=[redacted]", "new"]
