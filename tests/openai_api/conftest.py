"""The front over real HTTP, on a real engine with a tiny model that knows tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.openai_api.settings import ApiSettings
from openai_api.fronts import Front, Serve, serve_front


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("model") / "tiny", tools=True)


@pytest.fixture(scope="session")
def engine(model_path: Path) -> Iterator[Engine]:
    loaded = Engine.load(model_path, CacheSettings())
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def front(engine: Engine) -> Iterator[Front]:
    """The front with its defaults, shared by all tests that leave it as it is."""
    yield from serve_front(engine, ApiSettings())


@pytest.fixture
def serve(engine: Engine) -> Iterator[Serve]:
    """Starts fronts with settings of their own, and stops them."""
    running: list[Iterator[Front]] = []

    def start(settings: ApiSettings, *more_routes: Any, key: str = "none") -> Front:
        running.append(serve_front(engine, settings, *more_routes, key=key))
        return next(running[-1])

    yield start
    for one in running:
        next(one, None)
