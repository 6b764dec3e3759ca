"""What all tests share: folders of their own, and models that are made once a run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from kakeya_ops.demo.tiny_model import make_tiny_llama
from tiny_models import MakeFamily, make_family

# Machines that run tests are often busy: one slow example of a property says nothing.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


def pytest_configure() -> None:
    """Let tests and the processes that they start hear signals, also where whoever started them ignores some."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take minutes, so that no process is left with one of them while others have ended."""
    items.sort(key=lambda item: item.path.parent.name not in ("flows_deploy", "flows", "dashboard"))


@pytest.fixture(scope="session", autouse=True)
def _folders_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests, and what they start, out of the folders of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture(scope="session")
def tiny_family(tmp_path_factory: pytest.TempPathFactory) -> MakeFamily:
    """The model directory of a family of `tiny_models.FAMILIES`, by name. Not to be written to."""
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            made[name] = make_family(name, tmp_path_factory.mktemp("models") / name)
        return made[name]

    return find


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model directory of the demo's llama. Not to be written to."""
    return make_tiny_llama(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="session")
def tiny_llama_with_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model directory of the llama that calls a tool whenever it is offered any. Not to be written to."""
    return make_tiny_llama(tmp_path_factory.mktemp("models") / "tiny-llama-with-tools", tools=True)
