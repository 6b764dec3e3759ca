from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kakeya_ops.bench import side_by_side as module
from kakeya_ops.bench.compare import GAP_TOKENS, Comparing
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.side_by_side import CHUNKED, DEFAULTS, compare_with_mlx_lm
from kakeya_ops.bench.streams import StreamServer
from kakeya_ops.bench.texts import Texts

PLAN = BenchPlan("http://head", (), lengths=(100, 200), rounds=2)


class Watched(Comparing):
    """Notes what it is asked to measure."""

    def __init__(self) -> None:
        super().__init__(StreamServer("http://head", "m"), Texts(), lambda text: None)
        self.seen: list[tuple[Any, ...]] = []

    def warm_up(self, theirs: StreamServer, length: int) -> None:
        self.seen.append(("warm", theirs.url, length))

    def first_tokens(self, theirs: StreamServer, length: int, rounds: int) -> None:
        self.seen.append(("first", theirs.url, length, rounds))

    def gaps(self, theirs: StreamServer, tokens: int, rounds: int, *, of: str) -> None:
        self.seen.append(("gaps", theirs.url, tokens, of))


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which servers ran, in order; never two at once."""
    ran: list[str] = []
    up: list[str] = []

    @contextmanager
    def run(model: Path, options: Sequence[str] = ()) -> Iterator[StreamServer]:
        assert not up
        ran.append(" ".join(options))
        up.append(ran[-1])
        yield StreamServer(f"http://server{len(ran)}", "default_model")
        up.clear()

    monkeypatch.setattr(module, "mlx_lm_server", run)
    monkeypatch.setattr(module, "check_room", lambda model: None)
    return ran


def test_one_server_after_the_other(running: list[str]) -> None:
    watched = Watched()
    compare_with_mlx_lm(PLAN, Path("/m"), watched, time.monotonic() + 100)
    assert running == ["", "--prefill-step-size 128"]
    assert watched.seen == [
        ("warm", "http://server1", 200),
        ("first", "http://server1", 200, 2),
        *(("gaps", "http://server1", tokens, DEFAULTS) for tokens in GAP_TOKENS),
        *(("gaps", "http://server2", tokens, CHUNKED) for tokens in GAP_TOKENS),
    ]


def test_when_time_is_up_nothing_more_is_compared(running: list[str]) -> None:
    watched = Watched()
    compare_with_mlx_lm(PLAN, Path("/m"), watched, time.monotonic() - 1)
    assert [seen[0] for seen in watched.seen] == ["warm"]
    assert watched.notes == ["time was up before all was compared with mlx-lm"]
