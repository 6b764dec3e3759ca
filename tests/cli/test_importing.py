"""The collector rests while modules are imported, and works again whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kakeya_ops.cli.importing import importing


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    assert gc.isenabled()


def test_the_collector_rests_within_and_leaves_alone_what_came() -> None:
    frozen = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
        with importing():
            assert not gc.isenabled()
        assert not gc.isenabled(), "it rests until the outermost ends"
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen


def test_an_import_that_fails_wakes_it_too() -> None:
    with pytest.raises(ModuleNotFoundError), importing():
        import no_such_module  # noqa: F401
