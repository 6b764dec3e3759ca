"""Models in the tests' own thread, and engines, which have a thread of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_bench import SETTINGS, Bench
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.engine.identify import load_weights
from kakeya_ops.engine.layout_probe import probe_layout
from kakeya_ops.model.directory import ModelDirectory
from tiny_models import MakeFamily

MakeBench = Callable[[str], Bench]
OpenEngine = Callable[..., Engine]


@pytest.fixture(scope="session")
def bench_of(tiny_family: MakeFamily) -> MakeBench:
    """The model of a family, loaded once."""
    loaded: dict[str, Bench] = {}

    def find(family: str) -> Bench:
        if family not in loaded:
            model = load_weights(ModelDirectory.open(tiny_family(family)))[0]
            loaded[family] = Bench(model, probe_layout(model, SETTINGS), SETTINGS)
        return loaded[family]

    return find


@pytest.fixture(scope="session")
def llama(bench_of: MakeBench) -> Bench:
    """A model with full attention."""
    return bench_of("llama")


@pytest.fixture
def open_engine(tiny_llama: Path) -> Iterator[OpenEngine]:
    """Makes engines, and closes them."""
    engines: list[Engine] = []

    def make(path: Path = tiny_llama, *, settings: CacheSettings = SETTINGS, **admission: int) -> Engine:
        engines.append(Engine.load(path, settings, Admission(**admission)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def shared_engine(tiny_llama: Path) -> Iterator[Engine]:
    """One engine for all tests that leave it as it was."""
    engine = Engine.load(tiny_llama, SETTINGS, Admission(queue_limit=16, together=4))
    yield engine
    engine.close()
