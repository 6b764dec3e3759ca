"""What a module offers is what its `__all__` says."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import kakeya_ops

MODULES = ["kakeya_ops", *(found.name for found in pkgutil.walk_packages(kakeya_ops.__path__, "kakeya_ops."))]


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_exists(name: str) -> None:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    if public is None:
        # A package that only holds modules offers nothing itself.
        assert hasattr(module, "__path__"), "no __all__"
        assert not [value for value in vars(module).values() if getattr(value, "__module__", None) == name]
        return
    assert len(set(public)) == len(public)
    assert [missing for missing in public if not hasattr(module, missing)] == []
